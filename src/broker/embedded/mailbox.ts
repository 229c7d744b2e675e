/**
 * One mailbox as a state machine: what waits, what is handed out to whom, what rests after it was given back, what is being
 * answered, and what is dead.
 * Not here: the disk and the connection (postbox.ts), how many messages a mailbox may hold.
 *
 * Invariants: a message has at most one holder, named by an epoch (the connection) and a lease (the handing out), and only
 * that holder ends it; the end of an epoch that is over changes nothing; of one sender nothing overtakes what was not yet
 * handed out.
 */
import { backoffMs } from '../../kernel/backoff.js';
import type { Sender } from '../ports.js';
import type { Mail } from '../store-port.js';
import type { Held } from './client-frames.js';
import { FairLines } from './fair-lines.js';
import type { Subscriber } from './subscriber.js';

export interface Entry {
  readonly seq: number;
  readonly id: string;
  readonly type: 'request' | 'reply';
  readonly from: Sender;
  readonly bytes: number;
  readonly sentAtMs: number;
  readonly expiresAtMs: number | undefined;
  /** So far. */
  deliveries: number;
  /** Who had it last, if that one said who it is. */
  holder: string | undefined;
  /** Its holder lost its connection over it. */
  wasCut: boolean;
  /** How often a holder that lost its connection had it again over the next one. */
  returns: number;
  /** How often in a row it could not be sent to whoever was to have it, because the disk did not take that it was. */
  unsent: number;
  /** The disk was told of its next handing out already: the last one was not sent. */
  isCountTold: boolean;
  /** It was in the hands of somebody else than whoever has it, or had it last. */
  wasElsewhere: boolean;
  readonly reasons: string[];
  /** Whoever sent it does not want it any more, and whoever gets it hears so first. */
  isCancelled: boolean;
  /** With the answer that is on its way to the disk it is over: until that is known, nobody else gets it. */
  isEnding: boolean;
  state: EntryState;
  /** Undefined: on disk only. */
  body: Buffer | undefined;
  /** The body is counted against a budget. */
  isKept: boolean;
}

type EntryState =
  | { readonly kind: 'waiting' }
  | { readonly kind: 'held'; readonly lease: string }
  /** Its holder is gone, and its answer on the way to the disk. */
  | { readonly kind: 'ending' }
  | { readonly kind: 'resting'; readonly dueMs: number };

/** Somebody has it, or has answered it. */
export const isInHands = ({ state }: Entry): boolean => state.kind === 'held' || state.kind === 'ending';

const waiting: EntryState = { kind: 'waiting' };

/** More often, and it is taken for what cuts the connection. */
export const returnsMax = 32;

export interface MailboxRules {
  readonly deliveries: number;
  readonly redeliverMs: { readonly first: number; readonly max: number };
}

export type MailboxReader = Pick<Subscriber, 'epoch' | 'holder' | 'window' | 'windowOfOne'>;

/** Given back, and what came of it. */
export type Returned = { readonly entry: Entry; readonly isDead: boolean };

export class Mailbox {
  readonly #rules: MailboxRules;
  readonly #entries = new Map<number, Entry>();
  readonly #lines = new FairLines<Entry>();
  readonly #resting = new Set<Entry>();
  readonly #held = new Map<number, Entry>();
  readonly #heldOf = new Map<string, number>();
  /** Requests, by sender and id. */
  readonly #requests = new Map<string, Entry>();
  #subscriber: MailboxReader | undefined;
  #leases = 0;

  constructor(rules: MailboxRules) {
    this.#rules = rules;
  }

  get size(): number {
    return this.#entries.size;
  }
  get heldCount(): number {
    return this.#held.size;
  }
  get epoch(): string | undefined {
    return this.#subscriber?.epoch;
  }

  get(seq: number): Entry | undefined {
    return this.#entries.get(seq);
  }
  entries(): IterableIterator<Entry> {
    return this.#entries.values();
  }

