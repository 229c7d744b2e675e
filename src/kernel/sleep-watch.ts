/**
 * Detects that the machine slept: during sleep the monotonic clock stops and the clock since boot goes on, so their difference grows.
 * Wall time is not used, because people and NTP set it. There is no timer: each call compares the clocks.
 * Not here: what a sleep means (supervisor/correlated-failures.ts).
 */
import type { Clock } from './clock.js';

export class SleepWatch {
  readonly #clock: Clock;
  #asleepMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#asleepMs = this.#read();
  }

  /** How long the machine slept since the last call, exact to about 1 s. */
  sleptMs(): number {
    const before = this.#asleepMs;
    this.#asleepMs = this.#read();
    return Math.max(0, this.#asleepMs - before);
  }

  #read(): number {
    const { sinceBootMs } = this.#clock;
    return sinceBootMs === undefined ? 0 : sinceBootMs.call(this.#clock) - this.#clock.nowMs();
  }
}
