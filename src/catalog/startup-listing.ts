/**
 * Lists servers once after the start, and lets early list requests wait a short time for these first listings. Servers that
 * were never listed are started in the background: with `learnAtBoot`, or when a gateway or broker needs their tools.
 * Not here: starting and listing one server (discovery.ts).
 *
 * Invariants: the wait ends `startupListingMsMax` after the first request; later requests do not wait. A request waits only for
 * the servers that it names, and not for one that was too slow in an earlier host. Servers may be added in several batches.
 */
import type { Clock } from '../kernel/clock.js';
import { type Deferred, deferred } from '../kernel/deferred.js';
import type { Discovery, FirstListings } from './discovery.js';

export const startupListingMsMax = 1_000;

/** Remembers servers whose first listing took longer than the wait for it, across restarts of the host. */
export interface SlowServers {
  was(server: string): boolean;
  exceeded(server: string): void;
  /** Its first listing has succeeded or failed. */
  settled(server: string): void;
}

const neverSlow: SlowServers = { was: () => false, exceeded: () => {}, settled: () => {} };

export class StartupListing {
  readonly #clock: Clock;
  readonly #discovery: Pick<Discovery, 'listUnlisted' | 'listStarting'>;
  readonly #learnAtBoot: boolean | undefined;
  readonly #slow: SlowServers;
  /** Servers that were too slow in an earlier host: they are listed, but no request waits for them. */
  readonly #unawaited = new Set<string>();
  /** Servers whose first listing is not finished. The promises never reject. */
  readonly #pending = new Map<string, Promise<void>>();
  #allListed = deferred();
  /** Set by the first `wait`. */
  #limit: Deferred | undefined;
  #cancel: (() => void) | undefined;
  #isOver = false;
  #isLearning: boolean;
  #hasBegun = false;

  constructor(
    clock: Clock,
    discovery: Pick<Discovery, 'listUnlisted' | 'listStarting'>,
    learnAtBoot: boolean | undefined,
    slow: SlowServers = neverSlow,
  ) {
    this.#slow = slow;
    this.#clock = clock;
    this.#discovery = discovery;
    this.#learnAtBoot = learnAtBoot;
    this.#isLearning = learnAtBoot ?? false;
  }

  /** Call once, after the configured servers were declared. */
  begin(): void {
    this.#hasBegun = true;
    this.track(this.#discovery.listStarting(), this.listUnlisted());
  }

  /** Starts the background listing, unless `learnAtBoot` is false. */
  turnOn(): void {
    if (this.#isLearning || this.#learnAtBoot === false) return;
    this.#isLearning = true;
    if (this.#hasBegun) this.track(this.listUnlisted());
  }

  listUnlisted(): FirstListings {
    return this.#isLearning ? this.#discovery.listUnlisted() : new Map();
  }

  track(...batches: readonly FirstListings[]): void {
    for (const [server, listing] of batches.flatMap((batch) => [...batch])) {
      if (this.#slow.was(server)) this.#unawaited.add(server);
      const settled = () => {
        this.#slow.settled(server);
        if (this.#pending.get(server) === listed) this.#pending.delete(server);
        if (this.#pending.size === 0) this.#over();
      };
      const listed: Promise<void> = listing.then(settled, settled);
      this.#pending.set(server, listed);
    }
  }

  /** Resolves when these servers were listed or the time limit has passed. Undefined: no need to wait. */
  wait(servers: readonly string[] = [...this.#pending.keys()]): Promise<void> | undefined {
    if (this.#isOver) return undefined;
    const awaited = servers.flatMap((server) => this.#awaited(server));
    if (awaited.length === 0) return undefined;
    this.#limit ??= this.#arm();
    return Promise.race([Promise.all(awaited).then(() => {}), this.#limit.promise]);
  }

  /** Resolves when every pending first listing has settled, without a time limit. Undefined: nothing is pending. */
  whenAllListed(): Promise<void> | undefined {
    return this.#pending.size === 0 ? undefined : this.#allListed.promise;
  }

  /** Like `whenAllListed`, without servers that were too slow in an earlier host. */
  whenReady(): Promise<void> | undefined {
    const awaited = [...this.#pending.keys()].flatMap((server) => this.#awaited(server));
    return awaited.length === 0 ? undefined : Promise.all(awaited).then(() => {});
  }

  #awaited(server: string): readonly Promise<void>[] {
    const listing = this.#unawaited.has(server) ? undefined : this.#pending.get(server);
    return listing === undefined ? [] : [listing];
  }

  #arm(): Deferred {
    const limit = deferred();
    this.#cancel = this.#clock.at(this.#clock.nowMs() + startupListingMsMax, () => {
      this.#isOver = true;
      for (const server of this.#pending.keys()) this.#slow.exceeded(server);
      limit.resolve();
    });
    return limit;
  }

  #over(): void {
    this.#cancel?.();
    this.#limit?.resolve();
    this.#limit = undefined;
    this.#allListed.resolve();
    this.#allListed = deferred();
  }
}
