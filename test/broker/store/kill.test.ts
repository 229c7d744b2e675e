/** A store whose process is killed at any moment. */
import { afterEach, expect, test } from 'vitest';
import { countFor } from '../../tier.js';
import { killRounds } from './kill-rounds.js';
import { makeFolder } from './store-process.js';

const { folder, remove } = makeFolder('kill');
afterEach(remove);
const rounds = countFor(3, 8);

test(`AC-BR4: a process that is killed while it takes and removes mail has lost and brought back nothing, ${rounds} times`, async () => {
  const report = await killRounds(folder, rounds, 40);
  expect(report.receipts).toBeGreaterThan(rounds * 20);
  expect(report.removed).toBeGreaterThan(rounds);
  expect(report).toMatchObject({ lost: 0, revenants: 0, isOrdered: true, seqsTwice: 0, problems: 0 });
}, 90_000);
