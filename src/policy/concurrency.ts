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
import type { Call, Stage } from './call.js';
import { FairQueue } from './fair-queue.js';

export interface ConcurrencyPlan {
  readonly runningMax: number;
  readonly waitingMax: number;
}

export const defaultConcurrencyPlan: ConcurrencyPlan = { runningMax: 64, waitingMax: 1_024 };

interface Waiter {
  readonly call: Call;
  start(): void;
  refuse(error: HostError): void;
}

/** The places of one server. */
export class CallSlots {
  readonly #clock: Clock;
  readonly #plan: ConcurrencyPlan;
  readonly #queue: FairQueue<Waiter>;
  #running = 0;

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

  /** Undefined: the place is taken. Otherwise it is when the promise resolves; after a refusal nothing is held. */
  take(call: Call): Promise<void> | undefined {
    if (call.signal?.aborted) throw cancelled(call);
    if (this.#clock.nowMs() >= call.deadlineAtMs) throw tooLate(call);
    // Nobody waits while a place is free: whoever gives one back hands it on.
    if (this.#running < this.#plan.runningMax) {
      this.#running++;
      return undefined;
    }
    return this.#wait(call);
  }

  give(): void {
    this.#running--;
    while (this.#running < this.#plan.runningMax) {
      const waiter = this.#queue.shift();
      if (!waiter) return;
      // Its timer may be late.
      if (this.#clock.nowMs() >= waiter.call.deadlineAtMs) {
        waiter.refuse(tooLate(waiter.call));
        continue;
      }
      this.#running++;
      waiter.start();
    }
  }

  #wait(call: Call): Promise<void> {
    const party = call.principal.id;
    return new Promise((resolve, reject) => {
      const stopWatching = () => {
        cancelTimer();
        call.signal?.removeEventListener('abort', abort);
      };
      const waiter: Waiter = {
        call,
        start() {
          stopWatching();
          resolve();
        },
        refuse(error) {
          stopWatching();
          reject(error);
        },
      };
      const admittance = this.#queue.push(party, waiter);
      if (!admittance.admitted) throw full(call, this.#plan);
      admittance.displaced?.refuse(full(admittance.displaced.call, this.#plan));

      const leave = (error: HostError) => {
        if (this.#queue.delete(party, waiter)) waiter.refuse(error);
      };
      const abort = () => leave(cancelled(call));
      const cancelTimer = this.#clock.at(call.deadlineAtMs, () => leave(tooLate(call)));
      call.signal?.addEventListener('abort', abort, { once: true });
    });
  }
}

export const concurrency =
  (slotsOf: (server: string) => CallSlots): Stage =>
  (next) =>
  async (call) => {
    const slots = slotsOf(call.server);
    const place = slots.take(call);
    if (place !== undefined) await place;
    try {
      // The caller may have left between being given the place and being here.
      if (call.signal?.aborted) throw cancelled(call);
      return await next(call);
    } finally {
      slots.give();
    }
  };

const unsent = (code: ErrorCode, call: Call, what: string, options: HostErrorOptions): HostError =>
  new HostError(code, `server '${call.server}': ${what}`, {
    server: call.server,
    tool: call.tool,
    phase: 'queued',
    execution: 'not_executed',
    ...options,
  });

const cancelled = (call: Call) =>
  unsent('cancelled', call, 'the call was cancelled before it was sent', { hint: 'it did not run' });

const tooLate = (call: Call) =>
  unsent('timeout', call, 'the deadline passed while the call waited for its turn', {
    reason: 'queue',
    hint: 'it did not run and can be sent again; if this lasts, allow the server more calls at a time',
  });

const full = (call: Call, { runningMax, waitingMax }: ConcurrencyPlan) =>
  unsent('overloaded', call, `${runningMax} calls run and ${waitingMax} wait already`, {
    reason: 'queue',
    limit: waitingMax,
    hint: 'it did not run and can be sent again when others have finished',
  });
