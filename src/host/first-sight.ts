/**
 * Whoever lists servers right after the start waits a little, once, for those among them of which nothing is known yet.
 * Not here: starting them (discovery.ts).
 *
 * Invariants: nobody waits longer than `firstSightMsMax` after the first who asked, and when that time is over nobody waits again;
 * nobody waits for a server that it does not ask for; who only watches starts no time. Servers may come in several lots, such as
 * those that a gateway wants to know of later: that an earlier lot was seen says nothing about the next.
 */
import type { Clock } from '../kernel/clock.js';
import { type Deferred, deferred } from '../kernel/deferred.js';

export const firstSightMsMax = 1_000;

/** By server: settles when it was seen, or could not be. */
export type Sightings = ReadonlyMap<string, Promise<void>>;

export class FirstSight {
  readonly #clock: Clock;
  /** None rejects. */
  readonly #unseen = new Map<string, Promise<void>>();
  #allSeen = deferred();
  /** Runs from the first who asked. */
  #limit: Deferred | undefined;
  #cancel: (() => void) | undefined;
  #isOver = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  begin(...sightings: readonly Sightings[]): void {
    for (const [server, sighting] of sightings.flatMap((some) => [...some])) {
      const settled = () => {
        if (this.#unseen.get(server) === seen) this.#unseen.delete(server);
        if (this.#unseen.size === 0) this.#over();
      };
      const seen: Promise<void> = sighting.then(settled, settled);
      this.#unseen.set(server, seen);
    }
  }

  /** Until these were seen, or all. Undefined: there is nothing to wait for, or not any more. */
  wait(servers: readonly string[] = [...this.#unseen.keys()]): Promise<void> | undefined {
    if (this.#isOver) return undefined;
    const awaited = servers.flatMap((server) => this.#unseen.get(server) ?? []);
    if (awaited.length === 0) return undefined;
    this.#limit ??= this.#arm();
    return Promise.race([Promise.all(awaited).then(() => {}), this.#limit.promise]);
  }

  /** For who only watches, however long it takes: all were seen. Undefined: they are. */
  whenSeen(): Promise<void> | undefined {
    return this.#unseen.size === 0 ? undefined : this.#allSeen.promise;
  }

  #arm(): Deferred {
    const limit = deferred();
    this.#cancel = this.#clock.at(this.#clock.nowMs() + firstSightMsMax, () => {
      this.#isOver = true;
      limit.resolve();
    });
    return limit;
  }

  #over(): void {
    this.#cancel?.();
    this.#limit?.resolve();
    this.#limit = undefined;
    this.#allSeen.resolve();
    this.#allSeen = deferred();
  }
}
