/**
 * Servers of a host die at random moments under load. Remaining processes, and the outcomes that callers of the host got, are
 * counted outside of Hostler.
 */
import { expect, test } from 'vitest';
import { runInNamespace } from './in-namespace.js';

const kills = Number(process.env.KILLS ?? 60);

test(`S1 ${kills} kills of servers of a host under load: 0 processes left, 0 calls without one outcome, 0 run twice`, {
  timeout: 1_200_000,
}, async () => {
  const result = await runInNamespace('S1', './host-kill-driver.mjs', kills);
  expect(result).toMatchObject({
    kills,
    withoutOneOutcome: 0,
    wrongAnswers: 0,
    duplicateExecutions: 0,
    answeredButNotExecuted: 0,
    promisedNotExecutedButExecuted: 0,
    problems: 0,
    processesLeft: 0,
    descriptorsLeaked: 0,
  });
  // The test covered enough calls. The number of calls between two kills depends on the machine.
  expect(result.answered).toBeGreaterThan(kills);
  expect(result.uncertain).toBeGreaterThan(0);
});
