/**
 * Delays refusals under overload. A client that repeats refused requests at once would otherwise take the CPU time that answers
 * of accepted requests need: with 4,000 requests in flight over stdio, successes per second fall to a third.
 * Invariant: at most `delayedMax` refusals are delayed, each for at most `refusalDelayMsMax`.
 */
import type { Clock } from './clock.js';
import { Fifo } from './fair-queue.js';

/** Refusals per `tickMs`; the rest are delayed. */
const refusalsPerTick = 32;
const tickMs = 5;
/** Maximum of delayed refusals: as many as run in half a second. Further refusals run at once. */
const delayedMax = 3_200;
/** The longest delay. A request whose deadline is nearer is refused at once. */
const refusalDelayMsMax = (delayedMax / refusalsPerTick) * tickMs;

export class RefusalPacer {
  readonly #clock: Clock;
  #delayed = new Fifo<() => void>();
  /** Number of refusals in this tick. */
  #count = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  run(refuse: () => void, deadlineAtMs = Number.POSITIVE_INFINITY): void {
    const isDelayed =
      this.#count >= refusalsPerTick &&
      this.#delayed.size < delayedMax &&
      deadlineAtMs - this.#clock.nowMs() > refusalDelayMsMax;
    if (isDelayed) {
      this.#delayed.push(refuse);
      return;
    }
    if (this.#count++ === 0) this.#planTick();
    refuse();
  }

  /** Runs all delayed refusals now. */
  flush(): void {
    const delayed = this.#delayed;
    this.#delayed = new Fifo();
    for (const refuse of delayed) refuse();
  }

  #planTick(): void {
    this.#clock.at(this.#clock.nowMs() + tickMs, () => this.#nextTick());
  }

  #nextTick(): void {
    this.#count = 0;
    for (let left = Math.min(refusalsPerTick, this.#delayed.size); left > 0; left--) {
      this.#count++;
      this.#delayed.shift()?.();
    }
    if (this.#count > 0) this.#planTick();
  }
}