  /** Nothing when it is here already. */
  add(entry: Entry): void {
    if (this.#entries.has(entry.seq)) return;
    this.#entries.set(entry.seq, entry);
    if (entry.type === 'request') this.#requests.set(nameOf(entry.from.mailbox, entry.id), entry);
    this.#wait(entry);
  }

  /** Whoever had it before is over, with all it held. */
  subscribe(subscriber: MailboxReader): void {
    if (this.#subscriber) throw new Error('the subscriber before must be ended first');
    this.#subscriber = subscriber;
  }

  /** Undefined when it was not the subscriber (any more): then nothing changes. */
  unsubscribe(epoch: string, reason: string): readonly Returned[] | undefined {
    if (this.#subscriber?.epoch !== epoch) return undefined;
    this.#subscriber = undefined;
    const held = [...this.#held.values()];
    return held.flatMap((entry) => {
      entry.wasCut = true;
      return this.#giveBack(entry, reason, undefined) ?? [];
    });
  }

  /**
   * The next to hand out; undefined when nothing waits, nobody is there, or the window is full. The same until it changes. Who
   * has its share of the window is passed over.
   */
  next(): Entry | undefined {
    if (!this.#subscriber || this.#held.size >= this.#subscriber.window) return undefined;
    const { windowOfOne } = this.#subscriber;
    return this.#lines.peek((sender) => (this.#heldOf.get(sender) ?? 0) >= windowOfOne);
  }

  held(): IterableIterator<Entry> {
    return this.#held.values();
  }

  /** To the subscriber. */
  handOut(entry: Entry): string {
    const { epoch, holder } = this.#subscriber ?? {};
    if (epoch === undefined || !this.#lines.take(entry.from.mailbox, entry)) throw new Error('it does not wait');
    const lease = `${epoch}.${++this.#leases}`;
    entry.state = { kind: 'held', lease };
    // Who does not say who it is may be anybody.
    if (entry.deliveries > 0 && (holder === undefined || holder !== entry.holder)) entry.wasElsewhere = true;
    // The same process goes on with it, over another connection: nobody was handed it anew.
    const isBack = entry.wasCut && holder !== undefined && holder === entry.holder && entry.returns++ < returnsMax;
    if (!isBack) entry.deliveries++;
    entry.holder = holder;
    entry.wasCut = false;
    this.#held.set(entry.seq, entry);
    this.#heldOf.set(entry.from.mailbox, (this.#heldOf.get(entry.from.mailbox) ?? 0) + 1);
    return lease;
  }

  /** Undefined when whoever says so does not hold it. */
  ack(held: Held, epoch: string): Entry | undefined {
    const entry = this.heldBy(held, epoch);
    if (entry) this.forget(entry);
    return entry;
  }

  /** False when whoever says so does not hold it; undefined when it is being answered, and nothing comes of it yet. */
  release(held: Held, epoch: string, delayMs: number, reason: string, nowMs: number): Returned | false | undefined {
    const entry = this.heldBy(held, epoch);
    if (!entry) return false;
    const { first, max } = this.#rules.redeliverMs;
    const growingMs = backoffMs(first, entry.deliveries - 1, max);
    return this.#giveBack(entry, reason, nowMs + Math.min(Math.max(delayMs, growingMs), max));
  }

  /**
   * Its holder never saw it: as if it had not been handed out, but for a rest. `isCounted`: whether that was one more. False when it
   * has another holder, or none.
   */
  notSent(held: Held, epoch: string, isCounted: boolean, nowMs: number): boolean {
    const entry = this.heldBy(held, epoch);
    if (!entry) return false;
    if (isCounted) {
      entry.deliveries--;
      entry.isCountTold = true;
    } else {
      entry.returns--;
      entry.wasCut = true;
    }
    this.#unhold(entry);
    const { first, max } = this.#rules.redeliverMs;
    this.#waitAgain(entry, nowMs + backoffMs(first, entry.unsent++, max));
    return true;
  }

  /** Its holder answers it. Until `forget` or `notEnded` nobody else gets it. */
  ending(held: Held, epoch: string): Entry | undefined {
    const entry = this.heldBy(held, epoch);
    if (entry) entry.isEnding = true;
    return entry;
  }

  /** There is no such answer. What its holder gave back meanwhile is given back now: undefined when it still has it. */
  notEnded(entry: Entry): Returned | undefined {
    entry.isEnding = false;
    if (entry.state.kind !== 'ending' || this.#entries.get(entry.seq) !== entry) return undefined;
    return this.#isDead(entry) ? { entry, isDead: true } : this.#waitAgain(entry, undefined);
  }

  request(sender: string, id: string): Entry | undefined {
    return this.#requests.get(nameOf(sender, id));
  }

  forget(entry: Entry): void {
    this.#remove(entry);
    this.#unhold(entry);
    this.#resting.delete(entry);
    if (entry.state.kind === 'waiting') this.#lines.take(entry.from.mailbox, entry);
  }

  /** What has rested enough waits again. */
  wake(nowMs: number): void {
    for (const entry of [...this.#resting]) {
      if (entry.state.kind === 'resting' && entry.state.dueMs > nowMs) continue;
      this.#resting.delete(entry);
      this.#wait(entry);
    }
  }

  nextDueMs(): number | undefined {
    let next: number | undefined;
    for (const { state } of this.#resting)
      if (state.kind === 'resting' && (next === undefined || state.dueMs < next)) next = state.dueMs;
    return next;
  }

  #remove(entry: Entry): void {
    this.#entries.delete(entry.seq);
    const name = nameOf(entry.from.mailbox, entry.id);
    if (this.#requests.get(name) === entry) this.#requests.delete(name);
  }

  #unhold({ seq, from }: Entry): void {
    if (!this.#held.delete(seq)) return;
    const left = (this.#heldOf.get(from.mailbox) ?? 1) - 1;
    if (left > 0) this.#heldOf.set(from.mailbox, left);
    else this.#heldOf.delete(from.mailbox);
  }

  #wait(entry: Entry): void {
    entry.state = waiting;
    this.#lines.add(entry.from.mailbox, entry);
  }

  heldBy({ seq, lease }: Held, epoch: string): Entry | undefined {
    if (this.#subscriber?.epoch !== epoch) return undefined;
    const entry = this.#held.get(seq);
    return entry?.state.kind === 'held' && entry.state.lease === lease ? entry : undefined;
  }

  #giveBack(entry: Entry, reason: string, dueMs: number | undefined): Returned | undefined {
    this.#unhold(entry);
    entry.reasons.push(reason);
    if (entry.isEnding) {
      entry.state = { kind: 'ending' };
      return undefined;
    }
    return this.#isDead(entry) ? { entry, isDead: true } : this.#waitAgain(entry, dueMs);
  }

  #isDead(entry: Entry): boolean {
    if (entry.deliveries < this.#rules.deliveries) return false;
    this.#remove(entry);
    return true;
  }

  #waitAgain(entry: Entry, dueMs: number | undefined): Returned {
    if (dueMs === undefined) {
      this.#wait(entry);
    } else {
      entry.state = { kind: 'resting', dueMs };
      this.#resting.add(entry);
    }
    return { entry, isDead: false };
  }
}

/** Neither has a space in it. */
const nameOf = (sender: string, id: string): string => `${sender} ${id}`;

export const entryOf = ({ seq, id, kind, from, body, sentAtMs, expiresAtMs, deliveries }: Mail): Entry => ({
  ...{ seq, id, type: kind, from, bytes: body.length, sentAtMs, expiresAtMs, deliveries },
  holder: undefined,
  wasCut: false,
  returns: 0,
  unsent: 0,
  isCountTold: false,
  // Of what was handed out before this process began, nobody remembers to whom.
  wasElsewhere: deliveries > 0,
  reasons: [],
  isCancelled: false,
  isEnding: false,
  state: { kind: 'waiting' },
  body: undefined,
  isKept: false,
});
