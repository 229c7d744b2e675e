/**
 * W18 Days of ordinary trouble in 25 minutes: a `hostler up` of its own under 500 calls a second, while servers die, lists change,
 * the configuration is edited and clients come and go. `MINUTES` shortens it, `RATE` calls less often; memory is judged when there
 * are at least ten minutes to judge it by.
 */
import { expect, test } from 'vitest';
import { runInNamespace } from '../reliability/in-namespace.js';

const minutes = Number(process.env.MINUTES ?? 25);
const callsPerSecond = Number(process.env.RATE ?? 500);
const warmMinutes = 5;
const rssMBPerMinuteMax = 0.3;

interface Levels {
  readonly first: number;
  readonly last: number;
  readonly max: number;
}

interface Figures {
  readonly calls: number;
  readonly ok: number;
  readonly callsPerSecond: number;
  readonly rssMBPerMinute: number;
  readonly rssMB: Levels;
  readonly fds: Levels;
  readonly children: Levels;
  readonly stateKB: Levels;
  readonly clients: Readonly<Record<string, number>>;
  readonly [name: string]: unknown;
}

/** One row per figure, for the report. */
function table({ series: _, ...figures }: Figures): string {
  const text = (value: unknown) => (typeof value === 'object' ? JSON.stringify(value) : String(value));
  return Object.entries(figures)
    .map(([name, value]) => `| ${name.padEnd(16)} | ${text(value)} |`)
    .join('\n');
}

test(`W18 ${minutes} minutes of kills, edits and clients that come and go: every call settles, every error is explained, nothing grows`, async () => {
  const figures = await runInNamespace<Figures>('W18', './soak-driver.mjs', minutes);
  console.log(table(figures));
  expect(figures).toMatchObject({
    ...{ unsettled: 0, shed: 0, unexplained: 0, openFailures: {}, notBack: [] },
    ...{ problems: [], processesLeft: 0, exitCode: 0 },
  });
  // Calls were made, and all planned events happened.
  expect(figures.callsPerSecond).toBeGreaterThanOrEqual(callsPerSecond * 0.99);
  expect(figures.ok).toBeGreaterThan(figures.calls * 0.95);
  expect(figures.kills).toBeGreaterThanOrEqual(minutes * 6 - 2);
  expect(figures.edits).toBeGreaterThanOrEqual(minutes * 3 - 1);
  expect(figures.clients.changesHeard).toBeGreaterThan(minutes * 60);
  expect(figures.children.last).toBe(figures.children.first);
  if (minutes < warmMinutes + 10) return;
  expect(figures.rssMBPerMinute).toBeLessThan(rssMBPerMinuteMax);
  expect(figures.fds.last).toBeLessThanOrEqual(figures.fds.first + 40);
  expect(figures.stateKB.last).toBeLessThanOrEqual(figures.stateKB.first * 1.1);
});
