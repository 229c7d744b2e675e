/**
 * Requests that we gave up although the server may still be working on them. While there is one, nothing that the server says
 * on its own can be laid at the door of another request: it may be the forgotten one that speaks.
 *
 * Invariants: a ghost goes when its late answer comes or its time is over; when there are more than can be told apart, the
 * doubt stays for as long as the newest of them would.
 */
import type { Clock } from '../kernel/clock.js';

/** A server that is still at it after this long is not asked about it any more. */
const ghostMs = 5 * 60_000;
const ghostsMax = 1_000;

export class Ghosts {
  readonly #clock: Clock;
  /** When each is forgotten, by id; the first goes first. */
  readonly #untilMs = new Map<number, number>();
  /** Until when there are some that found no place. */
  #crowdedUntilMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(id: number): void {
    const untilMs = this.#clock.nowMs() + ghostMs;
    if (this.count >= ghostsMax) this.#crowdedUntilMs = untilMs;
    else this.#untilMs.set(id, untilMs);
  }

  /** The server is done with it. */
  answered(id: number): void {
    this.#untilMs.delete(id);
  }

  get count(): number {
    if (this.#untilMs.size === 0 && this.#crowdedUntilMs === Number.NEGATIVE_INFINITY) return 0;
    const nowMs = this.#clock.nowMs();
    for (const [id, untilMs] of this.#untilMs) {
      if (untilMs > nowMs) break;
      this.#untilMs.delete(id);
    }
    return this.#untilMs.size + (this.#crowdedUntilMs > nowMs ? 1 : 0);
  }
}
