/**
 * Whether a mailbox takes one more message.
 * Invariant: the last tenth of a mailbox of requests is for those who have little in it, so that one who floods shuts out nobody
 * but itself.
 */
import { HostError } from '../../kernel/errors.js';

export interface Filling {
  readonly count: number;
  readonly bytes: number;
}

export interface RoomLimits {
  readonly mailboxMessages: number;
  readonly mailboxBytes: number;
}

/** So full, with so many bytes more, that it is no longer open to everybody. */
export const isCrowded = ({ count, bytes }: Filling, more: number, limits: RoomLimits): boolean =>
  count >= common(limits.mailboxMessages) || bytes + more > common(limits.mailboxBytes);

/** `own`: how many the sender has there. */
export function hasRoom(
  filling: Filling,
  mail: { readonly kind: 'request' | 'reply'; readonly body: Buffer },
  own: number,
  limits: RoomLimits,
): boolean {
  const { mailboxMessages, mailboxBytes } = limits;
  const { length } = mail.body;
  if (filling.count >= mailboxMessages || filling.bytes + length > mailboxBytes) return false;
  return mail.kind === 'reply' || !isCrowded(filling, length, limits) || own < little(mailboxMessages);
}

const common = (limit: number): number => limit - Math.floor(limit / 10);
const little = (messages: number): number => Math.max(Math.floor(messages / 100), 1);

export const mailboxFull = (name: string, limit: number): HostError =>
  new HostError('overloaded', `mailbox '${name}' is full`, {
    reason: 'mailbox_full',
    execution: 'not_executed',
    limit,
    hint: 'try again when some of what waits there has been taken',
  });
