/**
 * Bounds the running and the waiting operations of one server; beyond both bounds an operation is refused. The wait is fair
 * between principals, counts against the deadline, and ends when the caller cancels.
 * Not here: the order of the queue (kernel/fair-queue.ts), calls per time (rate-limit.ts).
 *
 * Invariants: a slot passes to the next operation in one tick, so at most `runningMax` are in use. Each operation releases its
 * slot exactly once. An operation that leaves the queue was not sent.
 */
import type { Cancel, Clock } from '../kernel/clock.js';
import { type ErrorCode, HostError, type HostErrorOptions } from '../kernel/errors.js';
import { FairQueue } from '../kernel/fair-queue.js';
import { RefusalPacer } from '../kernel/refusal-pacer.js';
import { type Back, embedder, isCall, namesOf, type Operation, type Send, type Stage } from './operation.js';

export const defaultConcurrencyPlan = {
  runningMax: 64,
  waitingMax: 1_024,
  /** Bound of the wait, even if the deadline is later. */
  waitMsMax: 60_000,
};
export type ConcurrencyPlan = Readonly<typeof defaultConcurrencyPlan>;

/** Called with no argument when the operation has a slot, otherwise with its refusal. */
type Settle = (refusal?: HostError) => void;

interface Waiter {
  readonly operation: Operation;
  readonly settle: Settle;
  readonly untilMs: number;
  onAbort: (() => void) | undefined;
}

export class CallSlots {
  /** Tool calls that reached this stage, for `status`; cached answers do not. */
  calls = 0;
  readonly #clock: Clock;
  readonly #plan: ConcurrencyPlan;
  readonly #queue: FairQueue<Waiter>;
  #running = 0;
  #isHandingOn = false;
  #cancelTimer: Cancel | undefined;
  #timerAtMs = Number.POSITIVE_INFINITY;
  readonly #refusals: RefusalPacer;

  constructor(clock: Clock, plan: ConcurrencyPlan = defaultConcurrencyPlan) {
    this.#clock = clock;
    this.#plan = plan;
    this.#queue = new FairQueue(plan.waitingMax);
    this.#refusals = new RefusalPacer(clock);
  }

  get running(): number {
    return this.#running;
  }

  get waiting(): number {
    return this.#queue.size;
  }

  /** True if this operation would be refused now. */
  isFullFor(operation: Operation): boolean {
    return this.#running >= this.#plan.runningMax && !this.#queue.admits(partyOf(operation));
  }

