/**
 * K8 as rates: nine workers at their own pace, with one that floods beside them and without. Workers that begin their next call at once are
 * printed only: other load of this machine slows them down too.
 */
import { expect, test } from 'vitest';
import { runInNamespace } from '../reliability/in-namespace.js';

const rounds = Number(process.env.FAIRNESS_ROUNDS ?? 3);
const halfMs = Number(process.env.FAIRNESS_HALF_MS ?? 4_000);

interface Rates {
  readonly perSecond: number;
  readonly floodPerSecond: number;
}
interface Figures {
  readonly paced: { readonly keptPercent: readonly number[]; readonly solo: Rates; readonly flooded: Rates };
}

test('K8 one worker floods: each of nine others keeps nine tenths of its rate', async () => {
  const figures = await runInNamespace<Figures>('K8', './broker-fairness-driver.mjs', rounds, String(halfMs));
  expect(figures).toMatchObject({ failures: 0, exit: 0 });
  const { keptPercent, flooded } = figures.paced;
  expect(keptPercent).toHaveLength(9);
  for (const percent of keptPercent) expect(percent).toBeGreaterThanOrEqual(90);
  // The flood has more calls than all of them together.
  expect(flooded.floodPerSecond).toBeGreaterThan(flooded.perSecond);
});
