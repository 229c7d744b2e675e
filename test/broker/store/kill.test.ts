/** A log whose process is killed at any moment. The long lane broker-disk does this with a hundred kills. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { countFor } from '../../tier.js';
import { callRounds, killRounds } from './kill-rounds.js';
import { makeFolder } from './log-process.js';

let place: ReturnType<typeof makeFolder>;
beforeEach(() => {
  place = makeFolder('kill');
});
afterEach(() => place.remove());

test('AC-BR4: a process that is killed while it works has lost no receipt and no outcome', async () => {
  const rounds = countFor(3, 8);
  const report = await killRounds(place.folder, rounds, 60);
  expect(report.receipts).toBeGreaterThan(rounds * 20);
  expect(report.outcomes).toBeGreaterThan(rounds * 10);
  expect(report).toMatchObject({ lost: 0, problems: 0 });
}, 90_000);

test('B11: over kills and 23 hours no key is run twice, and no outcome is lost', async () => {
  const report = await callRounds(place.folder, countFor(3, 12), 8);
  expect(report).toMatchObject({ executedTwice: 0, lostOutcomes: 0, foreign: 0 });
  expect(report.executed).toBeGreaterThan(8);
}, 90_000);