  /** Takes a free slot for a call of the current tick: the fast path of nearly every call, which reads no clock. */
  tryTake(operation: Operation): boolean {
    if (!operation.isFresh || this.#running >= this.#plan.runningMax) return false;
    if (operation.madeAtMs >= operation.deadlineAtMs || operation.signal?.aborted) return false;
    this.#running++;
    return true;
  }

  /** Calls `settle` with a slot, immediately if one is free. No slot is taken after an error. */
  take(operation: Operation, settle: Settle): void {
    if (operation.signal?.aborted) return settle(cancelled(operation));
    const nowMs = operation.isFresh ? operation.madeAtMs : this.#clock.nowMs();
    if (nowMs >= operation.deadlineAtMs) return settle(tooLate(operation));
    // While a slot is free the queue is empty, because `give` passes a released slot on in the same tick.
    if (this.#running >= this.#plan.runningMax) return this.#wait(operation, nowMs, settle);
    this.#running++;
    settle();
  }

  give(): void {
    this.#running--;
    // An operation that ends immediately calls `give` inside this loop. The outer loop then serves the next waiter.
    if (this.#queue.size === 0 || this.#isHandingOn) return;
    this.#isHandingOn = true;
    try {
      while (this.#running < this.#plan.runningMax && this.#handOn());
    } finally {
      this.#isHandingOn = false;
    }
  }

  refuse(operation: Operation, settle: Settle): void {
    this.#refusals.run(() => settle(full(operation, this.#plan)), operation.deadlineAtMs);
  }

  #handOn(): boolean {
    const waiter = this.#queue.shift();
    if (!waiter) return false;
    this.#unwatch(waiter);
    if (this.#clock.nowMs() >= waiter.operation.deadlineAtMs) waiter.settle(tooLate(waiter.operation));
    else {
      this.#running++;
      waiter.settle();
    }
    return true;
  }

  #wait(operation: Operation, nowMs: number, settle: Settle): void {
    const { deadlineAtMs, signal } = operation;
    const untilMs = Math.min(deadlineAtMs, nowMs + this.#plan.waitMsMax);
    const waiter: Waiter = { operation, settle, untilMs, onAbort: undefined };
    const admittance = this.#queue.push(partyOf(operation), waiter);
    if (!admittance.admitted) return this.refuse(operation, settle);
    if (signal) {
      waiter.onAbort = () => this.#leave(waiter, cancelled(operation));
      signal.addEventListener('abort', waiter.onAbort, { once: true });
    }
    if (untilMs < this.#timerAtMs) this.#arm(untilMs);
    const { displaced } = admittance;
    if (!displaced) return;
    this.#unwatch(displaced);
    this.refuse(displaced.operation, displaced.settle);
  }

  #leave(waiter: Waiter, error: HostError): void {
    if (!this.#queue.delete(partyOf(waiter.operation), waiter)) return;
    this.#unwatch(waiter);
    waiter.settle(error);
  }

  #unwatch({ operation, onAbort }: Waiter): void {
    if (onAbort) operation.signal?.removeEventListener('abort', onAbort);
    if (this.#queue.size === 0) this.#disarm();
  }

  #arm(atMs: number): void {
    this.#cancelTimer?.();
    this.#timerAtMs = atMs;
    this.#cancelTimer = this.#clock.at(atMs, () => this.#expire());
  }

  #disarm(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#timerAtMs = Number.POSITIVE_INFINITY;
  }

  /** The timer was set for the earliest waiter, which may have left. */
  #expire(): void {
    this.#disarm();
    const nowMs = this.#clock.nowMs();
    let nextMs = Number.POSITIVE_INFINITY;
    for (const waiter of [...this.#queue]) {
      if (waiter.untilMs <= nowMs) this.#leave(waiter, tooLate(waiter.operation));
      else nextMs = Math.min(nextMs, waiter.untilMs);
    }
    if (nextMs < this.#timerAtMs && this.#queue.size > 0) this.#arm(nextMs);
  }
}

/** One key is one party. All clients of the operator, such as relays, have one principal, so each of them is one party. */
const partyOf = ({ principal, relay }: Operation): string =>
  principal === embedder && relay?.instance !== undefined ? `${principal.id}\0${relay.instance}` : principal.id;

/**
 * Refuses an operation if the queue is full, before the operation is charged. `mayBeAnswered`: the cache may have the answer,
 * so the operation is not refused here.
 * `slotsOf` returns undefined for an unknown server, which a later stage reports.
 */
export const refuseFull = (
  slotsOf: (server: string) => CallSlots | undefined,
  mayBeAnswered: (operation: Operation) => boolean,
): Stage => ({
  enter: (next, back) => (operation) => {
    const slots = slotsOf(operation.server);
    if (!slots?.isFullFor(operation) || mayBeAnswered(operation)) return next(operation);
    slots.refuse(operation, (refusal) => back(operation, refusal as HostError));
  },
});

export const concurrency = (slotsOf: (server: string) => CallSlots): Stage => ({
  enter: (next, back) => (operation) => {
    const slots = slotsOf(operation.server);
    operation.stage.slots = slots;
    if (operation.kind === 'call') slots.calls++;
    if (slots.tryTake(operation)) next(operation);
    else takeLater(slots, operation, next, back);
  },
  leave: (back) => (operation, outcome) => {
    operation.stage.slots?.give();
    back(operation, outcome);
  },
});

/** Hoisted: a closure in `enter` would be allocated on every call. */
const takeLater = (slots: CallSlots, operation: Operation, next: Send, back: Back): void =>
  slots.take(operation, (refusal) => (refusal ? back(operation, refusal) : next(operation)));

/** Includes the request id of a call, so that `ownError` need not copy the error. */
const unsent = (code: ErrorCode, operation: Operation, what: string, options: HostErrorOptions): HostError =>
  new HostError(code, `server '${operation.server}': ${what}`, {
    ...namesOf(operation),
    ...(isCall(operation) ? { requestId: operation.requestId } : {}),
    phase: 'queued',
    execution: 'not_executed',
    ...options,
  });

const cancelled = (operation: Operation) =>
  unsent('cancelled', operation, 'the call was cancelled before it was sent', { hint: 'it did not run' });

const tooLate = (operation: Operation) =>
  unsent('timeout', operation, 'the deadline passed while the call was queued', {
    reason: 'queue',
    hint: 'it did not run and can be sent again; if this lasts, raise `concurrency` of the server',
  });

const full = (operation: Operation, { runningMax, waitingMax }: ConcurrencyPlan) =>
  unsent('overloaded', operation, `${runningMax} calls run and ${waitingMax} wait already`, {
    reason: 'queue',
    limit: waitingMax,
    hint: 'it did not run and can be sent again when others have finished',
  });
