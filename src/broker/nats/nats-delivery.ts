/**
 * A request of a worker as it came out of its stream, in the hands of a host.
 * Not here: the message it came in (nats-parcel.ts), how many are asked for and in which order they are handed out
 * (nats-lanes.ts).
 *
 * Invariant: it is settled once; the mailbox is that of the subject, to which the server binds whoever may publish there.
 */
import { HostError, isHostError } from '../../kernel/errors.js';
import type { JsonText } from '../../wire/frame.js';
import { toBuffer } from '../../wire/json-text.js';
import { errorReply, joined } from '../messages.js';
import { notOwed } from '../not-owed.js';
import { type Delivery, messageBytesMax, type Sender, ttlMsMax } from '../ports.js';
import type { ClaimLog } from './nats-claim-log.js';
import type { NatsConnection } from './nats-connection.js';
import { claimedMeanwhile, tooLarge } from './nats-failures.js';
import type { NatsJournal } from './nats-journal.js';
import type { MailboxNames, Names } from './nats-names.js';
import type { Sweep } from './nats-sweeper.js';

export interface DeliveryParts {
  readonly connection: NatsConnection;
  readonly journal: NatsJournal;
  readonly allNames: Names;
  readonly names: MailboxNames;
  /** Undefined: the mailbox is not served any more. */
  readonly senderNow: () => Sender | undefined;
  readonly now: () => Date;
  readonly sweep: (what: Sweep, until: Date) => void;
}

/** The message that a request came in. */
export interface Carrier {
  readonly parts: DeliveryParts;
  readonly deliveries: number;
  /** In its stream. */
  readonly seq: number;
  readonly sentAt: Date;
  /** Undefined: it came alone. */
  readonly bundle: ClaimLog | undefined;
  /** One of its requests is over, or to come again after `againMs`. */
  settled(delivery: NatsDelivery, againMs: number | undefined): void;
  /** Resolves when the server will not hand it out any more. Of one that has its request alone. */
  confirm(): Promise<void>;
}

/** A reply is there for so long after nobody waits for it any more. */
const mailGraceMs = 60_000;
/** The same, of a request without an end. */
const endlessMs = 600_000;
const reasonChars = 500;
const done = Promise.resolve();

/** What came before a body: how long its worker waits. */
export const requestHead = (ttlMs: number): string => `${Math.min(Math.max(0, Math.ceil(ttlMs)), ttlMsMax)}\n`;

export class NatsDelivery implements Delivery {
  readonly id: string;
  readonly body: Buffer;
  readonly deadlineAt: Date | undefined;
  /** Undefined: what came is no request. */
  readonly fault: string | undefined;
  readonly #carrier: Carrier;
  #isSettled = false;

  constructor(
    carrier: Carrier,
    id: string,
    body: Buffer,
    deadlineAt: Date | undefined,
    fault: string | undefined = undefined,
  ) {
    this.#carrier = carrier;
    this.id = id;
    this.body = body;
    this.deadlineAt = deadlineAt;
    this.fault = fault;
  }

  /** In the role that it has now; of a mailbox that is not served any more, in none. */
  get from(): Sender {
    const { parts } = this.#carrier;
    return parts.senderNow() ?? { mailbox: parts.names.mailbox, role: undefined };
  }

  get isRevoked(): boolean {
    return this.#carrier.parts.senderNow() === undefined;
  }

  get deliveries(): number {
    return this.#carrier.deliveries;
  }

  /** A server says how often, and not to whom. */
  get wasElsewhere(): boolean {
    return this.#carrier.deliveries > 1;
  }

  get sentAt(): Date {
    return this.#carrier.sentAt;
  }

  get bundle(): ClaimLog | undefined {
    return this.#carrier.bundle;
  }

  get isOwed(): boolean {
    return !this.#isSettled;
  }

  // Bound, as whoever is handed a delivery may take its functions off it; and made when asked for, as few of them are.
  get reply() {
    return (...parts: readonly JsonText[]): Promise<void> => {
      const body = bodyOf(parts);
      return this.#isKept(body) ? done : this.#keep(body);
    };
  }

