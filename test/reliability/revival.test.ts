/**
 * The time until a killed server of a real host is ready again, compared with the delay of its supervisor.
 */
import { expect, test } from 'vitest';
import { timeLimitMs } from '../tier.js';
import { runInNamespace } from './in-namespace.js';

const kills = Number(process.env.KILLS ?? 30);
/** The time that the host may add to the delay, and then to the start of the server. */
const addedMs = 50;
/** The time of a loss is read slightly before the time of the following decision. */
const stampMs = 1;

interface Figures {
  readonly restarts: number;
  readonly firstOfProven: number;
  /** The largest excess of a delay over its interval. */
  readonly aboveIntervalMs: number;
  readonly earliestMs: number;
  readonly spawnLateMs: { readonly p99: number };
  readonly readyAfterDelayMs: { readonly p99: number };
  readonly ownStartMs: { readonly p99: number };
  readonly loopDelayMs: { readonly max: number };
}

test(`S2 revival after ${kills} kills: no delay below its interval, no spawn before it, and all come back`, {
  timeout: 1_200_000,
}, async () => {
  const figures = await runInNamespace<Figures>('S2', './revival-driver.mjs', kills);
  expect(figures).toMatchObject({ kills, belowInterval: 0, problems: [] });
  expect(figures.earliestMs).toBeGreaterThanOrEqual(-1);
  expect(figures.restarts).toBeGreaterThan(kills / 2);
  expect(figures.firstOfProven).toBeGreaterThan(0);
  // The event loop itself may block for as long as measured.
  const allowedMs = addedMs + figures.loopDelayMs.max;
  expect(figures.aboveIntervalMs).toBeLessThanOrEqual(timeLimitMs(stampMs));
  expect(figures.spawnLateMs.p99).toBeLessThanOrEqual(timeLimitMs(allowedMs));
  expect(figures.readyAfterDelayMs.p99).toBeLessThanOrEqual(timeLimitMs(figures.ownStartMs.p99 + allowedMs));
});
