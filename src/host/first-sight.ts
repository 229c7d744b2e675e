/**
 * Whoever lists all servers right after the start waits a little, once, for those of which nothing is known yet.
 * Not here: starting them (discovery.ts).
 *
 * Invariant: nobody waits longer than `firstSightMsMax` after the first who asked, and when that is over nobody waits again.
 */
import type { Clock } from '../kernel/clock.js';

export const firstSightMsMax = 5_000;

export class FirstSight {
  readonly #clock: Clock;
  /** Never rejects; undefined when there is nothing to wait for. */
  #seen: Promise<void> | undefined;
  #waiting: Promise<void> | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Each settles when those that it is about were seen, or could not be. */
  begin(sightings: readonly (Promise<void> | undefined)[]): void {
    const awaited = sightings.filter((sighting) => sighting !== undefined);
    if (awaited.length > 0) this.#seen = Promise.allSettled(awaited).then(() => this.#over());
  }

  /** Undefined: there is nothing to wait for, or not any more. */
  wait(): Promise<void> | undefined {
    if (!this.#seen) return undefined;
    this.#waiting ??= this.#waitFor(this.#seen);
    return this.#waiting;
  }

  #waitFor(seen: Promise<void>): Promise<void> {
    return new Promise((resolve) => {
      const over = () => {
        cancel();
        this.#over();
        resolve();
      };
      const cancel = this.#clock.at(this.#clock.nowMs() + firstSightMsMax, over);
      void seen.then(over);
    });
  }

  #over(): void {
    this.#seen = undefined;
    this.#waiting = undefined;
  }
}
