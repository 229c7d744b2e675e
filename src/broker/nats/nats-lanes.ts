/**
 * How requests come out of their streams: each mailbox has a lane with a window of its own, and lanes are handed out in turn, so
 * that a flood in one does not hold up another. What is here or handed out is kept ours while it lasts.
 * Not here: what a request is (nats-delivery.ts), what it comes in (nats-parcel.ts), who serves it.
 *
 * Invariants: no more than `window` are handed out at a time, and of one lane no more than `laneHandedOut`; a lane holds at most
 * `laneWindow`, asked for included, as far as can be told before bundles are opened: after requests that came alone there may be
 * as many bundles in their place, of no more than `pullBytes`; a lane that is closed gives back all it has, handed out or not:
 * nobody says any more that it is still ours.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { NatsConnection, NatsMessage } from './nats-connection.js';
import type { NatsDelivery } from './nats-delivery.js';
import { hostsConsumer, type MailboxNames } from './nats-names.js';
import type { NatsParcel } from './nats-parcel.js';
import type { Windows } from './nats-windows.js';

export interface LaneParts extends Windows {
  readonly connection: NatsConnection;
  readonly clock: Clock;
  readonly ackWaitMs: number;
  readonly handOut: (delivery: NatsDelivery) => void;
  /** A stream or consumer went away under us. */
  readonly lost: (why: string) => void;
}

/** Bytes asked for in one go: more would come at once than anybody can hold. */
const pullBytes = 16 * 1024 * 1024;
const pullMs = 30_000;
/** More come in the next turn of the loop: what is to be said of the first ones goes out before. */
const handedOutPerTurn = 64;
/** How many smaller messages it takes until smaller ones are reckoned with. */
const slowness = 8;
/** After it, a pull that said nothing of its end is taken for over. */
const pullSlackMs = 2_000;
const pullAgainMs = 1_000;
/** What is given back comes again after this. At once, a server that finds nobody waiting may lose count of it. */
export const handOverMs = 200;

interface Pull {
  left: number;
  readonly untilMs: number;
}

class Lane {
  readonly queue: NatsDelivery[] = [];
  readonly handedOut = new Set<NatsDelivery>();
  /** Messages that are not over, by their number in the stream. */
  readonly parcels = new Map<number, NatsParcel>();
  readonly pulls = new Map<number, Pull>();
  nextPull = 1;
  /** Messages. */
  asked = 0;
  /** Requests in a message, lately. */
  perMessage = 1;
  isWaiting = false;
  /** It is among those whose turn comes. */
  hasTurn = false;
  isOpen = true;
  end: Cancel = () => {};

  constructor(
    readonly names: MailboxNames,
    readonly inbox: string,
    readonly make: (message: NatsMessage, settled: (delivery: NatsDelivery, parcel: NatsParcel) => void) => NatsParcel,
  ) {}
}

export class NatsLanes {
  readonly #parts: LaneParts;
  readonly #lanes = new Map<string, Lane>();
  /** Lanes with something in their queue that may be handed out, whose turn it is first. */
  readonly #turns: Lane[] = [];
  #handedOut = 0;
  #isPumping = false;
  #willPump = false;
  #stopTick: Cancel;

  constructor(parts: LaneParts) {
    this.#parts = parts;
    this.#stopTick = this.#nextTick();
  }

  get handedOut(): number {
    return this.#handedOut;
  }

  has(mailbox: string): boolean {
    return this.#lanes.has(mailbox);
  }

  open(names: MailboxNames, make: Lane['make']): void {
    const { connection } = this.#parts;
    const lane = new Lane(names, connection.newInbox(), make);
    this.#lanes.set(names.mailbox, lane);
    lane.end = connection.subscribe(`${lane.inbox}.*`, (message) => this.#came(lane, message));
    this.#pull(lane);
  }

  /** What runs of it has a claim, and its result goes by that; what was not begun is not ours to begin any more. */
  close(mailbox: string): void {
    const lane = this.#lanes.get(mailbox);
    if (lane === undefined) return;
    this.#lanes.delete(mailbox);
    lane.isOpen = false;
    lane.end();
    const turn = this.#turns.indexOf(lane);
    if (turn >= 0) this.#turns.splice(turn, 1);
    for (const delivery of [...lane.queue.splice(0), ...lane.handedOut]) delivery.giveBack(handOverMs);
  }

  closeAll(): void {
    this.#stopTick();
    // What one lane gives back makes no room for another that is closed next.
    this.#turns.length = 0;
    for (const mailbox of [...this.#lanes.keys()]) this.close(mailbox);
  }

  #came(lane: Lane, message: NatsMessage): void {
    // Only what the server says itself has nothing to answer to: headers of a request are its worker's, and say nothing.
    if (!message.reply) return this.#ended(lane, message);
    lane.asked = Math.max(0, lane.asked - 1);
    for (const [number, pull] of lane.pulls) {
      if (--pull.left <= 0) lane.pulls.delete(number);
      break;
    }
    // On its way when the lane was closed: left alone, it would come again only after the wait for our word.
    if (!lane.isOpen) return lane.make(message, () => {}).giveBack(handOverMs);
    const parcel = lane.make(message, (delivery, its) => this.#settled(lane, delivery, its));
    const count = parcel.requests.length;
    lane.perMessage = count >= lane.perMessage ? count : lane.perMessage - (lane.perMessage - count) / slowness;
    const before = lane.parcels.get(parcel.seq);
    if (before !== undefined) before.isStale = true;
    lane.parcels.set(parcel.seq, parcel);
    lane.queue.push(...parcel.requests);
    this.#takeTurn(lane);
    this.#pump();
    this.#pull(lane);
  }

  #ended(lane: Lane, { subject, headers }: NatsMessage): void {
    if (!lane.isOpen || headers === undefined || headers.code < 400) return;
    this.#forget(lane, Number(subject.slice(subject.lastIndexOf('.') + 1)));
    const said = headers.description;
    if (headers.code === 503 || /deleted|push based/i.test(said))
      return this.#parts.lost(`${lane.names.requestStream}: ${said}`);
    // Its time was over, or its bytes: go on. Anything else is a bound of the server, which does not go away at once.
    if (headers.code === 408 || /MaxBytes/i.test(said)) return this.#pull(lane);
    if (lane.isWaiting) return;
    lane.isWaiting = true;
    this.#parts.clock.at(this.#parts.clock.nowMs() + pullAgainMs, () => {
      lane.isWaiting = false;
      this.#pull(lane);
    });
  }

