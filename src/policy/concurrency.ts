/**
 * At most so many calls of one server run, at most so many wait; past that a call is refused at once.
 * Waiting is fair between principals, counts against the call's deadline, and ends when its caller leaves.
 * Not here: the order of those who wait (fair-queue.ts), how many calls somebody may make at all (call-budget.ts).
 *
 * Invariants: a place is taken and handed on in one tick, so that there are never more than `runningMax`; each call gives its
 * place back exactly once, whatever it ends with; a call that leaves the queue has not been sent.
 */
import type { Clock } from '../kernel/clock.js';
import { type ErrorCode, HostError, type HostErrorOptions } from '../kernel/errors.js';
import { FairQueue } from '../kernel/fair-queue.js';
import { namesOf, type Operation, type Over, type Send, type Stage } from './operation.js';

export interface ConcurrencyPlan {
  readonly runningMax: number;
  readonly waitingMax: number;
  /** A call that may take long need not wait for its turn as long. */
  readonly waitMsMax: number;
}

export const defaultConcurrencyPlan: ConcurrencyPlan = { runningMax: 64, waitingMax: 1_024, waitMsMax: 60_000 };

/** What the queue knows of whoever waits. */
export type Waiting = Pick<Operation, 'principal' | 'server' | 'tool' | 'deadlineAtMs' | 'signal'>;

interface Waiter {
  readonly call: Waiting;
  /** With the place, or the error it is refused with. */
  readonly settle: (error?: HostError) => void;
  stopWatching(): void;
}

/** The places of one server. */
export class CallSlots {
  readonly #clock: Clock;
  readonly #plan: ConcurrencyPlan;
  readonly #queue: FairQueue<Waiter>;
  #running = 0;
  #isHandingOn = false;

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

  /** For a call of this very tick, if a place is free: the way of nearly every call, without a look at the clock. */
  tryTake(call: Operation): boolean {
    if (!call.isFresh || this.#running >= this.#plan.runningMax) return false;
    if (call.madeAtMs >= call.deadlineAtMs || call.signal?.aborted) return false;
    this.#running++;
    return true;
  }

  /** Tells when the place is taken, at once if one is free; with an error nothing is held. */
  take(call: Waiting, settle: (refusal?: HostError) => void): void {
    if (call.signal?.aborted) return settle(cancelled(call));
    if (this.#clock.nowMs() >= call.deadlineAtMs) return settle(tooLate(call));
    // Nobody waits while a place is free: whoever gives one back hands it on.
    if (this.#running >= this.#plan.runningMax) return this.#wait(call, settle);
    this.#running++;
    settle();
  }

  give(): void {
    this.#running--;
    if (this.#queue.size === 0) return;
    // A waiter that is over at once gives back in the middle of this: one loop serves them all, however many there are.
    if (this.#isHandingOn) return;
    this.#isHandingOn = true;
    try {
      while (this.#running < this.#plan.runningMax && this.#handOn());
    } finally {
      this.#isHandingOn = false;
    }
  }

  /** False when nobody waits. */
  #handOn(): boolean {
    const waiter = this.#queue.shift();
    if (!waiter) return false;
    waiter.stopWatching();
    // Its timer may be late.
    if (this.#clock.nowMs() >= waiter.call.deadlineAtMs) waiter.settle(tooLate(waiter.call));
    else {
      this.#running++;
      waiter.settle();
    }
    return true;
  }

  #wait(call: Waiting, settle: (refusal?: HostError) => void): void {
    const party = call.principal.id;
    const leave = (error: HostError) => {
      if (!this.#queue.delete(party, waiter)) return;
      waiter.stopWatching();
      settle(error);
    };
    const abort = () => leave(cancelled(call));
    let cancelTimer = () => {};
    const waiter: Waiter = {
      call,
      settle,
      stopWatching: () => {
        cancelTimer();
        call.signal?.removeEventListener('abort', abort);
      },
    };
    const admittance = this.#queue.push(party, waiter);
    if (!admittance.admitted) return settle(full(call, this.#plan));
    const untilMs = Math.min(call.deadlineAtMs, this.#clock.nowMs() + this.#plan.waitMsMax);
    cancelTimer = this.#clock.at(untilMs, () => leave(tooLate(call)));
    call.signal?.addEventListener('abort', abort, { once: true });
    const { displaced } = admittance;
    displaced?.stopWatching();
    displaced?.settle(full(displaced.call, this.#plan));
  }
}

export const concurrency = (slotsOf: (server: string) => CallSlots): Stage => ({
  enter: (next, back) => (call) => {
    const slots = slotsOf(call.server);
    call.stage.slots = slots;
    if (slots.tryTake(call)) next(call);
    else takeTurn(slots, call, next, back);
  },
  leave: (back) => (call, outcome) => {
    call.stage.slots?.give();
    back(call, outcome);
  },
});

/** Apart, for what it captures is made for every call where it stands. */
const takeTurn = (slots: CallSlots, call: Operation, next: Send, back: Over): void =>
  slots.take(call, (refusal) => (refusal ? back(call, refusal) : next(call)));

const unsent = (code: ErrorCode, call: Waiting, what: string, options: HostErrorOptions): HostError =>
  new HostError(code, `server '${call.server}': ${what}`, {
    ...namesOf(call),
    phase: 'queued',
    execution: 'not_executed',
    ...options,
  });

const cancelled = (call: Waiting) =>
  unsent('cancelled', call, 'the call was cancelled before it was sent', { hint: 'it did not run' });

const tooLate = (call: Waiting) =>
  unsent('timeout', call, 'the deadline passed while the call waited for its turn', {
    reason: 'queue',
    hint: 'it did not run and can be sent again; if this lasts, allow the server more calls at a time',
  });

const full = (call: Waiting, { runningMax, waitingMax }: ConcurrencyPlan) =>
  unsent('overloaded', call, `${runningMax} calls run and ${waitingMax} wait already`, {
    reason: 'queue',
    limit: waitingMax,
    hint: 'it did not run and can be sent again when others have finished',
  });
