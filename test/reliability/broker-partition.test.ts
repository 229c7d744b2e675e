/**
 * The cable between workers and their host, or between nats-server and both, is cut: both ways, one way, on and off, with and without a
 * reset. The runs and the answers to callers are counted outside of Hostler.
 */
import { expect, test } from 'vitest';
import { isLongTier, timeLimitMs } from '../tier.js';
import { runInNamespace } from './in-namespace.js';

const partitions = Number(process.env.PARTITIONS ?? 5);
/** Length of one more partition, after which both ends give the connection up; only in the lane. */
const longSeconds = Number(process.env.LONG_SECONDS ?? 0);

/** The far side of the cable. */
const places = isLongTier ? ['host', 'nats'] : ['host'];

interface Figures {
  readonly calls: number;
  readonly answered: number;
  readonly uncertain: number;
  /** How long after its deadline a call ended, at most. */
  readonly lateMsMax: number;
  readonly patient: readonly string[];
  readonly done: Readonly<Record<string, number>>;
  /** Output of the processes that had a problem. */
  readonly errors: readonly string[];
}

test.each(places)(
  `B7 ${partitions} partitions from %s: no outcome is lost, no call runs twice, and calls succeed again without help`,
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
      ...{ promisedNotExecutedButExecuted: 0, left: 0, processesLeft: 0 },
    });
    // A cut that is longer than the deadline of a call leaves its outcome unrecorded, which the host reports.
    const isReported = (line: string) =>
      longSeconds > 0 && line.includes('the store on the NATS server did not answer');
    const lines = figures.errors.flatMap((text) => text.split('\n')).filter((line) => / error | warn /.test(line));
    expect(lines.filter((line) => !isReported(line))).toEqual([]);
    expect(figures.lateMsMax).toBeLessThanOrEqual(timeLimitMs(1_000));
    const { done, patient } = figures;
    expect(Object.values(done).reduce((sum, each) => sum + each)).toBe(partitions + (longSeconds > 0 ? 1 : 0));
    for (const times of Object.values(done)) expect(times).toBeGreaterThan(0);
    expect(patient).toEqual(longSeconds > 0 ? ['answered', 'answered'] : []);
    // A short cut costs time and nothing else; a long one is longer than some deadlines.
    if (longSeconds === 0) expect(figures.answered).toBe(figures.calls);
    expect(figures.answered).toBeGreaterThan(partitions);
  },
  1_200_000,
);
