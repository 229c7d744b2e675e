/**
 * Calls with short deadlines, from a worker to a slow server: none begins after its deadline, each ends by its deadline, and
 * the server gets the cancellation.
 */
import { expect, test } from 'vitest';
import { isLongTier, timeLimitMs } from '../tier.js';
import { runInNamespace } from './in-namespace.js';

const calls = Number(process.env.DEADLINE_CALLS ?? 100);
/** The time that the worker may add to a deadline. */
const addedMs = 50;

interface Spread {
  readonly count: number;
  readonly p50: number;
  readonly max: number;
}
interface Figures {
  readonly answered: number;
  readonly started: number;
  readonly handedOver: number;
  readonly handedLateMs: Spread;
  readonly startedLateMs: Spread;
  readonly overDeadlineMs: Spread;
  readonly unwanted: number;
  readonly cancelMs: Spread;
  readonly stoodStillMs: Readonly<Record<'worker' | 'host' | 'server', number>>;
}

test(`K9 ${calls} calls with deadlines: none begins after its deadline, each ends by it, and the server gets the cancellation`, {
  timeout: 1_200_000,
}, async () => {
  const figures = await runInNamespace<Figures>('K9', './broker-deadlines-driver.mjs', calls);
  expect(figures).toMatchObject({
    ...{ calls, notTold: 0, wrong: 0, startedTwice: 0, startedThoughPromisedNot: 0, inFlight: 0 },
    ...{ neverCancelled: 0, errors: [], exits: [0] },
  });
  const { stoodStillMs, handedLateMs, startedLateMs, overDeadlineMs, cancelMs } = figures;
  // On a busy machine processes stand still for a while. The time for which that was observed is allowed here.
  const onTheWayMs = Object.values(stoodStillMs).reduce((sum, ms) => sum + ms);
  expect(handedLateMs.max).toBeLessThanOrEqual(timeLimitMs(onTheWayMs));
  expect(startedLateMs.max).toBeLessThanOrEqual(timeLimitMs(onTheWayMs));
  expect(figures.handedOver).toBeGreaterThanOrEqual(figures.started);
  expect(overDeadlineMs.max).toBeLessThanOrEqual(timeLimitMs(addedMs + stoodStillMs.worker));
  expect(cancelMs.max).toBeLessThanOrEqual(timeLimitMs(2 * addedMs + onTheWayMs));
  // The test covered both outcomes. The number of calls answered in time depends on the machine.
  expect(isLongTier ? figures.answered : figures.started).toBeGreaterThan(calls / 20);
  expect(cancelMs.count).toBeGreaterThan(calls / 50);
});
