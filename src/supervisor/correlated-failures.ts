/**
 * Detects that many servers fail together, or that the process was suspended. The cause is then most likely the host (network
 * down, machine asleep, out of memory), so the restart budgets are frozen.
 * Not here: the effect of a frozen budget on a server (server-state.ts), the event (supervisor.ts).
 *
 * Invariant: a server counts once, and again only after it was proven, so broken servers cannot keep the budgets frozen.
 */
import type { Clock } from '../kernel/clock.js';

/** Budgets are frozen when more than this share of at least `serversMin` active servers fail within `withinMs`. */
const share = 0.5;
const serversMin = 4;
const withinMs = 10_000;
const freezeMs = 30_000;
/** A timer that fires late by more than this, or a sleep of the machine longer than this, also freezes the budgets. */
const lateMs = 5_000;

export interface Freeze {
  readonly cause: 'correlated' | 'suspended';
  readonly forMs: number;
  /** Time on the host's clock. */
  readonly untilMs: number;
  /** The servers that failed together, or the server whose timer or failure revealed the pause. */
  readonly servers: readonly string[];
}

interface Entry {
  /** The server runs or is being started. */
  isCounted: boolean;
  /** Time of its counted failure; undefined after the server is proven. */
  failedAtMs: number | undefined;
}

export class CorrelatedFailures {
  readonly #clock: Clock;
  /** One entry per server that was started, until `forget`. */
  readonly #servers = new Map<string, Entry>();
  readonly #sleep: SleepWatch;
  #frozenUntilMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#sleep = new SleepWatch(clock);
  }

  get isFrozen(): boolean {
    return this.#clock.nowMs() < this.#frozenUntilMs;
  }

  entered(server: string): void {
    const entry = this.#servers.get(server);
    if (entry) entry.isCounted = true;
    else this.#servers.set(server, { isCounted: true, failedAtMs: undefined });
  }

  /** The server is idle, stopped or parked. */
  left(server: string): void {
    const entry = this.#servers.get(server);
    if (entry) entry.isCounted = false;
  }

  forget(server: string): void {
    this.#servers.delete(server);
  }

  proven(server: string): void {
    const entry = this.#servers.get(server);
    if (entry) entry.failedAtMs = undefined;
  }

  /**
   * Call it before the failure is charged, so that the failure that causes the freeze is not charged either. Returns a new
   * freeze, to be emitted as an event.
   */
  failed(server: string): Freeze | undefined {
    const pause = this.#pausedFor(this.#sleep.sleptMs(), server);
    const entry = this.#servers.get(server);
    if (!entry || entry.failedAtMs !== undefined) return pause;
    const nowMs = this.#clock.nowMs();
    entry.failedAtMs = nowMs;
    if (this.isFrozen) return pause;
    const failed: string[] = [];
    let inPlay = 0;
    for (const [name, { isCounted: isInPlay, failedAtMs }] of this.#servers) {
      const hasFailed = failedAtMs !== undefined && nowMs - failedAtMs <= withinMs;
      if (hasFailed) failed.push(name);
      if (hasFailed || isInPlay) inPlay++;
    }
    return inPlay >= serversMin && failed.length > share * inPlay ? this.#freeze('correlated', failed) : undefined;
  }

  /** Call it first when a timer of the server fires. `dueAtMs`: the time at which the timer was due. */
  woke(server: string, dueAtMs: number): Freeze | undefined {
    return this.#pausedFor(Math.max(this.#clock.nowMs() - dueAtMs, this.#sleep.sleptMs()), server);
  }

  #pausedFor(ms: number, server: string): Freeze | undefined {
    return ms > lateMs && !this.isFrozen ? this.#freeze('suspended', [server]) : undefined;
  }

  #freeze(cause: Freeze['cause'], servers: readonly string[]): Freeze {
    this.#frozenUntilMs = this.#clock.nowMs() + freezeMs;
    return { cause, forMs: freezeMs, untilMs: this.#frozenUntilMs, servers };
  }
}

/**
 * Detects that the machine slept: during sleep the monotonic clock stops but the clock since boot continues, so their
 * difference grows. Wall time is not used, because people and NTP set it.
 */
export class SleepWatch {
  readonly #clock: Clock;
  #asleepMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#asleepMs = this.#read();
  }

  /** Time that the machine slept since the last call, exact to about 1 s. */
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
