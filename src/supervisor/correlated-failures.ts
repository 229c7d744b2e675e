/**
 * Notices when servers fall together, or when the process did not run for a while. Then the fault is most likely the host's
 * (network gone, machine asleep, memory out), and no server should spend its restart budget on it.
 * Not here: what a frozen budget means for a server (server-state.ts), the event (supervisor.ts). A pause shows in a server's timer
 * that fires late. A sleep of the machine also shows in the clocks (sleep-watch.ts), which are compared when a timer fires and
 * when a server fails. So no timer of its own is needed.
 *
 * Invariant: a server counts once, and again only after it was proven in between. So servers that are simply broken, be
 * they ever so many, cannot keep the budgets frozen and be restarted for ever.
 */
import type { Clock } from '../kernel/clock.js';
import { SleepWatch } from '../kernel/sleep-watch.js';

export interface CorrelationPlan {
  /** More than this share of the servers in play … */
  readonly share: number;
  /** … of at least so many … */
  readonly serversMin: number;
  /** … within this long … */
  readonly withinMs: number;
  /** … freezes the budgets for this long. */
  readonly freezeMs: number;
  /** So does a timer that comes later than this, and a machine that slept for longer. */
  readonly lateMs: number;
}

export const defaultCorrelation: CorrelationPlan = {
  share: 0.5,
  serversMin: 4,
  withinMs: 10_000,
  freezeMs: 30_000,
  lateMs: 5_000,
};

export interface Freeze {
  readonly cause: 'correlated' | 'suspended';
  readonly forMs: number;
  /** On the host's clock. */
  readonly untilMs: number;
  /** Names of the servers that failed together, or of the server whose timer or failure showed the pause. */
  readonly servers: readonly string[];
}

interface Entry {
  /** Running, or being brought up. */
  isInPlay: boolean;
  /** Its last failure that counts; undefined once it is proven. */
  failedAtMs: number | undefined;
}

export class CorrelatedFailures {
  readonly #clock: Clock;
  readonly #plan: CorrelationPlan;
  /** One entry per server that was ever started, until it is forgotten. */
  readonly #servers = new Map<string, Entry>();
  readonly #sleep: SleepWatch;
  #frozenUntilMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, plan = defaultCorrelation) {
    this.#clock = clock;
    this.#sleep = new SleepWatch(clock);
    this.#plan = plan;
  }

  get isFrozen(): boolean {
    return this.#clock.nowMs() < this.#frozenUntilMs;
  }

  entered(server: string): void {
    const entry = this.#servers.get(server);
    if (entry) entry.isInPlay = true;
    else this.#servers.set(server, { isInPlay: true, failedAtMs: undefined });
  }

  /** It rests, was stopped or parked. */
  left(server: string): void {
    const entry = this.#servers.get(server);
    if (entry) entry.isInPlay = false;
  }

  forget(server: string): void {
    this.#servers.delete(server);
  }

  proven(server: string): void {
    const entry = this.#servers.get(server);
    if (entry) entry.failedAtMs = undefined;
  }

  /**
   * Tell it before the failure is charged, so that the one that tips the scale is not. Returns the freeze that this one
   * brought about, to be told to the world.
   */
  failed(server: string): Freeze | undefined {
    const pause = this.#pausedFor(this.#sleep.sleptMs(), server);
    const entry = this.#servers.get(server);
    if (!entry || entry.failedAtMs !== undefined) return pause;
    const nowMs = this.#clock.nowMs();
    entry.failedAtMs = nowMs;
    if (this.isFrozen) return pause;
    const { share, serversMin, withinMs } = this.#plan;
    const failed: string[] = [];
    let inPlay = 0;
    for (const [name, { isInPlay, failedAtMs }] of this.#servers) {
      const hasFailed = failedAtMs !== undefined && nowMs - failedAtMs <= withinMs;
      if (hasFailed) failed.push(name);
      if (hasFailed || isInPlay) inPlay++;
    }
    return inPlay >= serversMin && failed.length > share * inPlay ? this.#freeze('correlated', failed) : undefined;
  }

  /** A timer of this server fired that was due at `dueAtMs`. Tell it before what the timer is for. */
  woke(server: string, dueAtMs: number): Freeze | undefined {
    return this.#pausedFor(Math.max(this.#clock.nowMs() - dueAtMs, this.#sleep.sleptMs()), server);
  }

  #pausedFor(ms: number, server: string): Freeze | undefined {
    return ms > this.#plan.lateMs && !this.isFrozen ? this.#freeze('suspended', [server]) : undefined;
  }

  #freeze(cause: Freeze['cause'], servers: readonly string[]): Freeze {
    const { freezeMs: forMs } = this.#plan;
    this.#frozenUntilMs = this.#clock.nowMs() + forMs;
    return { cause, forMs, untilMs: this.#frozenUntilMs, servers };
  }
}
