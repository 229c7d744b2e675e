/**
 * What one host leaves to the next about a server: its ledger, with the times on the wall instead of on the host's clock,
 * which begins anew with every process. Pure: both clocks come in.
 * History is kept, verdicts are not: nobody is parked by what is read here, but who was parked has one try, not a budget.
 * Not here: where it is kept, and for which definition (host/). Failures that were the fault of the host are not kept.
 *
 * Invariant: however the wall clock was set in between, no restart counts for longer than one window from now.
 */
import { z } from 'zod';
import type { Clock } from '../kernel/clock.js';
import { emptyLedger, type Ledger, type RestartPlan } from './restart-plan.js';

/** Times are milliseconds of the wall clock. */
export interface HistoryRecord {
  readonly restartsAt: readonly number[];
  readonly unprovenStarts: number;
  readonly failedProbes: number;
  readonly parked?: { readonly code: string; readonly message: string; readonly at: number } | undefined;
}

/** A reason is for people; what is longer than they would read is not kept. */
const messageCharsMax = 2_000;
/** Plans allow at most 1,000 restarts; the ledger holds one more. */
const restartsMax = 1_001;

const count = z.int().min(0);
const recordShape = z.object({
  restartsAt: z.array(z.number()).max(restartsMax),
  unprovenStarts: count,
  failedProbes: count,
  parked: z.object({ code: z.string(), message: z.string().max(messageCharsMax), at: z.number() }).optional(),
});

/** Undefined: there is nothing that anybody should remember. */
export function recordOf(ledger: Ledger, clock: Clock): HistoryRecord | undefined {
  const { restartsAtMs, unprovenStarts, failedProbes, parked } = ledger;
  if (restartsAtMs.length === 0 && unprovenStarts === 0 && failedProbes === 0 && !parked) return undefined;
  // The ages are true even if the wall clock was set since; so they are counted back from what it says now.
  const nowMs = clock.nowMs();
  const wallMs = clock.date().getTime();
  const onTheWall = (atMs: number) => Math.round(wallMs - (nowMs - atMs));
  return {
    restartsAt: restartsAtMs.map(onTheWall),
    unprovenStarts,
    failedProbes,
    parked: parked && {
      code: parked.reason.code,
      message: parked.reason.message.slice(0, messageCharsMax),
      at: onTheWall(parked.atMs),
    },
  };
}

/** The ledger a server begins with. */
export function ledgerOf(record: HistoryRecord | undefined, clock: Clock, plan: RestartPlan): Ledger {
  if (!record) return emptyLedger;
  const nowMs = clock.nowMs();
  const wallMs = clock.date().getTime();
  // What lies in the future was written before the clock was set back. It counts as of now: dropping it would be a way to a
  // new budget, and believing it would punish for as long as the clock was wrong.
  const onTheClock = (at: number) => nowMs - Math.max(0, wallMs - at);
  const { restartsAt, unprovenStarts, failedProbes, parked } = record;
  return {
    ...emptyLedger,
    restartsAtMs: restartsAt
      .map(onTheClock)
      .filter((atMs) => nowMs - atMs <= plan.windowMs)
      .sort((a, b) => a - b)
      .slice(-(plan.maxRestarts + 1)),
    unprovenStarts,
    failedProbes,
    parked: parked && {
      reason: { code: parked.code, message: parked.message },
      atMs: onTheClock(parked.at),
    },
  };
}

/** Throws when the text is none that was written here. */
export const parseRecord = (text: string): HistoryRecord => recordShape.parse(JSON.parse(text));
