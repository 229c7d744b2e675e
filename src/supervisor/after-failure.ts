/**
 * Where a failure leads: another start after a wait, parked, ejected, or waiting for a token; and what it costs.
 * Pure: a ledger, a reason, time, plan and chance come in; the ledger after it and what follows come out.
 * Not here: which of these a failure calls for (server-state.ts), how long the waits are (restart-plan.ts).
 *
 * Invariant: whoever is parked or ejected has it in the ledger, so that every later start is known for a probe.
 */
import type { Random } from '../kernel/random.js';
import {
  charge,
  type Ledger,
  probeDelayMs,
  type Reason,
  type RestartPlan,
  restartDelayMs,
  uncharged,
} from './restart-plan.js';

/** One attempt at a parked server. One that a call asked for does not move the schedule of the others. */
export type Probe = { readonly by: 'timer' } | { readonly by: 'call'; readonly nextProbeAtMs: number };

/** Where a run that is being closed leads. */
export type Following =
  | { readonly kind: 'registered' }
  /** The one run of a one-shot server is over. */
  | { readonly kind: 'stopped' }
  | { readonly kind: 'backing_off'; readonly retryAtMs: number; readonly reason: Reason }
  | { readonly kind: 'parked'; readonly reason: Reason; readonly nextProbeAtMs: number; readonly nextWakeAtMs: number }
  | { readonly kind: 'ejected'; readonly reason: Reason }
  | { readonly kind: 'auth_required'; readonly reason: Reason; readonly nextProbeAtMs: number };

export interface FailureContext {
  readonly nowMs: number;
  readonly plan: RestartPlan;
  readonly random: Random;
}

/** The ledger after the failure, and what follows it. */
export type Aftermath = readonly [Ledger, Following];

/** The server's own fault: one restart is charged, and the budget decides. */
export function charged(before: Ledger, wasProven: boolean, reason: Reason, context: FailureContext): Aftermath {
  const { ledger, exhausted } = charge(before, context.nowMs, wasProven, context.plan);
  return exhausted ? park(ledger, reason, context) : [ledger, retry(ledger, wasProven, reason, context)];
}

/** A failure that is not the server's fault: no charge, but the waits grow as if there were one. */
export function forborne(before: Ledger, wasProven: boolean, reason: Reason, context: FailureContext): Aftermath {
  const ledger = uncharged(before);
  return [ledger, retry(ledger, wasProven, reason, context)];
}

export const retry = (
  ledger: Ledger,
  wasProven: boolean,
  reason: Reason,
  { nowMs, plan, random }: FailureContext,
): Following => ({
  kind: 'backing_off',
  retryAtMs: nowMs + restartDelayMs(ledger, wasProven, plan, random),
  reason,
});

export function park(before: Ledger, reason: Reason, { nowMs, plan, random }: FailureContext): Aftermath {
  const ledger = { ...before, parked: { reason, atMs: nowMs } };
  if (plan.onExhausted === 'eject') return [ledger, { kind: 'ejected', reason }];
  const nextProbeAtMs = nowMs + probeDelayMs(ledger, plan, random);
  return [ledger, { kind: 'parked', reason, nextProbeAtMs, nextWakeAtMs: nowMs + plan.wakeAfterMs }];
}

/** A call may try a parked server once between two probes, so that impatient callers cannot hammer it. */
export function probeFailed(before: Ledger, probe: Probe, reason: Reason, context: FailureContext): Aftermath {
  if (probe.by === 'call' && probe.nextProbeAtMs > context.nowMs) {
    const { nextProbeAtMs } = probe;
    return [before, { kind: 'parked', reason, nextProbeAtMs, nextWakeAtMs: nextProbeAtMs + context.plan.wakeAfterMs }];
  }
  return park({ ...before, failedProbes: before.failedProbes + 1 }, reason, context);
}

/** Asked again only slowly: what helps is a new token, which wakes it at once. */
export const needsAuth = (ledger: Ledger, reason: Reason, { nowMs, plan }: FailureContext): Aftermath => [
  ledger,
  { kind: 'auth_required', reason, nextProbeAtMs: nowMs + plan.probeMsMax },
];
