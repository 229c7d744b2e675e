/**
 * One message out of the stream of a mailbox's requests, with one request in it or a bundle of them.
 * Not here: what is done with each (nats-delivery.ts), how bundles are written (nats-bundle.ts).
 *
 * Invariants: the message is acknowledged when every request in it is over; if one of them is to come again, the message is,
 * when the others are over or the server's wait for our word is.
 */
import { idPattern, ttlMsMax } from '../ports.js';
import { isBundle, readRequests } from './nats-bundle.js';
import { ClaimLog } from './nats-claim-log.js';
import { bufferOf, type NatsMessage } from './nats-connection.js';
import { type Carrier, type DeliveryParts, NatsDelivery } from './nats-delivery.js';

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

const strangeId = 'its id has other characters than letters, digits, dashes and underscores';

export class NatsParcel implements Carrier {
  readonly parts: DeliveryParts;
  readonly deliveries: number;
  readonly seq: number;
  readonly sentAt: Date;
  readonly bundle: ClaimLog | undefined;
  /** In the order they were sent. One with a fault is alone, and has the whole message as its body. */
  readonly requests: readonly NatsDelivery[];
  /** The server handed it out anew meanwhile: its coming again is not ours to ask for. */
  isStale = false;
  readonly #ackSubject: string;
  readonly #onSettled: (delivery: NatsDelivery, parcel: NatsParcel) => void;
  #left: number;
  #isConfirmed = false;
  #againMs: number | undefined;

  constructor(
    { reply = '', subject, data }: NatsMessage,
    parts: DeliveryParts,
    onSettled: (delivery: NatsDelivery, parcel: NatsParcel) => void,
  ) {
    this.parts = parts;
    this.#onSettled = onSettled;
    this.#ackSubject = reply;
    // $JS.ACK.<stream>.<consumer>.<deliveries>.<seq>.<consumer seq>.<ns>.<pending>; newer servers put two tokens before.
    const tokens = reply.split('.');
    const first = tokens.length > 9 ? 6 : 4;
    this.deliveries = Number(tokens[first]);
    this.seq = Number(tokens[first + 1]);
    const sentMs = Number(tokens[first + 3]?.slice(0, -6));
    this.sentAt = new Date(sentMs);
    const id = subject.slice(parts.names.requests.length);
    const payload = bufferOf(data);
    const bundled = isBundle(payload) && idPattern.test(id) ? readRequests(payload) : undefined;
    if (bundled !== undefined) {
      const endsAt = new Date(sentMs + Math.max(...bundled.map(({ ttlMs }) => ttlMs)));
      this.bundle = new ClaimLog(id, endsAt, new Set(bundled.map((each) => each.id)));
      this.requests = bundled.map((each) => new NatsDelivery(this, each.id, each.body, new Date(sentMs + each.ttlMs)));
    } else {
      const read = readHead(payload);
      const fault = idPattern.test(id) ? (read ? undefined : 'it has no head, and is no bundle') : strangeId;
      const body = fault === undefined && read ? read.body : payload;
      this.requests = [new NatsDelivery(this, id, body, read && new Date(sentMs + read.ttlMs), fault)];
    }
    this.#left = this.requests.length;
  }

  get isOver(): boolean {
    return this.#left === 0;
  }

  /** All of it, as if it had not been handed out here. */
  giveBack(delayMs: number): void {
    for (const request of this.requests) request.giveBack(delayMs);
  }

  /** It is still being worked on. If something of it is to come again, the server's wait ends that at the latest. */
  extend(): void {
    if (!this.isOver && this.#againMs === undefined) this.parts.connection.tell(this.#ackSubject, '+WPI');
  }

  async confirm(): Promise<void> {
    await this.parts.connection.ask(this.#ackSubject, '+ACK');
    this.#isConfirmed = true;
  }

  settled(delivery: NatsDelivery, againMs: number | undefined): void {
    this.#left--;
    if (againMs !== undefined) this.#againMs = Math.max(againMs, this.#againMs ?? 0);
    if (this.#left === 0) this.#sayOver();
    this.#onSettled(delivery, this);
  }

  #sayOver(): void {
    const { connection } = this.parts;
    if (this.#isConfirmed) return;
    if (this.#againMs !== undefined) {
      const delayNs = Math.max(1, Math.round(this.#againMs * 1_000_000));
      if (!this.isStale) connection.tell(this.#ackSubject, `-NAK {"delay":${delayNs}}`);
    } else if (this.bundle !== undefined) connection.tellSoon(this.#ackSubject, '+ACK');
    // At once: a caller that has its answer may use its key again, which is not taken while this is there.
    else connection.tell(this.#ackSubject, '+ACK');
  }
}
