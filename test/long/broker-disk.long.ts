/**
 * The log of calls at full count: a hundred faults of its disk each, a hundred times full, a hundred second processes, kills by the
 * hundred. Each prints what it counted.
 */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Fault, type FaultReport, runWithFault } from '../broker/store/disk-faults.js';
import { fillCycles } from '../broker/store/full-disk-cycles.js';
import { callRounds, killRounds } from '../broker/store/kill-rounds.js';
import { makeFolder, runLog, startLog } from '../broker/store/log-process.js';

const count = Number(process.env.STORE_ROUNDS ?? 100);
const upTo = (last: number) => Array.from({ length: last }, (_, at) => at + 1);

let place: ReturnType<typeof makeFolder>;
beforeEach(() => {
  place = makeFolder('long');
});
afterEach(() => place.remove());

/** Every n-th call. A run has hundreds of writes, but as few as 130 syncs where many calls share one. */
const faults = [
  ['fsync', 'EIO', 1],
  ['fsync', 'ENOSPC', 1],
  ['pwrite64', 'EIO', 4],
] as const;

test.each(faults)(
  'B5: whichever %s ends with %s, nothing is promised, synced or written after it, and nothing is lost',
  async (call, error, step) => {
    const seen = {
      ...{ struck: 0, ofFolder: 0, receipts: 0, promisedAfter: 0, syncedAfter: 0, writtenAfter: 0, lost: 0, broken: 0 },
    };
    for (const at of upTo(count)) {
      const fault: Fault = { call, error, nth: at * step };
      const report: FaultReport = await runWithFault(fault, 600);
      if (report.lost > 0 || !report.isOpenAgain) console.log('B5', JSON.stringify({ fault, ...report }));
      if (!report.hasStruck) continue;
      seen.struck += 1;
      seen.receipts += report.receipts;
      seen.promisedAfter += report.promisedAfter;
      seen.lost += report.lost;
      if (!report.isOpenAgain) seen.broken += 1;
      // SQLite ignores a failed sync of the folder; ours comes after it.
      if (report.isOfFolder) seen.ofFolder += 1;
      else {
        seen.syncedAfter += report.syncedAfter;
        seen.writtenAfter += report.writtenAfter;
        if (report.wasOpen && report.problems.join() !== 'store_failed') seen.broken += 1;
      }
    }
    console.log('B5', call, error, JSON.stringify(seen));
    expect(seen).toMatchObject({ promisedAfter: 0, syncedAfter: 0, writtenAfter: 0, lost: 0, broken: 0 });
    expect(seen.struck).toBeGreaterThan(count / 2);
    expect(seen.ofFolder).toBeLessThanOrEqual(2);
  },
);

test('B6: a disk that is full and free again, a hundred times', async () => {
  const report = await fillCycles(count);
  console.log('B6', JSON.stringify(report));
  expect(report).toMatchObject({ lost: 0, refusedOtherwise: 0, notServedAgain: 0, hasFailed: false });
  expect(report.refused).toBeGreaterThanOrEqual(count);
});

test('AC-BR4: a process that is killed while it works has lost no receipt and no outcome, a hundred times', async () => {
  const report = await killRounds(place.folder, count, 60);
  console.log('AC-BR4', JSON.stringify(report));
  expect(report).toMatchObject({ lost: 0, problems: 0 });
});

test('B11: no key is run twice over two hundred kills and 23 hours', async () => {
  const report = await callRounds(place.folder, 2 * count, 8);
  console.log('B11', JSON.stringify(report));
  expect(report).toMatchObject({ executedTwice: 0, lostOutcomes: 0, foreign: 0 });
});

test('B12: a second process is refused a hundred times; what a kill leaves is taken over at the first try, a hundred times', async () => {
  const first = startLog(place.folder, ['hold']);
  await first.reached(1);
  let refused = 0;
  for (let at = 0; at < count; at += 2) {
    const seconds = await Promise.all([1, 2].map(() => runLog(place.folder, ['work', 1, 1])));
    refused += seconds.filter(({ lines }) => lines.join() === 'X invalid_spec in_use ').length;
  }
  first.child.kill('SIGKILL');
  await first.ended;
  let takenOver = 0;
  for (const _ of upTo(count)) {
    const next = startLog(place.folder, ['hold']);
    await next.reached(1);
    if (next.lines()[0] === 'opened') takenOver += 1;
    next.child.kill('SIGKILL');
    await next.ended;
  }
  console.log('B12', JSON.stringify({ refused, takenOver }));
  expect({ refused, takenOver }).toEqual({ refused: 2 * Math.ceil(count / 2), takenOver: count });
});