  get answer() {
    return (...parts: readonly JsonText[]): Promise<void> => {
      const body = bodyOf(parts);
      if (!this.#isKept(body)) return this.#keep(body).then(() => this.#settle(undefined));
      this.#settle(undefined);
      return done;
    };
  }

  get refuse() {
    return (...parts: readonly JsonText[]): Promise<void> => this.#refuse(bodyOf(parts));
  }

  get ack() {
    return (): void => this.#settle(undefined);
  }

  get release() {
    return (delayMs: number, reason: string): void => this.#release(delayMs, reason);
  }

  async #refuse(body: Buffer): Promise<void> {
    if (this.#isSettled) throw notOwed();
    // Told only, it could be lost with the connection: the request would come again, and run, after its worker heard that it did not.
    if (this.bundle === undefined) {
      await this.#carrier.confirm();
      this.#settle(undefined);
      if (!this.#isKept(body)) await this.#keep(body);
      return;
    }
    // Of a bundle the claim that goes with the reply is what keeps it from running.
    if (!this.#isKept(body)) await this.#close(body);
    this.#settle(undefined);
  }

  async #close(body: Buffer): Promise<void> {
    let isClosed: boolean;
    try {
      isClosed = await this.#isClosed(body);
    } catch (error) {
      if (!isHostError(error) || error.code === 'transport') throw error;
      // It cannot be kept from being begun when its bundle comes again: its worker hears no more than that.
      return this.#mail(bodyOf(errorReply(error.with({ execution: 'uncertain' }))));
    }
    if (!isClosed) throw claimedMeanwhile();
  }

  /** Whether it is answered with that, and never begun; false: somebody has it, or it came alone. */
  async #isClosed(body: Buffer): Promise<boolean> {
    const { parts, bundle } = this.#carrier;
    if (body.length > messageBytesMax) throw tooLarge('reply', body.length);
    return bundle !== undefined && parts.journal.close(parts.names.mailbox, this.id, bundle, body, this.deliveries > 1);
  }

  #isKept(body: Buffer): boolean {
    const { parts, bundle } = this.#carrier;
    return parts.journal.isKept(parts.names.mailbox, this.id, body, bundle);
  }

  async #keep(body: Buffer): Promise<void> {
    const isClosed = await this.#isClosed(body).catch((error) => {
      if (!isHostError(error) || error.code === 'transport' || error.code === 'result_too_large') throw error;
      // What is said here is true whether it is begun or not.
      return false;
    });
    if (!isClosed) await this.#mail(body);
  }

  async #mail(body: Buffer): Promise<void> {
    const { parts, seq, deliveries } = this.#carrier;
    const { connection, names, now, sweep } = parts;
    const receipt = await connection.keep(`${names.mail}${this.id}.${seq}-${deliveries}`, body);
    if (receipt.kind === 'full')
      throw new HostError(
        'insufficient_storage',
        `the replies of mailbox '${names.mailbox}' are full: ${receipt.why}`,
        {
          hint: 'its worker does not take them, or the bounds of its streams are too small',
        },
      );
    if (receipt.kind === 'there') return;
    const endMs = Math.max(now().getTime(), this.deadlineAt?.getTime() ?? now().getTime() + endlessMs);
    sweep({ stream: names.replyStream, seq: receipt.seq }, new Date(endMs + mailGraceMs));
  }

  #release(delayMs: number, reason: string): void {
    if (this.#isSettled) return;
    const { connection, allNames, names } = this.#carrier.parts;
    // Not waited for: a reason that is lost stands in the dead letter as a delivery without one.
    if (this.fault === undefined)
      connection.tell(allNames.reason(names.mailbox, this.id), `${this.deliveries}: ${reason.slice(0, reasonChars)}`);
    this.giveBack(delayMs);
  }

  /** As if it had not been handed out here. */
  giveBack(delayMs: number): void {
    this.#settle(delayMs);
  }

  #settle(againMs: number | undefined): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    const { parts, bundle } = this.#carrier;
    parts.journal.forget(parts.names.mailbox, this.id, bundle);
    this.#carrier.settled(this, againMs);
  }
}

function bodyOf(parts: readonly JsonText[]): Buffer {
  const [first] = parts;
  return parts.length === 1 && first !== undefined ? toBuffer(first) : joined(...parts);
}
