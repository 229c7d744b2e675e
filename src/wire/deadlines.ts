/**
 * One timer for any number of deadlines: it is set to the earliest, and what falls due within one step is handled by one
 * wake-up. The deadlines themselves stay with whoever waits; they may move later without a word to the timer.
 */
import type { Cancel, Clock } from '../kernel/clock.js';

const stepMs = 10;

export class Deadlines {
  readonly #clock: Clock;
  readonly #expire: (nowMs: number) => number;
  #wakeAtMs = Number.POSITIVE_INFINITY;
  #cancel: Cancel | undefined;

  /** `expire` ends what is due and returns the earliest deadline that is left, or infinity. */
  constructor(clock: Clock, expire: (nowMs: number) => number) {
    this.#clock = clock;
    this.#expire = expire;
  }

  /** There is a deadline at this time now. */
  add(atMs: number): void {
    if (atMs < this.#wakeAtMs) this.#wakeAt(atMs);
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#wakeAtMs = Number.POSITIVE_INFINITY;
  }

  #wakeAt(atMs: number): void {
    this.#cancel?.();
    this.#wakeAtMs = atMs;
    this.#cancel = this.#clock.at(atMs, () => this.#wake());
  }

  #wake(): void {
    const nowMs = this.#clock.nowMs();
    this.#cancel = undefined;
    this.#wakeAtMs = Number.POSITIVE_INFINITY;
    const earliest = this.#expire(nowMs);
    if (earliest !== Number.POSITIVE_INFINITY) this.add(Math.max(earliest, nowMs + stepMs));
  }
}
