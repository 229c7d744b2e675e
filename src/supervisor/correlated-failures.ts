/**
 * Notices when servers fall together. Then the fault is most likely the host's (network gone, machine asleep, memory out),
 * and no server should spend its restart budget on it.
 * Not here: what a frozen budget means for a server (server-state.ts).
 *
 * Invariant: a server counts once, and again only after it was proven in between. So servers that are simply broken, be
 * they ever so many, cannot keep the budgets frozen and be restarted for ever.
 */
import type { Clock } from '../kernel/clock.js';

export interface CorrelationPlan {
  /** More than this share of the servers in play … */
  readonly share: number;
  /** … of at least so many … */
  readonly serversMin: number;
  /** … within this long … */
  readonly withinMs: number;
  /** … freezes the budgets for this long. */
  readonly freezeMs: number;
}

export const defaultCorrelation: CorrelationPlan = {
  share: 0.5,
  serversMin: 4,
  withinMs: 10_000,
  freezeMs: 30_000,
};

export interface Freeze {
  readonly untilMs: number;
  /** Names of those that fell together. */
  readonly failed: readonly string[];
  readonly inPlay: number;
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
  readonly #onFreeze: (freeze: Freeze) => void;
  /** One entry per server that was ever started, until it is forgotten. */
  readonly #servers = new Map<string, Entry>();
  #frozenUntilMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, onFreeze: (freeze: Freeze) => void = () => {}, plan = defaultCorrelation) {
    this.#clock = clock;
    this.#plan = plan;
    this.#onFreeze = onFreeze;
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

  /** Tell it before the failure is charged, so that the one that tips the scale is not. */
  failed(server: string): void {
    const entry = this.#servers.get(server);
    if (!entry || entry.failedAtMs !== undefined) return;
    const nowMs = this.#clock.nowMs();
    entry.failedAtMs = nowMs;
    if (this.isFrozen) return;
    const { share, serversMin, withinMs, freezeMs } = this.#plan;
    const failed: string[] = [];
    let inPlay = 0;
    for (const [name, { isInPlay, failedAtMs }] of this.#servers) {
      const hasFailed = failedAtMs !== undefined && nowMs - failedAtMs <= withinMs;
      if (hasFailed) failed.push(name);
      if (hasFailed || isInPlay) inPlay++;
    }
    if (inPlay < serversMin || failed.length <= share * inPlay) return;
    this.#frozenUntilMs = nowMs + freezeMs;
    this.#onFreeze({ untilMs: this.#frozenUntilMs, failed, inPlay });
  }
}
