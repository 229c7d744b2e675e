/**
 * Everything between a worker and a tool dies at random: servers, hosts, the broker, connections. What ran and what was promised
 * is counted from outside.
 */
import { expect, test } from 'vitest';
import { runInNamespace } from './in-namespace.js';

const seconds = Number(process.env.SECONDS ?? 10);

interface Figures {
  readonly calls: number;
  readonly answered: number;
  readonly denied: number;
  readonly states: readonly string[];
}

test.each(['embedded', 'nats'])(
  `AC-X1 AC-X2 %s, ${seconds} s of kills: nothing runs twice, everybody hears one outcome in time, nothing is left`,
  async (engine) => {
    const figures = await runInNamespace<Figures>('AC-X1', './broker-chaos-driver.mjs', seconds, engine);
    expect(figures).toMatchObject({
      ...{ wrong: 0, late: 0, unsettled: 0, toldTwice: 0, duplicateExecutions: 0, answeredButNotExecuted: 0 },
      ...{ promisedNotExecutedButExecuted: 0, shownTooMuch: 0, forbiddenExecuted: 0 },
      ...{ isAnsweredAfterwards: true, owed: 0, errors: [], processesLeft: 0 },
    });
    // Something was called, and something was in the way.
    expect(figures.answered).toBeGreaterThan(seconds * 5);
    for (const state of figures.states)
      expect(['ready', 'registered', 'connecting', 'backing_off', 'parked']).toContain(state);
  },
  600_000,
);
