/**
 * A request of a worker as it came out of its stream, in the hands of a host.
 * Not here: how many are asked for and in which order they are handed out (nats-lanes.ts).
 *
 * Invariant: it is settled once; the mailbox is that of the subject, to which the server binds whoever may publish there.
 */
import { HostError } from '../../kernel/errors.js';
import type { JsonText } from '../../wire/frame.js';
import { toBuffer } from '../../wire/json-check.js';
import { joined } from '../messages.js';
import { notOwed } from '../not-owed.js';
import { type Delivery, idPattern, messageBytesMax, type Sender, ttlMsMax } from '../ports.js';
import { bufferOf, type NatsConnection, type NatsMessage } from './nats-connection.js';
import { tooLarge } from './nats-failures.js';
import type { NatsJournal } from './nats-journal.js';
import type { MailboxNames, Names } from './nats-names.js';
import type { Sweep } from './nats-sweeper.js';

export interface DeliveryParts {
  readonly connection: NatsConnection;
  readonly journal: NatsJournal;
  readonly allNames: Names;
  readonly names: MailboxNames;
  readonly from: Sender;
  readonly now: () => Date;
  readonly sweep: (what: Sweep, until: Date) => void;
}

/** A reply is there for so long after nobody waits for it any more. */
const mailGraceMs = 60_000;
/** The same, of a request without an end. */
const endlessMs = 600_000;
const reasonChars = 500;

/** What came before a body: how long its worker waits. */
export const requestHead = (ttlMs: number): string => `${Math.min(Math.max(0, Math.ceil(ttlMs)), ttlMsMax)}\n`;

/** The number before the first line end; undefined when it is none. */
function readHead(payload: Buffer): { readonly ttlMs: number; readonly body: Buffer } | undefined {
  let ttlMs = 0;
  for (let at = 0; at < 10 && at < payload.length; at++) {
    const byte = payload[at] as number;
    if (byte === 0x0a && at > 0) return { ttlMs: Math.min(ttlMs, ttlMsMax), body: payload.subarray(at + 1) };
    if (byte < 0x30 || byte > 0x39) return undefined;
    ttlMs = ttlMs * 10 + byte - 0x30;
  }
  return undefined;
}

export class NatsDelivery implements Delivery {
  readonly id: string;
  readonly from: Sender;
  readonly body: Buffer;
  readonly deliveries: number;
  readonly wasElsewhere: boolean;
  readonly deadlineAt: Date | undefined;
  /** In its stream. */
  readonly seq: number;
  readonly sentAt: Date;
  readonly payload: Buffer;
  /** Undefined: what came is no request. */
  readonly fault: string | undefined;
  readonly #parts: DeliveryParts;
  readonly #ackSubject: string;
  readonly #settled: (delivery: NatsDelivery) => void;
  #isSettled = false;

  constructor(message: NatsMessage, parts: DeliveryParts, settled: (delivery: NatsDelivery) => void) {
    this.#parts = parts;
    this.#settled = settled;
    this.#ackSubject = message.reply ?? '';
    // $JS.ACK.<stream>.<consumer>.<deliveries>.<seq>.<consumer seq>.<ns>.<pending>; newer servers put two tokens before.
    const tokens = this.#ackSubject.split('.');
    const first = tokens.length > 9 ? 6 : 4;
    this.deliveries = Number(tokens[first]);
    // A server says how often, and not to whom.
    this.wasElsewhere = this.deliveries > 1;
    this.seq = Number(tokens[first + 1]);
    this.sentAt = new Date(Number(tokens[first + 3]?.slice(0, -6)));
    this.id = message.subject.slice(parts.names.requests.length);
    this.from = parts.from;
    this.payload = bufferOf(message.data);
    const read = readHead(this.payload);
    this.body = read?.body ?? Buffer.alloc(0);
    this.deadlineAt = read && new Date(this.sentAt.getTime() + read.ttlMs);
    if (!idPattern.test(this.id))
      this.fault = 'its id has other characters than letters, digits, dashes and underscores';
    else if (read === undefined) this.fault = 'it has no head';
  }

  get isSettled(): boolean {
    return this.#isSettled;
  }

  // Bound, as whoever is handed a delivery may take its functions off it.
  readonly reply = async (...parts: readonly JsonText[]): Promise<void> => {
    const [first] = parts;
    const body = parts.length === 1 && first !== undefined ? toBuffer(first) : joined(...parts);
    const { journal, connection, names, from, now, sweep } = this.#parts;
    if (journal.isKept(from.mailbox, this.id, body)) return;
    if (body.length > messageBytesMax) throw tooLarge('reply', body.length);
    const receipt = await connection.keep(`${names.mail}${this.id}.${this.seq}-${this.deliveries}`, body);
    if (receipt.kind === 'full')
      throw new HostError('insufficient_storage', `the replies of mailbox '${from.mailbox}' are full: ${receipt.why}`, {
        hint: 'its worker does not take them, or the bounds of its streams are too small',
      });
    if (receipt.kind === 'there') return;
    const endMs = Math.max(now().getTime(), this.deadlineAt?.getTime() ?? now().getTime() + endlessMs);
    sweep({ stream: names.replyStream, seq: receipt.seq }, new Date(endMs + mailGraceMs));
  };

  readonly answer = async (...parts: readonly JsonText[]): Promise<void> => {
    await this.reply(...parts);
    this.ack();
  };

  readonly refuse = async (...parts: readonly JsonText[]): Promise<void> => {
    if (this.#isSettled) throw notOwed();
    // Told only, it could be lost with the connection: the request would come again, and run, after its worker heard that it did not.
    await this.#parts.connection.ask(this.#ackSubject, '+ACK');
    this.#over();
    await this.reply(...parts);
  };

  readonly ack = (): void => this.#settle('+ACK');

  readonly release = (delayMs: number, reason: string): void => {
    if (this.#isSettled) return;
    const { connection, allNames, from } = this.#parts;
    // Not waited for: a reason that is lost stands in the dead letter as a delivery without one.
    if (this.fault === undefined)
      connection.tell(allNames.reason(from.mailbox, this.id), `${this.deliveries}: ${reason.slice(0, reasonChars)}`);
    this.giveBack(delayMs);
  };

  /** As if it had not been handed out here. */
  giveBack(delayMs: number): void {
    this.#settle(`-NAK {"delay":${Math.max(1, Math.round(delayMs * 1_000_000))}}`);
  }

  /** It is still being worked on. */
  extend(): void {
    if (!this.#isSettled) this.#parts.connection.tell(this.#ackSubject, '+WPI');
  }

  #settle(word: string): void {
    if (this.#isSettled) return;
    this.#parts.connection.tell(this.#ackSubject, word);
    this.#over();
  }

  #over(): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    const { journal, from } = this.#parts;
    journal.forget(from.mailbox, this.id);
    this.#settled(this);
  }
}
