/** What a mailbox may be called: its name is also a path, a subject and a row elsewhere. */
export const mailboxPattern = /^[a-z0-9][a-z0-9_.-]{0,127}$/;
/** Where requests go. */
export const hostMailbox = 'host';
/** Among the mailboxes that a key may send to: all of them, which makes it the key of a host. */
export const everyMailbox = '*';
