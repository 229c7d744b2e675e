/**
 * One timer for any number of deadlines: it is set to the earliest, and what falls due within one step is handled by one
 * wake-up. The deadlines themselves stay with whoever waits; they may move later without a word to the timer.
 * A timer may be late, by a step or as long as the loop stands still: who must not be asks before it acts.
 */
import type { Cancel, Clock } from '../kernel/clock.js';

const stepMs = 10;

export class Deadlines {
  readonly #clock: Clock;
  readonly #expire: (nowMs: number) => number;
  /** None is before it. */
  #earliestMs = Number.POSITIVE_INFINITY;
  #wakeAtMs = Number.POSITIVE_INFINITY;
  #cancel: Cancel | undefined;

  /** `expire` ends what is due and returns the earliest deadline that is left, or infinity. */
  constructor(clock: Clock, expire: (nowMs: number) => number) {
    this.#clock = clock;
    this.#expire = expire;
  }

  /** There is a deadline at this time now. */
  add(atMs: number): void {
    if (atMs < this.#earliestMs) this.#earliestMs = atMs;
    if (atMs < this.#wakeAtMs) this.#wakeAt(atMs);
  }

  /** Ends what is due by now, without waiting for the timer. */
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
