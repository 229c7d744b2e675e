/** A disk that is full for a while. A hundred times in the long lane broker-disk. */
import { expect, test } from 'vitest';
import { fillCycles } from './full-disk-cycles.js';

test('B6: on a full disk nothing new is taken and replies are still kept; with room again it goes on, six times', async () => {
  const report = await fillCycles(6);
  expect(report).toMatchObject({ refusedOtherwise: 0, notOpenAgain: 0, hasFailed: false });
  expect(report).toMatchObject({ lost: 0, revenants: 0, lostReplies: 0, finishedWhileFull: 15 });
  expect(report.refused).toBeGreaterThanOrEqual(12);
}, 60_000);
