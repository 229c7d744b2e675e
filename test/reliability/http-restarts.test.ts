/**
 * Real servers over streamable HTTP are killed and started again on the same port while clients of `hostler up` call them.
 * The short tier compares counts; how soon service resumes is judged by the long lane, on a quiet machine.
 */
import { expect, test } from 'vitest';
import { countFor, isLongTier } from '../tier.js';
import { runInNamespace } from './in-namespace.js';

const kills = Number(process.env.KILLS ?? countFor(3, 50));
/**
 * How long the servers serve between two kills. With the defaults of Hostler a run counts as proven after 5 s; a shorter life than
 * that, often repeated, spends the budget of restarts and parks the server, as it should.
 */
const servesMs = isLongTier ? ['5500', '8000'] : ['200', '400'];
/** How long a server is away at most before its next process is started. */
const downMsMax = String(countFor(300, 2_000));
/** The long lane keeps 50 calls a second whatever happens; the short tier sends fewer on a machine that cannot keep up. */
const openCallsMax = String(countFor(64, 1_000_000));

interface Figures {
  readonly writes: number;
  readonly executions: number;
  readonly outcomes: Readonly<Record<string, Readonly<Record<string, number>>>>;
}

test(`W6 server-everything is killed and restarted ${kills} times under load: each time it is served again, and no write runs twice`, {
  timeout: 3_600_000,
}, async () => {
  const figures = await runInNamespace<Figures>(
    'W6',
    './http-restart-driver.mjs',
    kills,
    downMsMax,
    ...servesMs,
    openCallsMax,
  );
  expect(figures).toMatchObject({
    ...{ kills, neverResumed: 0, unsettled: 0 },
    ...{ executedTwice: 0, answeredButNotExecuted: 0, notExecutedButExecuted: 0 },
    ...{ processesLeft: 0, problems: [] },
  });
  // Each time, a call succeeded within 2 s after the port answered, and so did every call that began later.
  if (isLongTier) expect(figures).toMatchObject({ resumedTooLate: 0, failedLate: 0 });
  expect(figures.outcomes).not.toHaveProperty('everything.wrong_answer');
  expect(figures.outcomes).not.toHaveProperty('ledger.wrong_answer');
  // Calls ran, and some were interrupted.
  expect(figures.executions).toBeGreaterThan(kills);
  expect(figures.writes).toBeGreaterThan(figures.outcomes.ledger?.ok ?? 0);
});
