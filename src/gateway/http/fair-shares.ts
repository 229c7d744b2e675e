/**
 * Counts who holds how many of a bounded number of places, and decides whether a key gets one more. Pure but for the clock.
 * Not here: what a place is (open-exchanges.ts), connections, whose key is not known at first (connection-shares.ts).
 *
 * Invariants: never more places than `max`. A key below a quarter of them gets every free place. A key above its quarter gets
 * one only while no other key wants it: alone it may take all; while others hold places, a quarter of the table is kept free
 * for keys below their quarter; for a while after such a key was refused, none at all.
 */
import { setBounded } from '../../kernel/bounded-map.js';
import type { Clock } from '../../kernel/clock.js';

/** How long a key that was refused counts as wanting a place: clients are asked to retry after 1 s. */
export const wantedMs = 10_000;
/** Keys whose refusal is remembered. */
const refusedMax = 1_000;

export class FairShares {
  readonly #max: number;
  readonly #quarter: number;
  readonly #clock: Clock;
  readonly #held = new Map<string, number>();
  #size = 0;
  /** Keys below their quarter that found no place, with the time of their last refusal. */
  readonly #refused = new Map<string, number>();

  constructor(max: number, clock: Clock) {
    this.#max = max;
    this.#quarter = Math.max(1, Math.floor(max / 4));
    this.#clock = clock;
  }

  get size(): number {
    return this.#size;
  }

  /** Whether this key may take one more place now. */
  admits(key: string): boolean {
    const own = this.#held.get(key) ?? 0;
    const isFull = this.#size >= this.#max;
    if (own < this.#quarter) {
      if (isFull) setBounded(this.#refused, key, this.#clock.nowMs(), refusedMax);
      return !isFull;
    }
    if (isFull || this.#isWanted()) return false;
    return own === this.#size || this.#size < this.#max - this.#quarter;
  }

  take(key: string): void {
    this.#size++;
    this.#held.set(key, (this.#held.get(key) ?? 0) + 1);
    if (this.#refused.size > 0) this.#refused.delete(key);
  }

  giveBack(key: string): void {
    const left = (this.#held.get(key) ?? 0) - 1;
    this.#size--;
    if (left > 0) this.#held.set(key, left);
    else this.#held.delete(key);
  }

  /** Whether a key below its quarter was refused lately and has not had a place since. */
  #isWanted(): boolean {
    const beforeMs = this.#clock.nowMs() - wantedMs;
    for (const [key, atMs] of this.#refused) {
      if (atMs > beforeMs) return true;
      this.#refused.delete(key);
    }
    return false;
  }
}
