/** What a mailbox may be called: its name is also a path, a subject and a row elsewhere. */
export const mailboxPattern = /^[a-z0-9][a-z0-9_.-]{0,127}$/;
/** Where requests go. */
export const hostMailbox = 'host';
