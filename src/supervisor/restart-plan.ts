/**
 * Decides when a failed server is restarted or parked, and charges its restart budget. Pure: time and randomness are arguments.
 * Not here: the choice of the outcome for a failure (server-state.ts).
 *
 * Two rules park a server: more than `maxRestarts` restarts within the window, or more than `maxRestarts` starts in a row that
 * ended before the server was proven. The second rule catches slow starters, which never fill the window.
 * A proven run empties the ledger, so a server that always lives long enough to be proven is never parked.
 *
 * Invariant: a parked or ejected server has `parked` in its ledger, so every later start counts as a probe.
 */
import { backoffMs } from '../kernel/backoff.js';
import type { Random } from '../kernel/random.js';

export const defaultPlan = {
  /** Limit of restarts within the window, and of unproven starts in a row; one more failure parks the server. */
  maxRestarts: 5,
  windowMs: 5 * 60_000,
  /** A run is proven at this age if a call succeeded … */
  provenByCallMs: 5_000,
  /** … or at this age without any call. */
  provenByAgeMs: 30_000,
  /** Maximum of the random delay before the first restart of a proven server. */
  firstDelayMsMax: 100,
  delayMs: 100,
  delayMsMax: 5_000,
  probeMs: 60_000,
  probeMsMax: 300_000,
  /**
   * Upper bound of the interval between probes while the server cannot be reached or answers 429. Infinity for a server whose probes start
   * a process.
   */
  lossProbeMsMax: Number.POSITIVE_INFINITY,
  /** Share of the delay by which a probe may be earlier or later. */
  probeJitter: 0.2,
  /** Time after a server was parked, and after its next probe, during which calls cannot wake it. */
  wakeAfterMs: 5_000,
  /** `eject` never probes; only a reload or start by an operator starts the server again. */
  onExhausted: 'park' as 'park' | 'eject',
};
export type RestartPlan = Readonly<typeof defaultPlan>;

/** Reason why a server does not run, for people. Never contains a secret. */
export interface Reason {
  readonly code: string;
  readonly message: string;
}

/** Record of past failures. A proven run, and an operator's start, reload or enable, empty it. */
export interface Ledger {
  /** Times of charged restarts, oldest first; at most `maxRestarts + 1`. */
  readonly restartsAtMs: readonly number[];
  /** Starts in a row that ended before the server was proven. */
  readonly unprovenStarts: number;
  readonly failedProbes: number;
  /** Failures that were not charged: they lengthen the delays but never park the server. */
  readonly unchargedFailures: number;
  /** Set when parked or ejected: every start is a probe until one is proven, also in the next host. */
  readonly parked: { readonly reason: Reason; readonly atMs: number } | undefined;
}

export const emptyLedger: Ledger = {
  restartsAtMs: [],
  unprovenStarts: 0,
  failedProbes: 0,
  unchargedFailures: 0,
  parked: undefined,
};

/** Charges one restart at `nowMs`. `wasProven`: the ended run was proven. */
export function charge(ledger: Ledger, nowMs: number, wasProven: boolean, plan: RestartPlan) {
  const restartsAtMs = [...ledger.restartsAtMs.filter((atMs) => nowMs - atMs <= plan.windowMs), nowMs].slice(
    -(plan.maxRestarts + 1),
  );
  const unprovenStarts = wasProven ? 0 : ledger.unprovenStarts + 1;
  return {
    ledger: { ...ledger, restartsAtMs, unprovenStarts },
    exhausted: restartsAtMs.length > plan.maxRestarts || unprovenStarts > plan.maxRestarts,
  };
}

const uncharged = (ledger: Ledger): Ledger => ({ ...ledger, unchargedFailures: ledger.unchargedFailures + 1 });

export const restartsInWindow = ({ restartsAtMs }: Ledger, nowMs: number, { windowMs }: RestartPlan): number =>
  restartsAtMs.filter((atMs) => nowMs - atMs <= windowMs).length;

/** Delay before the restart that was just recorded, charged or not. */
export function restartDelayMs(
  { restartsAtMs, unchargedFailures }: Ledger,
  wasProven: boolean,
  plan: RestartPlan,
  random: Random,
): number {
  const failures = restartsAtMs.length + unchargedFailures;
  if (wasProven && failures <= 1) return random() * plan.firstDelayMsMax;
  const full = fullDelayMs(failures, plan);
  return full / 2 + (random() * full) / 2;
}

