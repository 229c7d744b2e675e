/**
 * Servers die at random moments under load. Remaining processes and descriptors, and the outcomes that callers got, are
 * counted outside of Hostler.
 */
import { expect, test } from 'vitest';
import { runInNamespace } from './in-namespace.js';

const kills = Number(process.env.KILLS ?? 100);

test(`S1 ${kills} kills of servers under load: 0 processes left, 0 descriptors leaked, 0 calls without an outcome`, {
  timeout: 600_000,
}, async () => {
  const result = await runInNamespace('S1', './kill-driver.mjs', kills);
  expect(result).toMatchObject({
    kills,
    withoutOutcome: 0,
    wrongAnswers: 0,
    duplicateExecutions: 0,
    answeredButNotExecuted: 0,
    promisedNotExecutedButExecuted: 0,
    processesLeft: 0,
    descriptorsLeaked: 0,
  });
  expect(result.calls).toBeGreaterThan(kills * 10);
  expect(result.uncertain).toBeGreaterThan(0);
});
