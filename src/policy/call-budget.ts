/**
 * How many calls a piece of work, or a caller in a stretch of time, may make.
 * Two ceilings: `withBudget` for everything that happens inside one function, however many awaits it takes, and one per
 * principal over a window. A call is charged once, when it comes in: an answer from the cache costs as much as any other,
 * because what is limited is how many calls somebody makes; what is repeated behind this stage is not charged again. A resource
 * that is read is charged as a call.
 * Not here: how many calls run at the same time (concurrency.ts).
 *
 * Invariants: charging and deciding happen in one tick; budgets of interleaved work never touch each other; an inner budget
 * hides the outer one, which comes back with ceiling and count as they were.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { setBounded } from '../kernel/bounded-map.js';
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { compositeKey } from './composite-key.js';
import { namesOf, type Operation, type Stage } from './operation.js';

export interface BudgetPlan {
  readonly calls: number;
}

/** At most `calls` in each window; a window begins with the first call after the one before. */
export interface CallCeiling extends BudgetPlan {
  readonly windowMs: number;
}

/** The principal's own ceiling, else that of its role; counted for each principal alone. */
export interface CallCeilings {
  readonly principals: ReadonlyMap<string, CallCeiling>;
  readonly roles: ReadonlyMap<string, CallCeiling>;
}

/** Of the window that runs, or of the one that the next call begins. */
export interface BudgetLeft extends CallCeiling {
  readonly left: number;
  /** Undefined: no window runs. */
  readonly resetsInMs: number | undefined;
}

/** What is charged: a call, or a reading of a resource, which is of no tool. */
export type Charged = Pick<Operation, 'principal' | 'server' | 'tool'>;

interface Spending {
  readonly calls: number;
  /** Refused calls are counted too. */
  spent: number;
}

interface Window {
  endsAtMs: number;
  spent: number;
}

/** Past it the longest-running window is forgotten, which can only be in its caller's favour. */
const windowsMax = 10_000;

const noCeilings: CallCeilings = { principals: new Map(), roles: new Map() };

export class CallBudgets {
  readonly #clock: Clock;
  readonly #ceilings: () => CallCeilings;
  readonly #current = new AsyncLocalStorage<Spending>();
  /** By principal and whose ceiling it is: a second role's shorter window must not end that of the first. The oldest first. */
  readonly #windows = new Map<string, Window>();

  /** The ceilings are asked for at each call, so that a change counts from the next call on. */
  constructor(clock: Clock, ceilings: () => CallCeilings = () => noCeilings) {
    this.#clock = clock;
    this.#ceilings = ceilings;
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

  /** The error the call is refused with, when it is one too many. */
  charge(call: Charged): HostError | undefined {
    const current = this.#current.getStore();
    if (current && ++current.spent > current.calls) {
      return exceeded(call, current.calls, current.spent, {
        why: `this work may make ${current.calls}`,
        hint: 'do it with fewer calls, or give it a larger budget',
      });
    }
    return this.#chargeWindow(call);
  }

  /** What the principal may still do; undefined without a ceiling. Charges nothing. */
  leftOf(principal: Operation['principal']): BudgetLeft | undefined {
    const found = this.#ceilingOf(principal);
    if (!found) return undefined;
    const { ceiling, key } = found;
    const nowMs = this.#clock.nowMs();
    const window = this.#runningWindow(key, nowMs, ceiling);
    return {
      ...ceiling,
      left: Math.max(0, ceiling.calls - (window?.spent ?? 0)),
      resetsInMs: window && window.endsAtMs - nowMs,
    };
  }

  #ceilingOf({
    id,
    role,
  }: Operation['principal']): { readonly ceiling: CallCeiling; readonly key: string } | undefined {
    const { principals, roles } = this.#ceilings();
    // Nearly every host.
    if (principals.size === 0 && roles.size === 0) return undefined;
    const own = principals.get(id);
    const ceiling = own ?? (role === undefined ? undefined : roles.get(role));
    return ceiling && { ceiling, key: own || role === undefined ? compositeKey(id) : compositeKey(id, role) };
  }

  #chargeWindow(call: Charged): HostError | undefined {
    const found = this.#ceilingOf(call.principal);
    if (!found) return undefined;
    const { ceiling, key } = found;
    const nowMs = this.#clock.nowMs();
    const window = this.#windowOf(key, nowMs, ceiling);
    if (++window.spent <= ceiling.calls) return undefined;
    return exceeded(call, ceiling.calls, window.spent, {
      why: `its caller may make ${ceiling.calls} in ${ceiling.windowMs} ms`,
      hint: 'wait until the window is over, or ask the operator for a higher ceiling',
      retryAfterMs: Math.ceil(window.endsAtMs - nowMs),
    });
  }

  #runningWindow(key: string, nowMs: number, { windowMs }: CallCeiling): Window | undefined {
    const known = this.#windows.get(key);
    // A ceiling that was given a shorter window must not keep a caller waiting for the longer one.
    return known && nowMs < known.endsAtMs && known.endsAtMs <= nowMs + windowMs ? known : undefined;
  }

  #windowOf(key: string, nowMs: number, ceiling: CallCeiling): Window {
    const known = this.#runningWindow(key, nowMs, ceiling);
    if (known) return known;
    const window: Window = { endsAtMs: nowMs + ceiling.windowMs, spent: 0 };
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