/** The delay without jitter: it doubles with each restart in the window, up to a limit. */
export const fullDelayMs = (restarts: number, { delayMs, delayMsMax }: RestartPlan): number =>
  backoffMs(delayMs, restarts - 1, delayMsMax);

export function probeDelayMs({ failedProbes, parked }: Ledger, plan: RestartPlan, random: Random): number {
  const grownMs = backoffMs(plan.probeMs, failedProbes, plan.probeMsMax);
  const full = Math.min(grownMs, lossProbeMs(parked?.reason, plan));
  return full * (1 + plan.probeJitter * (2 * random() - 1));
}

/**
 * Failures after which `lossProbeMsMax` applies: lost and refused connections, and 429. The server may be reachable again at
 * any time. Starts also wait at most 15 s for a `Retry-After`.
 */
const lossCodes: ReadonlySet<string | undefined> = new Set(['connect_failed', 'transport', 'overloaded']);

const lossProbeMs = (reason: Reason | undefined, { lossProbeMsMax }: RestartPlan): number =>
  lossCodes.has(reason?.code) ? lossProbeMsMax : Number.POSITIVE_INFINITY;

// --- where a failure leads

/** One attempt at a parked server. An attempt on behalf of a call leaves the probe schedule as it is. */
export type Probe = { readonly by: 'timer' } | { readonly by: 'call'; readonly nextProbeAtMs: number };

/** State after a run that failed or is being closed. */
export type NextState =
  | { readonly kind: 'registered' }
  /** A one-shot server has no second run. */
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

/** The ledger after the failure, and the state that follows. */
export type FailureResult = readonly [Ledger, NextState];

/** A failure of the server itself: charges one restart. An exhausted budget parks the server. */
export function charged(before: Ledger, wasProven: boolean, reason: Reason, context: FailureContext): FailureResult {
  const { ledger, exhausted } = charge(before, context.nowMs, wasProven, context.plan);
  return exhausted ? park(ledger, reason, context) : [ledger, retry(ledger, wasProven, reason, context)];
}

/** A failure of the whole host: no restart is charged, but the delay still grows. */
export function unchargedRetry(
  before: Ledger,
  wasProven: boolean,
  reason: Reason,
  context: FailureContext,
): FailureResult {
  const ledger = uncharged(before);
  return [ledger, retry(ledger, wasProven, reason, context)];
}

export const retry = (
  ledger: Ledger,
  wasProven: boolean,
  reason: Reason,
  { nowMs, plan, random }: FailureContext,
): NextState => ({
  kind: 'backing_off',
  retryAtMs: nowMs + restartDelayMs(ledger, wasProven, plan, random),
  reason,
});

export function park(before: Ledger, reason: Reason, { nowMs, plan, random }: FailureContext): FailureResult {
  const ledger = { ...before, parked: { reason, atMs: nowMs } };
  if (plan.onExhausted === 'eject') return [ledger, { kind: 'ejected', reason }];
  const nextProbeAtMs = nowMs + probeDelayMs(ledger, plan, random);
  return [ledger, { kind: 'parked', reason, nextProbeAtMs, nextWakeAtMs: nowMs + plan.wakeAfterMs }];
}

/** Between two probes one call may try a parked server; more calls would overload it. */
export function probeFailed(before: Ledger, probe: Probe, reason: Reason, context: FailureContext): FailureResult {
  if (probe.by === 'call' && probe.nextProbeAtMs > context.nowMs) {
    const nextProbeAtMs = Math.min(probe.nextProbeAtMs, context.nowMs + lossProbeMs(reason, context.plan));
    return [before, { kind: 'parked', reason, nextProbeAtMs, nextWakeAtMs: nextProbeAtMs + context.plan.wakeAfterMs }];
  }
  return park({ ...before, failedProbes: before.failedProbes + 1 }, reason, context);
}

/** The server is probed at the slowest rate: only a new token helps, and it wakes the server at once. */
export const needsAuth = (ledger: Ledger, reason: Reason, { nowMs, plan }: FailureContext): FailureResult => [
  ledger,
  { kind: 'auth_required', reason, nextProbeAtMs: nowMs + plan.probeMsMax },
];
