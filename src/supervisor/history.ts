/**
 * A server's ledger as stored for the next host: with wall-clock times, because the host's clock restarts with every process.
 * A loaded ledger never parks a server, but a server that was parked before gets one start instead of a full restart budget.
 * Failures of the whole host are not stored.
 * Not here: the table, and the check that a record belongs to the present definition (catalog/store/).
 *
 * Invariant: a stored restart counts for at most one window from now, even if the wall clock was changed in between.
 */
import * as z from 'zod/mini';
import type { Clock } from '../kernel/clock.js';
import { emptyLedger, type Ledger, type RestartPlan } from './restart-plan.js';

/** Times are milliseconds of the wall clock. */
export interface HistoryRecord {
  readonly restartsAt: readonly number[];
  readonly unprovenStarts: number;
  readonly failedProbes: number;
  readonly parked?: { readonly code: string; readonly message: string; readonly at: number } | undefined;
}

const messageCharsMax = 2_000;
/** Plans allow at most 1,000 restarts; the ledger contains one more. */
const restartsMax = 1_001;

const count = z.int().check(z.minimum(0));
const recordShape = z.object({
  restartsAt: z.array(z.number()).check(z.maxLength(restartsMax)),
  unprovenStarts: count,
  failedProbes: count,
  parked: z.optional(
    z.object({ code: z.string(), message: z.string().check(z.maxLength(messageCharsMax)), at: z.number() }),
  ),
});

export function recordOf(ledger: Ledger, clock: Clock): HistoryRecord | undefined {
  const { restartsAtMs, unprovenStarts, failedProbes, parked } = ledger;
  if (restartsAtMs.length === 0 && unprovenStarts === 0 && failedProbes === 0 && !parked) return undefined;
  // Ages on the host's clock stay correct when the wall clock was changed, so count back from the present wall time.
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

export function ledgerOf(record: HistoryRecord | undefined, clock: Clock, plan: RestartPlan): Ledger {
  if (!record) return emptyLedger;
  const nowMs = clock.nowMs();
  const wallMs = clock.date().getTime();
  // A time in the future was written before the clock was set back. It counts as now: dropping it would grant a new budget, and
  // keeping it would count it for as long as the clock was wrong.
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

export const parseRecord = (text: string): HistoryRecord => recordShape.parse(JSON.parse(text));
