/** A disk that fails for good. The long lane broker-disk does this with a hundred faults. */
import { expect, test } from 'vitest';
import { isLongTier } from '../../tier.js';
import { type Fault, runWithFault } from './disk-faults.js';

/** The first few calls belong to opening the store that a killed process left. */
const faults: Fault[] = [
  ...(isLongTier ? [1, 3, 4, 7, 12, 25] : [3, 12]).map((nth) => ({ call: 'fsync', error: 'EIO', nth }) as const),
  { call: 'fsync', error: 'ENOSPC', nth: 9 },
  ...(isLongTier ? [1, 5, 33, 80, 161] : [5, 80]).map((nth) => ({ call: 'pwrite64', error: 'EIO', nth }) as const),
];

test.each(faults)(
  'B5: after $call number $nth ends with $error nothing is promised, written or synced, and nothing is lost',
  async (fault) => {
    const report = await runWithFault(fault);
    expect(report).toMatchObject({ hasStruck: true, promisedAfter: 0, syncedAfter: 0, writtenAfter: 0, lost: 0 });
    expect(report.isOpenAgain).toBe(true);
    if (!report.wasOpen) return expect(report).toMatchObject({ receipts: 0, problems: [] });
    expect(report.problems).toEqual(['store_failed']);
    // Both are refused: a call, and opening the log again in the same process.
    expect(report.refusals.slice(-2)).toEqual(Array(2).fill('insufficient_storage store_failed not_executed'));
  },
  60_000,
);

test.each(isLongTier ? [1, 3, 4] : [3])(
  'B5: a log that fails at sync number %i while it is created is refused, and the next process creates it',
  async (nth) => {
    const report = await runWithFault({ call: 'fsync', error: 'EIO', nth, isFirst: true });
    expect(report).toMatchObject({ hasStruck: true, wasOpen: false, receipts: 0, isOpenAgain: true });
  },
  60_000,
);

test('B5: a write for which there is no room is not a failure: all that was promised is kept, and the log continues', async () => {
  const report = await runWithFault({ call: 'pwrite64', error: 'ENOSPC', nth: 60 });
  expect(report).toMatchObject({ hasStruck: true, wasOpen: true, lost: 0, isOpenAgain: true });
  expect(report.problems).not.toContain('store_failed');
}, 60_000);
