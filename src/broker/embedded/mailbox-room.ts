/**
 * How full a mailbox is, and whether it takes one more message.
 * Invariant: the last tenth of a mailbox of requests is for those who have little in it, so that one who floods shuts out nobody
 * but itself.
 */
import { HostError } from '../../kernel/errors.js';

export interface Filling {
  readonly count: number;
  readonly bytes: number;
}

/** How full one mailbox is: of what it holds and of what is on its way there. */
export class Fill implements Filling {
  readonly #limits: RoomLimits;
  #count: number;
  #bytes: number;
  #wasFull = false;

  constructor({ count, bytes }: Filling, limits: RoomLimits) {
    this.#count = count;
    this.#bytes = bytes;
    this.#limits = limits;
  }

  get count(): number {
    return this.#count;
  }
  get bytes(): number {
    return this.#bytes;
  }

  add(bytes: number): void {
    this.#count++;
    this.#bytes += bytes;
  }

  remove(bytes: number): void {
    this.#count--;
    this.#bytes -= bytes;
    if (this.#wasFull) this.#wasFull = isCrowded(this, 0, this.#limits);
  }

  /** As it turned out. */
  set(count: number, bytes: number): void {
    this.#count = count;
    this.#bytes = bytes;
  }

  /** Whether that it is full is news: once until there is room again. */
  isNewlyFull(): boolean {
    const isNews = !this.#wasFull;
    this.#wasFull = true;
    return isNews;
  }
}

export interface RoomLimits {
  readonly mailboxMessages: number;
  readonly mailboxBytes: number;
}

/** So full, with so many bytes more, that it is no longer open to everybody. */
export const isCrowded = ({ count, bytes }: Filling, more: number, limits: RoomLimits): boolean =>
  count >= common(limits.mailboxMessages) || bytes + more > common(limits.mailboxBytes);

/** So full that reading it again from the disk would cost more than remembering what is in it. */
export const isHalfFull = ({ count, bytes }: Filling, { mailboxMessages, mailboxBytes }: RoomLimits): boolean =>
  count * 2 > mailboxMessages || bytes * 2 > mailboxBytes;

/** `own`: what the sender has there. Who has nothing may put one, however large. */
export function hasRoom(
  filling: Filling,
  mail: { readonly kind: 'request' | 'reply'; readonly body: Buffer },
  own: Filling,
  limits: RoomLimits,
): boolean {
  const { mailboxMessages, mailboxBytes } = limits;
  const { length } = mail.body;
  if (filling.count >= mailboxMessages || filling.bytes + length > mailboxBytes) return false;
  if (mail.kind === 'reply' || !isCrowded(filling, length, limits) || own.count === 0) return true;
  return own.count < little(mailboxMessages) && own.bytes + length <= little(mailboxBytes);
}

const common = (limit: number): number => limit - Math.floor(limit / 10);
const little = (limit: number): number => Math.max(Math.floor(limit / 100), 1);

export const mailboxFull = (name: string, limit: number): HostError =>
  new HostError('overloaded', `mailbox '${name}' is full`, {
    reason: 'mailbox_full',
    execution: 'not_executed',
    limit,
    hint: 'try again when some of what waits there has been taken',
  });
