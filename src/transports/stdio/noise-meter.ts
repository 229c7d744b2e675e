/**
 * Tells whether a server keeps writing to stdout what is no message: more than twenty such lines within a minute.
 * A few are normal (a banner at the start); a stream of them means its log goes to the wrong place.
 */
import type { Clock } from '../../kernel/clock.js';

const linesMax = 20;
const windowMs = 60_000;

export class NoiseMeter {
  readonly #clock: Clock;
  /** The times of the last twenty-one junk lines, in a ring. */
  readonly #timesMs = new Float64Array(linesMax + 1).fill(Number.NEGATIVE_INFINITY);
  #next = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  count(lines: number): void {
    const nowMs = this.#clock.nowMs();
    for (let i = 0; i < Math.min(lines, linesMax + 1); i++) {
      this.#timesMs[this.#next] = nowMs;
      this.#next = (this.#next + 1) % (linesMax + 1);
    }
  }

  get noisy(): boolean {
    return this.#clock.nowMs() - (this.#timesMs[this.#next] as number) <= windowMs;
  }
}
