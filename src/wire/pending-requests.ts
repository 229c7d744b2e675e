/**
 * Requests that wait for an answer, by id or by progress token.
 * Not here: settling them (peer.ts), attributing server requests to them (attribution.ts).
 * Invariant: progress or a cancel for a request that was not written yet is ignored, because the server guessed its id.
 */

import type { Cancel, Clock } from '../kernel/clock.js';
import type { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import type { OutboundFrame } from './channel.js';
import { IdTable } from './id-table.js';
import type { InboundRequest } from './inbound-requests.js';
import { memberText } from './json-members.js';
import { isSessionRequest } from './methods.js';
import type { Answer, RequestOptions } from './peer-interface.js';
import { refused, tooManyPending } from './wire-errors.js';

export interface PendingRequest {
  readonly frame: OutboundFrame;
  readonly options: RequestOptions;
  readonly done: (outcome: Answer | HostError) => void;
  readonly onAbort: (() => void) | undefined;
  deadlineAtMs: number;
  /** Open server requests that this request caused; undefined if there was none. */
  serverRequests: Set<InboundRequest> | undefined;
  askedAtMs: number;
  /** The server has sent a request because of this one, or may have. */
  wasAsked: boolean;
}

/** A larger batch saves nothing. */
const batchFramesMax = 16;
/** Decay per request: a peak is forgotten after several hundred calls. */
const peakDecay = 1 / 256;

export class PendingRequests {
  readonly byId = new IdTable<PendingRequest>();
  /** Requests by a progress token that is not their id. */
  readonly #byToken = new Map<number, PendingRequest>();
  /** Number of requests with `isLongLived`. */
  #longLived = 0;
  /** Recent maximum of `unanswered`; decays with each request. */
  #peakUnanswered = 0;

  get size(): number {
    return this.byId.size;
  }

  get unanswered(): number {
    return this.byId.size - this.#longLived;
  }

  /** Like `unanswered`, without requests of this method, e.g. probes. */
  unansweredBesides(method: string): number {
    let count = 0;
    this.byId.forEach(({ frame, options }) => {
      if (!options.isLongLived && frame.method !== method) count++;
    });
    return count;
  }

  /**
   * Number of frames to write together: a quarter of the requests that are usually unanswered. The server works on one part while
   * callers prepare the next. The peak is used, because callers that were answered together send their next requests one by one.
   */
  nextBatch(): number {
    const { unanswered } = this;
    this.#peakUnanswered =
      unanswered >= this.#peakUnanswered ? unanswered : this.#peakUnanswered - this.#peakUnanswered * peakDecay;
    return Math.min(batchFramesMax, Math.max(1, Math.round(this.#peakUnanswered / 4)));
  }

  /** Frames that the server cannot have read completely. */
  unread(): OutboundFrame[] {
    const frames: OutboundFrame[] = [];
    this.byId.forEach(({ frame }) => {
      if (frame.phase === 'queued' || frame.phase === 'writing') frames.push(frame);
    });
    return frames;
  }

  /** Whether the server may work on a request. Long-lived requests and session requests do not count. */
  get isAtWork(): boolean {
    return this.isAtWorkBefore(Number.POSITIVE_INFINITY);
  }

  /** The same for requests with a smaller id. */
  isAtWorkBefore(id: number): boolean {
    let found = false;
    this.byId.forEach(({ frame, options }) => {
      if (Number(frame.id) >= id) return;
      if (frame.phase !== 'queued' && !options.isLongLived && !isSessionRequest(frame.method)) found = true;
    });
    return found;
  }

  due(nowMs: number): { unsent: PendingRequest[]; sent: PendingRequest[]; nextAtMs: number } {
    const unsent: PendingRequest[] = [];
    const sent: PendingRequest[] = [];
    let nextAtMs = Number.POSITIVE_INFINITY;
    for (const pending of this.byId.values()) {
      if (pending.deadlineAtMs > nowMs) nextAtMs = Math.min(nextAtMs, pending.deadlineAtMs);
      else (pending.frame.phase === 'queued' ? unsent : sent).push(pending);
    }
    return { unsent, sent, nextAtMs };
  }

  add(pending: PendingRequest): void {
    const { frame, options } = pending;
    this.byId.set(frame.id as number, pending);
    if (options.isLongLived) this.#longLived++;
    if (options.progressToken !== undefined) this.#byToken.set(options.progressToken, pending);
  }

  delete({ frame, options }: PendingRequest): void {
    this.byId.delete(frame.id as number);
    if (options.isLongLived) this.#longLived--;
    if (options.progressToken !== undefined) this.#byToken.delete(options.progressToken);
  }

  has(pending: PendingRequest): boolean {
    return this.byId.get(pending.frame.id as number) === pending;
  }

  /** Returns the request of a progress notification. Tokens are numbers, so `"7"` is not one. */
  findByProgress(params: Buffer): PendingRequest | undefined {
    const text = memberText(params, 'progressToken');
    if (text === undefined) return undefined;
    const token = Number(text);
    return written(this.#byToken.get(token) ?? this.byId.get(token));
  }

  findByCancel(params: Buffer): PendingRequest | undefined {
    const idText = memberText(params, 'requestId');
    return idText === undefined ? undefined : written(this.byId.get(Number(idText)));
  }
}

const written = (pending: PendingRequest | undefined): PendingRequest | undefined =>
  pending?.frame.phase === 'queued' ? undefined : pending;

const stepMs = 10;

/**
 * One timer for any number of deadlines. Deadlines within `stepMs` share a wake-up. The owner stores the deadlines, and may
 * move one later without notifying the timer.
 * The timer may be late, by a step or while the event loop is blocked. `expireDue` checks at once.
 */
export class Deadlines {
  readonly #clock: Clock;
  readonly #expire: (nowMs: number) => number;
  /** Lower bound of all deadlines. */
  #earliestMs = Number.POSITIVE_INFINITY;
  #wakeAtMs = Number.POSITIVE_INFINITY;
  #cancel: Cancel | undefined;

  /** `expire` ends all due requests and returns the earliest remaining deadline, or infinity. */
  constructor(clock: Clock, expire: (nowMs: number) => number) {
    this.#clock = clock;
    this.#expire = expire;
  }

  add(atMs: number): void {
    if (atMs < this.#earliestMs) this.#earliestMs = atMs;
    if (atMs < this.#wakeAtMs) this.#wakeAt(atMs);
  }

  expireDue(): void {
    if (this.#clock.nowMs() >= this.#earliestMs) this.#wake();
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#earliestMs = Number.POSITIVE_INFINITY;
    this.#wakeAtMs = Number.POSITIVE_INFINITY;
  }

  #wakeAt(atMs: number): void {
    this.#cancel?.();
    this.#wakeAtMs = atMs;
    this.#cancel = this.#clock.at(atMs, () => this.#wake());
  }

  #wake(): void {
    const nowMs = this.#clock.nowMs();
    this.#cancel?.();
    this.#cancel = undefined;
    this.#earliestMs = this.#wakeAtMs = Number.POSITIVE_INFINITY;
    const earliest = this.#expire(nowMs);
    if (earliest === Number.POSITIVE_INFINITY) return;
    this.add(Math.max(earliest, nowMs + stepMs));
    this.#earliestMs = Math.min(this.#earliestMs, earliest);
  }
}

/** Time that a conforming server needs to stop after the notification. It never answers a cancelled request. */
export const notifiedMs = 5_000;
/** Without a notification the server may continue its work. */
export const unnotifiedMs = 5 * 60_000;
const abandonedMax = 1_000;

/** How the server learns that a request was given up: by this frame, by the end of its stream, or (undefined) not at all. */
export type CancelNotice = OutboundFrame | 'stream_ended' | undefined;

interface Abandoned {
  untilMs: number;
  readonly notice: CancelNotice;
  readonly client: string | undefined;
}

/**
 * Requests that the peer gave up while the server may still work on them. Any of them may have caused an unattributed message,
 * so the message cannot be attributed to another request.
 * Invariants: an entry ends with its late answer or its time. The time of a cancelled request starts after the cancel
 * notification was written. Requests beyond `abandonedMax` are not stored; together they count as one entry, which ends when the
 * newest of them would have ended.
 */
export class AbandonedRequests {
  readonly #clock: Clock;
  readonly #byId = new Map<number, Abandoned>();
  /** Time until which requests beyond `abandonedMax` may still be the cause of a message. */
  #overflowUntilMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(id: number, notice: CancelNotice, client: string | undefined): void {
    const untilMs = this.#clock.nowMs() + (notice === undefined ? unnotifiedMs : notifiedMs);
    if (this.#byId.size >= abandonedMax && this.count >= abandonedMax)
      this.#overflowUntilMs = Math.max(this.#overflowUntilMs, untilMs);
    else this.#byId.set(id, { untilMs, notice, client });
  }

  answered(id: number): { readonly client: string | undefined } | undefined {
    const abandoned = this.#byId.get(id);
    this.#byId.delete(id);
    return abandoned;
  }

  get count(): number {
    if (this.#byId.size === 0 && this.#overflowUntilMs === Number.NEGATIVE_INFINITY) return 0;
    const nowMs = this.#clock.nowMs();
    for (const [id, abandoned] of this.#byId) {
      const { notice } = abandoned;
      // The server has not seen a notification that is still queued.
      if (typeof notice === 'object' && notice.phase === 'queued') abandoned.untilMs = nowMs + notifiedMs;
      else if (abandoned.untilMs <= nowMs) this.#byId.delete(id);
    }
    return this.#byId.size + (this.#overflowUntilMs > nowMs ? 1 : 0);
  }
}

/** Returns why a request is not sent: cancelled, past its deadline, or too many. `pending`: number of unanswered requests. */
export function refusalOf(
  server: string,
  method: string,
  { deadlineAtMs, signal, nowMs }: RequestOptions,
  pending: number,
  clock: Clock,
): HostError | undefined {
  if (signal?.aborted) return refused(server, 'cancelled', `${method} was cancelled before it was sent`);
  // The comparison is negated so that a deadline of NaN counts as passed.
  if (!(deadlineAtMs > (nowMs ?? clock.nowMs())))
    return refused(server, 'timeout', `${method} was past its deadline before it was sent`);
  return pending >= LIMITS.pendingRequests ? tooManyPending(server) : undefined;
}
