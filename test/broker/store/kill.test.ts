/** A store whose process is killed at any moment. */
import { afterEach, expect, test } from 'vitest';
import { killRounds } from './kill-rounds.js';
import { makeFolder } from './store-process.js';

const { folder, remove } = makeFolder('kill');
afterEach(remove);

test('AC-BR4: a process that is killed while it takes and removes mail has lost and brought back nothing, eight times', async () => {
  const report = await killRounds(folder, 8, 40);
  expect(report.receipts).toBeGreaterThan(8 * 20);
  expect(report.removed).toBeGreaterThan(8);
  expect(report).toMatchObject({ lost: 0, revenants: 0, isOrdered: true, seqsTwice: 0, problems: 0 });
}, 90_000);