  #forget(lane: Lane, number: number): void {
    const pull = lane.pulls.get(number);
    if (pull === undefined) return;
    lane.pulls.delete(number);
    lane.asked = Math.max(0, lane.asked - pull.left);
  }

  #pull(lane: Lane): void {
    const { laneWindow, connection, clock } = this.#parts;
    if (!lane.isOpen || lane.isWaiting) return;
    const free = laneWindow - lane.queue.length - lane.handedOut.size - lane.asked * lane.perMessage;
    // In halves: a pull for each request would double the messages.
    if (free <= 0 || (lane.asked > 0 && free < laneWindow / 2)) return;
    const count = Math.max(1, Math.floor(free / lane.perMessage));
    const number = lane.nextPull++;
    // One that is still open brings what comes first: the next is in no hurry.
    const isUrgent = lane.asked === 0;
    lane.asked += count;
    lane.pulls.set(number, { left: count, untilMs: clock.nowMs() + pullMs + pullSlackMs });
    connection[isUrgent ? 'tell' : 'tellSoon'](
      `$JS.API.CONSUMER.MSG.NEXT.${lane.names.requestStream}.${hostsConsumer}`,
      `{"batch":${count},"expires":${pullMs * 1_000_000},"max_bytes":${pullBytes}}`,
      `${lane.inbox}.${number}`,
    );
  }

  #pump(): void {
    // Whoever settles within `handOut` comes back here: the loop below goes on with what that made free.
    if (this.#isPumping || this.#willPump) return;
    this.#isPumping = true;
    try {
      this.#handOutAll();
    } finally {
      this.#isPumping = false;
    }
  }

  #handOutAll(): void {
    const { window, handOut } = this.#parts;
    for (let count = 0; this.#handedOut < window; count++) {
      if (count === handedOutPerTurn) return this.#pumpLater();
      const lane = this.#turns.shift();
      if (lane === undefined) break;
      lane.hasTurn = false;
      const delivery = lane.queue.shift();
      if (delivery === undefined) continue;
      lane.handedOut.add(delivery);
      this.#handedOut++;
      this.#takeTurn(lane);
      handOut(delivery);
    }
  }

  /** After the others; not while it has as many as it may: bundles bring more than was asked for. */
  #takeTurn(lane: Lane): void {
    if (lane.hasTurn || lane.queue.length === 0 || lane.handedOut.size >= this.#parts.laneHandedOut) return;
    lane.hasTurn = true;
    this.#turns.push(lane);
  }

  #pumpLater(): void {
    if (this.#willPump) return;
    this.#willPump = true;
    setImmediate(() => {
      this.#willPump = false;
      this.#pump();
    });
  }

  #settled(lane: Lane, delivery: NatsDelivery, parcel: NatsParcel): void {
    if (parcel.isOver && lane.parcels.get(parcel.seq) === parcel) lane.parcels.delete(parcel.seq);
    if (!lane.handedOut.delete(delivery)) return;
    this.#handedOut--;
    if (lane.isOpen) this.#takeTurn(lane);
    this.#pump();
    this.#pull(lane);
  }

  #nextTick(): Cancel {
    const { clock, ackWaitMs } = this.#parts;
    return clock.at(clock.nowMs() + ackWaitMs / 3, () => {
      this.#stopTick = this.#nextTick();
      const nowMs = clock.nowMs();
      for (const lane of this.#lanes.values()) {
        for (const parcel of lane.parcels.values()) parcel.extend();
        for (const [number, { untilMs }] of lane.pulls) if (untilMs < nowMs) this.#forget(lane, number);
        this.#pull(lane);
      }
    });
  }
}
