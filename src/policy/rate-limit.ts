/**
 * Rate limit per principal or role (`budgets` in the configuration), and the call budget of one piece of work (`withBudget`).
 * A call or a read is charged once, on arrival: a cached answer costs the same, and a retry is not charged again.
 * Not here: concurrent calls (concurrency.ts), retries (retry.ts).
 *
 * Invariants: a call is charged and admitted in one tick. Budgets of interleaved work are independent. Of two
 * nested budgets, only the inner one is charged.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { setBounded } from '../kernel/bounded-map.js';
import type { Clock } from '../kernel/clock.js';
import { formatDuration } from '../kernel/duration.js';
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { compositeKey } from './composite-key.js';
import { namesOf, type Operation, type Stage } from './operation.js';

export interface BudgetPlan {
  readonly calls: number;
}

/** At most `calls` per window; a window begins with the first call after the previous window. */
export interface RateLimit extends BudgetPlan {
  readonly windowMs: number;
}

/** The limit of the principal has priority over the limit of its role. Each principal has its own count. */
export interface RateLimits {
  readonly principals: ReadonlyMap<string, RateLimit>;
  readonly roles: ReadonlyMap<string, RateLimit>;
}

/** State of the current window, or of a new one if none runs. */
export interface BudgetLeft extends RateLimit {
  readonly left: number;
  readonly resetsInMs: number | undefined;
}

export type Charged = Pick<Operation, 'principal' | 'server' | 'tool'>;

interface Spending {
  readonly calls: number;
  /** Includes refused calls. */
  spent: number;
}

interface Window {
  endsAtMs: number;
  spent: number;
}

/** Beyond it the oldest window is dropped, which can only favour its caller. */
const windowsMax = 10_000;

const noRateLimits: RateLimits = { principals: new Map(), roles: new Map() };

export class CallBudgets {
  readonly #clock: Clock;
  readonly #rateLimits: () => RateLimits;
  readonly #current = new AsyncLocalStorage<Spending>();
  /** Key: principal, and role if the limit belongs to it, so that windows of two roles are independent. Oldest first. */
  readonly #windows = new Map<string, Window>();

  /** `rateLimits` is called for each call, so a change applies to the next one. */
  constructor(clock: Clock, rateLimits: () => RateLimits = () => noRateLimits) {
    this.#clock = clock;
    this.#rateLimits = rateLimits;
  }

  withBudget<T>(plan: BudgetPlan, run: () => T): T {
    if (!Number.isSafeInteger(plan.calls) || plan.calls < 0) {
      throw new HostError('invalid_spec', 'calls must be a whole number, 0 or more', {
        field: 'calls',
        hint: 'give the number of calls this work may make',
      });
    }
    return this.#current.run({ calls: plan.calls, spent: 0 }, run);
  }

  /** Charges a call; returns the error if it exceeds a budget. */
  charge(call: Charged): HostError | undefined {
    const current = this.#current.getStore();
    if (current && ++current.spent > current.calls) {
      return exceeded(call, current.calls, current.spent, {
        why: `this work may make ${current.calls} calls`,
        hint: 'do it with fewer calls, or give it a larger budget',
      });
    }
    return this.#chargeWindow(call);
  }

  /** Remaining calls of the principal; undefined without a rate limit. Charges nothing. */
  leftOf(principal: Operation['principal']): BudgetLeft | undefined {
    const found = this.#rateLimitOf(principal);
    if (!found) return undefined;
    const { rateLimit, key } = found;
    const nowMs = this.#clock.nowMs();
    const window = this.#runningWindow(key, nowMs, rateLimit);
    return {
      ...rateLimit,
      left: Math.max(0, rateLimit.calls - (window?.spent ?? 0)),
      resetsInMs: window && window.endsAtMs - nowMs,
    };
  }

  #rateLimitOf({
    id,
    role,
  }: Operation['principal']): { readonly rateLimit: RateLimit; readonly key: string } | undefined {
    const { principals, roles } = this.#rateLimits();
    // Fast path: nearly all hosts have no rate limits.
    if (principals.size === 0 && roles.size === 0) return undefined;
    const own = principals.get(id);
    const rateLimit = own ?? (role === undefined ? undefined : roles.get(role));
    return rateLimit && { rateLimit, key: own || role === undefined ? compositeKey(id) : compositeKey(id, role) };
  }

  #chargeWindow(call: Charged): HostError | undefined {
    const found = this.#rateLimitOf(call.principal);
    if (!found) return undefined;
    const { rateLimit, key } = found;
    const nowMs = this.#clock.nowMs();
    const window = this.#windowOf(key, nowMs, rateLimit);
    if (++window.spent <= rateLimit.calls) return undefined;
    return exceeded(call, rateLimit.calls, window.spent, {
      why: `its caller may make ${rateLimit.calls} calls in ${formatDuration(rateLimit.windowMs)}`,
      hint: 'wait until the window is over, or ask the operator for a higher limit',
      retryAfterMs: Math.ceil(window.endsAtMs - nowMs),
    });
  }

  #runningWindow(key: string, nowMs: number, { windowMs }: RateLimit): Window | undefined {
    const known = this.#windows.get(key);
    // If the configured window became shorter, the caller must not wait for the end of the longer one.
    return known && nowMs < known.endsAtMs && known.endsAtMs <= nowMs + windowMs ? known : undefined;
  }

  #windowOf(key: string, nowMs: number, rateLimit: RateLimit): Window {
    const known = this.#runningWindow(key, nowMs, rateLimit);
    if (known) return known;
    const window: Window = { endsAtMs: nowMs + rateLimit.windowMs, spent: 0 };
    setBounded(this.#windows, key, window, windowsMax);
    return window;
  }
}

export const budget = (budgets: CallBudgets): Stage => ({
  enter: (next, back) => (call) => {
    const error = budgets.charge(call);
    return error ? back(call, error) : next(call);
  },
});

interface Excess {
  readonly why: string;
  readonly hint: string;
  readonly retryAfterMs?: number;
}

const exceeded = (call: Charged, limit: number, actual: number, { why, ...rest }: Excess): HostError =>
  new HostError(
    'budget_exceeded',
    `server '${neutraliseLine(call.server, LIMITS.quotedChars)}': call ${actual} is over budget, ${why}`,
    {
      ...namesOf(call),
      reason: 'mcp_calls',
      limit,
      actual,
      phase: 'queued',
      execution: 'not_executed',
      ...rest,
    },
  );
