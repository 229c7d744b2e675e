/**
 * The cable between workers and their broker is cut: both ways, one way, on and off, with and without a word to those who send.
 * What ran and what was promised is counted from outside.
 */
import { expect, test } from 'vitest';
import { isLongTier, timeLimitMs } from '../tier.js';
import { runInNamespace } from './in-namespace.js';

const partitions = Number(process.env.PARTITIONS ?? 5);
/** One more that both ends give up over, in the lane. */
const longSeconds = Number(process.env.LONG_SECONDS ?? 0);

/** With the host in the broker's process; on the side of the workers only in the lane. */
const places = isLongTier ? ['within', 'apart'] : ['within'];

interface Figures {
  readonly calls: number;
  readonly answered: number;
  readonly uncertain: number;
  /** How long after its deadline a call ended, at most. */
  readonly lateMsMax: number;
  readonly patient: readonly string[];
  readonly done: Readonly<Record<string, number>>;
  readonly fenced: { readonly acks: number; readonly refused: number; readonly comesAgain: number };
}

test.each(places)(
  `B7 ${partitions} partitions, host %s: no outcome lost, nothing run twice, a late ack is refused, and it goes on by itself`,
  async (place) => {
    const figures = await runInNamespace<Figures>(
      'B7',
      './broker-partition-driver.mjs',
      partitions,
      place,
      String(longSeconds),
    );
    expect(figures).toMatchObject({
      ...{ wrong: 0, unsettled: 0, toldTwice: 0, duplicateExecutions: 0, answeredButNotExecuted: 0 },
      ...{ promisedNotExecutedButExecuted: 0, letters: 0, owed: 0, errors: [], processesLeft: 0 },
    });
    expect(figures.lateMsMax).toBeLessThanOrEqual(timeLimitMs(1_000));
    const { fenced, done, patient } = figures;
    expect(fenced.acks).toBeGreaterThan(0);
    expect([fenced.refused, fenced.comesAgain]).toEqual([fenced.acks, fenced.acks]);
    expect(Object.values(done).reduce((sum, each) => sum + each)).toBe(partitions + (longSeconds > 0 ? 1 : 0));
    for (const times of Object.values(done)) expect(times).toBeGreaterThan(0);
    expect(patient).toEqual(longSeconds > 0 ? ['answered', 'answered'] : []);
    // A short cut costs time and nothing else; the long one outlasts those who have less.
    if (longSeconds === 0) expect(figures.answered).toBe(figures.calls);
    expect(figures.answered).toBeGreaterThan(partitions);
  },
  1_200_000,
);
