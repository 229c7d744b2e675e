/**
 * One timer for any number of deadlines. Deadlines within `stepMs` share a wake-up. The owner stores the deadlines, and may
 * move one later without notifying the timer.
 * The timer may be late, by a step or while the event loop is blocked. `expireDue` checks at once.
 */
import type { Cancel, Clock } from '../kernel/clock.js';

const stepMs = 10;

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
