/**
 * At most so many operations of one server run, at most so many wait; past that an operation is refused.
 * Waiting is fair between principals, counts against the deadline, and ends when the caller leaves.
 * Not here: the order of the queue (kernel/fair-queue.ts), how many calls a principal may make (rate-limit.ts).
 *
 * Invariants: a slot is taken and handed on in one tick, so that there are never more than `runningMax`; each operation gives its
 * slot back exactly once; an operation that leaves the queue has not been sent; one timer serves the whole queue.
 */
import type { Cancel, Clock } from '../kernel/clock.js';
import { type ErrorCode, HostError, type HostErrorOptions } from '../kernel/errors.js';
import { FairQueue } from '../kernel/fair-queue.js';
import { isCall, namesOf, type Operation, type Over, type Send, type Stage } from './operation.js';

export interface ConcurrencyPlan {
  readonly runningMax: number;
  readonly waitingMax: number;
  /** An operation with a later deadline waits no longer than this. */
  readonly waitMsMax: number;
}

export const defaultConcurrencyPlan: ConcurrencyPlan = { runningMax: 64, waitingMax: 1_024, waitMsMax: 60_000 };

/**
 * Refusals reported within `refusalTickMs`; the rest follow in the next ones. A client that repeats refused calls at once would
 * otherwise keep the host busy with refusals, and answers of the server would wait behind them.
 */
const refusalsPerTick = 32;
const refusalTickMs = 5;
/** Past this many delayed refusals, half a second of them, the next ones are reported at once. */
const delayedMax = 3_200;
/** The longest delay. An operation whose deadline is nearer is refused at once. */
const refusalDelayMsMax = (delayedMax / refusalsPerTick) * refusalTickMs;

/** With a slot, or with the error of a refusal. */
type Settle = (refusal?: HostError) => void;

interface Waiter {
  readonly operation: Operation;
  readonly settle: Settle;
  readonly untilMs: number;
  onAbort: (() => void) | undefined;
}

/** The slots of one server. */
export class CallSlots {
  readonly #clock: Clock;
  readonly #plan: ConcurrencyPlan;
  readonly #queue: FairQueue<Waiter>;
  #running = 0;
  #isHandingOn = false;
  #cancelTimer: Cancel | undefined;
  #timerAtMs = Number.POSITIVE_INFINITY;
  /** Refusals in this tick, and those for the next ones. */
  #refusals = 0;
  #delayed: Array<() => void> = [];

  constructor(clock: Clock, plan: ConcurrencyPlan = defaultConcurrencyPlan) {
    this.#clock = clock;
    this.#plan = plan;
    this.#queue = new FairQueue(plan.waitingMax);
  }

  get running(): number {
    return this.#running;
  }

  get waiting(): number {
    return this.#queue.size;
  }

  /** Whether an operation of this principal would be refused now. */
  isFullFor(principalId: string): boolean {
    return this.#running >= this.#plan.runningMax && !this.#queue.admits(principalId);
  }

  /** For a call of this very tick, if a slot is free: the path of nearly every call, which reads no clock. */
  tryTake(operation: Operation): boolean {
    if (!operation.isFresh || this.#running >= this.#plan.runningMax) return false;
    if (operation.madeAtMs >= operation.deadlineAtMs || operation.signal?.aborted) return false;
    this.#running++;
    return true;
  }

  /** Settles with a slot, at once if one is free; with an error no slot is taken. */
  take(operation: Operation, settle: Settle): void {
    if (operation.signal?.aborted) return settle(cancelled(operation));
    const nowMs = operation.isFresh ? operation.madeAtMs : this.#clock.nowMs();
    if (nowMs >= operation.deadlineAtMs) return settle(tooLate(operation));
    // While a slot is free the queue is empty: a slot that is given back is handed on at once.
    if (this.#running >= this.#plan.runningMax) return this.#wait(operation, nowMs, settle);
    this.#running++;
    settle();
  }

  give(): void {
    this.#running--;
    // An operation that ends at once gives its slot back in the middle of this: one loop serves them all.
    if (this.#queue.size === 0 || this.#isHandingOn) return;
    this.#isHandingOn = true;
    try {
      while (this.#running < this.#plan.runningMax && this.#handOn());
    } finally {
      this.#isHandingOn = false;
    }
  }

  refuse(operation: Operation, settle: Settle): void {
    const isDelayed =
      this.#refusals >= refusalsPerTick &&
      this.#delayed.length < delayedMax &&
      operation.deadlineAtMs - this.#clock.nowMs() > refusalDelayMsMax;
    if (isDelayed) {
      this.#delayed.push(() => settle(full(operation, this.#plan)));
      return;
    }
    if (this.#refusals++ === 0) setTimeout(() => this.#nextTick(), refusalTickMs);
    settle(full(operation, this.#plan));
  }

  #nextTick(): void {
    this.#refusals = 0;
    for (const refuse of this.#delayed.splice(0, refusalsPerTick)) {
      this.#refusals++;
      refuse();
    }
    if (this.#refusals > 0) setTimeout(() => this.#nextTick(), refusalTickMs);
  }

  /** False when the queue is empty. */
  #handOn(): boolean {
    const waiter = this.#queue.shift();
    if (!waiter) return false;
    this.#unwatch(waiter);
    // The timer may be late.
    if (this.#clock.nowMs() >= waiter.operation.deadlineAtMs) waiter.settle(tooLate(waiter.operation));
    else {
      this.#running++;
      waiter.settle();
    }
    return true;
  }

  #wait(operation: Operation, nowMs: number, settle: Settle): void {
    const { principal, deadlineAtMs, signal } = operation;
    const untilMs = Math.min(deadlineAtMs, nowMs + this.#plan.waitMsMax);
    const waiter: Waiter = { operation, settle, untilMs, onAbort: undefined };
    const admittance = this.#queue.push(principal.id, waiter);
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
    if (!this.#queue.delete(waiter.operation.principal.id, waiter)) return;
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

  /** The timer is set for the earliest waiter, which may have left since. */
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

/**
 * Refuses an operation that the queue of its server would refuse, before it is charged. Not one that `mayBeAnswered` without the
 * server. Undefined from `slotsOf`: the server is unknown, which a later stage reports.
 */
export const refuseFull = (
  slotsOf: (server: string) => CallSlots | undefined,
  mayBeAnswered: (operation: Operation) => boolean,
): Stage => ({
  enter: (next, back) => (operation) => {
    const slots = slotsOf(operation.server);
    if (!slots?.isFullFor(operation.principal.id) || mayBeAnswered(operation)) return next(operation);
    slots.refuse(operation, (refusal) => back(operation, refusal as HostError));
  },
});

export const concurrency = (slotsOf: (server: string) => CallSlots): Stage => ({
  enter: (next, back) => (operation) => {
    const slots = slotsOf(operation.server);
    operation.stage.slots = slots;
    if (slots.tryTake(operation)) next(operation);
    else takeLater(slots, operation, next, back);
  },
  leave: (back) => (operation, outcome) => {
    operation.stage.slots?.give();
    back(operation, outcome);
  },
});

/** Hoisted: a closure in `enter` would be allocated on every call. */
const takeLater = (slots: CallSlots, operation: Operation, next: Send, back: Over): void =>
  slots.take(operation, (refusal) => (refusal ? back(operation, refusal) : next(operation)));

/** With the id of a call, so that no copy of the error is made for it later. */
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
