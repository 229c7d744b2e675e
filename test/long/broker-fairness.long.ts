/**
 * K8 as rates: nine workers at their own pace, with one that floods beside them and without. Workers that begin their next call at
 * once are printed only: other load of this machine slows them down too.
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

const figuresOf = (rate: 'bounded' | 'unbounded'): Promise<Figures> =>
  runInNamespace<Figures>(`K8 ${rate}`, './broker-fairness-driver.mjs', rounds, String(halfMs), rate);

test('K8 one worker floods: each of nine others keeps nine tenths of its rate', async () => {
  const figures = await figuresOf('bounded');
  expect(figures).toMatchObject({ failures: 0, exit: 0 });
  const { keptPercent, flooded } = figures.paced;
  expect(keptPercent).toHaveLength(9);
  for (const percent of keptPercent) expect(percent).toBeGreaterThanOrEqual(90);
  // The flood has more calls than all of them together.
  expect(flooded.floodPerSecond).toBeGreaterThan(flooded.perSecond);
});

test('K8 the same without a limit of bytes: no call fails, and the rate of each is printed', async () => {
  const figures = await figuresOf('unbounded');
  expect(figures).toMatchObject({ failures: 0, exit: 0 });
  expect(figures.paced.flooded.floodPerSecond).toBeGreaterThan(figures.paced.flooded.perSecond);
});
