/**
 * Everything between a worker and a tool dies at random: servers, hosts, nats-server, connections. Runs and promises are counted
 * from outside.
 */
import { describe, expect, test } from 'vitest';
import { defaultPlan } from '../../src/supervisor/restart-plan.js';
import { isLongTier, timeLimitMs } from '../tier.js';
import { runInNamespace } from './in-namespace.js';

const seconds = Number(process.env.SECONDS ?? 4);
const engines = isLongTier ? ['embedded', 'nats'] : ['embedded'];

interface Figures {
  readonly calls: number;
  readonly answered: number;
  readonly denied: number;
  /** The longest time between the deadline and the end of a call. */
  readonly lateMsMax: number;
  /** The status row of each server of each host, some time after the last kill. */
  readonly rows: readonly { readonly state: string; readonly nextProbeInMs?: number }[];
}

describe.each(engines)(`%s, ${seconds} s of kills`, (engine) => {
  let figures: Figures | undefined;

  test('AC-X1 no call runs twice, each has one outcome in time, and nothing is left', async () => {
    figures = await runInNamespace<Figures>('AC-X1', './broker-chaos-driver.mjs', seconds, engine);
    expect(figures).toMatchObject({
      ...{ wrong: 0, unsettled: 0, toldTwice: 0, duplicateExecutions: 0, answeredButNotExecuted: 0 },
      ...{ promisedNotExecutedButExecuted: 0, shownTooMuch: 0, forbiddenExecuted: 0 },
      ...{ isAnsweredAfterwards: true, left: 0, inFlight: 0, errors: [], processesLeft: 0 },
    });
    expect(figures.lateMsMax).toBeLessThanOrEqual(timeLimitMs(1_000));
    expect(figures.answered).toBeGreaterThan(seconds * 5);
  }, 600_000);

  test('AC-X2 afterwards every server is ready, idle, or scheduled for a retry', () => {
    expect(figures?.rows.length).toBeGreaterThanOrEqual(3);
    const { probeMsMax, probeJitter } = defaultPlan;
    const isWell = ({ state, nextProbeInMs }: Figures['rows'][number]) =>
      ['ready', 'registered', 'connecting', 'backing_off'].includes(state) ||
      (state === 'parked' && nextProbeInMs !== undefined && nextProbeInMs <= probeMsMax * (1 + probeJitter));
    expect(figures?.rows.filter((row) => !isWell(row))).toEqual([]);
  });
});
