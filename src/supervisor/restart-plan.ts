/**
 * When a server that failed is started again, and when it is left alone for a while. Pure: time and chance come in.
 *
 * Two rules park a server: more than `maxRestarts` restarts within the window, or more than `maxRestarts` starts in a row that
 * ended before the server was proven, however far apart. The second is for slow starters, which never fill the window.
 * A proven run empties the ledger. So a server that lives just long enough to be proven each time is never parked by either
 * rule: it is of use in between, and is restarted for as long as that goes on.
 */
import { backoffMs } from '../kernel/backoff.js';
import type { Random } from '../kernel/random.js';

export interface RestartPlan {
  /** Within the window, and in a row without a proven run in between; one more failure parks the server. */
  readonly maxRestarts: number;
  readonly windowMs: number;
  /** Proven by one successful call and this long alive … */
  readonly provenByCallMs: number;
  /** … or by this long alive without any call. */
  readonly provenByAgeMs: number;
  /** The first restart of a proven server: anything from 0 to this. */
  readonly firstDelayMsMax: number;
  readonly delayMs: number;
  readonly delayMsMax: number;
  readonly probeMs: number;
  readonly probeMsMax: number;
  /** The probe is moved by up to this share, either way. */
  readonly probeJitter: number;
  /** How long a parked server is left alone even if somebody wants it. */
  readonly wakeAfterMs: number;
  /** `eject` waits for a reload and probes never. */
  readonly onExhausted: 'park' | 'eject';
}

export const defaultPlan: RestartPlan = {
  maxRestarts: 5,
  windowMs: 5 * 60_000,
  provenByCallMs: 5_000,
  provenByAgeMs: 30_000,
  firstDelayMsMax: 100,
  delayMs: 100,
  delayMsMax: 5_000,
  probeMs: 60_000,
  probeMsMax: 300_000,
  probeJitter: 0.2,
  wakeAfterMs: 5_000,
  onExhausted: 'park',
};

/** Why a server is not running, in words a person can act on; never a secret. */
export interface Reason {
  readonly code: string;
  readonly message: string;
}

/** What is remembered of past failures. Only a proven server empties it. */
export interface Ledger {
  /** When restarts were charged, oldest first; at most `maxRestarts + 1` of them. */
  readonly restartsAtMs: readonly number[];
  /** Starts in a row that ended before the server was proven. */
  readonly unprovenStarts: number;
  /** Probes of a parked server in a row that failed. */
  readonly failedProbes: number;
  /** Failures that were not charged: they lengthen the waits and park nobody. */
  readonly unchargedFailures: number;
  /** It was parked or ejected: until it is proven every start is a probe, also for the next host. */
  readonly parked: { readonly reason: Reason; readonly atMs: number } | undefined;
}

export const emptyLedger: Ledger = {
  restartsAtMs: [],
  unprovenStarts: 0,
  failedProbes: 0,
  unchargedFailures: 0,
  parked: undefined,
};

export interface Charge {
  readonly ledger: Ledger;
  readonly exhausted: boolean;
}

/** Charges one restart at `nowMs`. `wasProven`: the run that ended had been proven. */
export function charge(ledger: Ledger, nowMs: number, wasProven: boolean, plan: RestartPlan): Charge {
  const restartsAtMs = [...ledger.restartsAtMs.filter((atMs) => nowMs - atMs <= plan.windowMs), nowMs].slice(
    -(plan.maxRestarts + 1),
  );
  const unprovenStarts = wasProven ? 0 : ledger.unprovenStarts + 1;
  return {
    ledger: { ...ledger, restartsAtMs, unprovenStarts },
    exhausted: restartsAtMs.length > plan.maxRestarts || unprovenStarts > plan.maxRestarts,
  };
}

/** Notes a failure that was a fault of the whole host. */
export const uncharged = (ledger: Ledger): Ledger => ({ ...ledger, unchargedFailures: ledger.unchargedFailures + 1 });

/** Restarts that still count at `nowMs`. */
export const restartsInWindow = ({ restartsAtMs }: Ledger, nowMs: number, { windowMs }: RestartPlan): number =>
  restartsAtMs.filter((atMs) => nowMs - atMs <= windowMs).length;

/** How long to wait before the restart just charged, or just forborne. */
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

/** Before chance: doubles with each restart in the window, to a limit. */
export const fullDelayMs = (restarts: number, { delayMs, delayMsMax }: RestartPlan): number =>
  backoffMs(delayMs, restarts - 1, delayMsMax);

/** How long a parked server waits for its next probe. */
export function probeDelayMs({ failedProbes }: Ledger, plan: RestartPlan, random: Random): number {
  const full = backoffMs(plan.probeMs, failedProbes, plan.probeMsMax);
  return full * (1 + plan.probeJitter * (2 * random() - 1));
}
