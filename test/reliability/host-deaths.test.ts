/**
 * Hosts die at random moments under load, and the next host starts with the files that the last one left. Processes that are left,
 * signals to foreign processes and calls that ran twice are counted outside of Hostler, over the whole history.
 */
import { expect, test } from 'vitest';
import { timeLimitMs } from '../tier.js';
import { runInNamespace } from './in-namespace.js';

const deaths = Number(process.env.DEATHS ?? 4);
const lookAlikes = Number(process.env.LOOK_ALIKES ?? 30);

interface Figures {
  readonly withServers: number;
  readonly withoutWatch: number;
  readonly serversAtDeath: number;
  readonly boxedAtDeath: number;
  readonly misnamed: number;
  readonly answered: number;
  readonly boxedGoneMs: { readonly max: number };
  readonly watchedGoneMs: { readonly max: number };
}

test(`S8 ${deaths} hosts killed under load: 0 servers left by the next start, 0 others signalled, 0 calls run twice`, {
  timeout: 3_600_000,
}, async () => {
  const figures = await runInNamespace<Figures>('S8', './host-death-driver.mjs', deaths, String(lookAlikes));
  expect(figures).toMatchObject({
    killed: deaths,
    leftAtOpen: [],
    boxedLeft: 0,
    watchedLeft: 0,
    foreignHarmed: 0,
    foreignSignalled: 0,
    wrongAnswers: 0,
    toldTwice: 0,
    duplicateExecutions: 0,
    answeredButNotExecuted: 0,
    promisedNotExecutedButExecuted: 0,
    problems: [],
    lastExit: 0,
    processesLeft: 0,
    journalsLeft: 0,
  });
  expect(figures.boxedGoneMs.max).toBeLessThan(timeLimitMs(1_000));
  // There were processes to leave behind, and look-alikes to confuse them with.
  expect(Math.min(figures.withServers, figures.withoutWatch, figures.boxedAtDeath)).toBeGreaterThan(0);
  expect(figures.serversAtDeath).toBeGreaterThan(deaths);
  expect(figures.misnamed).toBeGreaterThan(0);
  expect(figures.answered).toBeGreaterThan(deaths * 10);
});
