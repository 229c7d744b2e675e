/** What a caller is told when the breaker, or the check before a trial, refuses its operation. */
import { expect, test } from 'vitest';
import { FakeCircuit } from '../../test/fakes/gated-circuit.js';
import { failureOf, fakeCall, fakeList, fakeResult, promised, staged } from '../../test/fakes/policy-call.js';
import { Cancellation } from '../kernel/cancel-signal.js';
import type { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { Breaker, type CheckResult, defaultBreakerPlan } from './breaker.js';
import { breakerStage } from './breaker-stage.js';
import type { Call, Done } from './operation.js';

/** A breaker that three failures opened at time 0 for 60 s, and a check that ends when the test says so. */
function open() {
  const clock = new FakeClock();
  const breaker = new Breaker({ ...defaultBreakerPlan, threshold: 3, resetMs: 60_000 });
  for (let i = 0; i < 3; i++) {
    const admission = breaker.admit(0);
    if (admission.admitted) breaker.failed(admission.ticket, 0, 'timeout');
  }
  const circuit = new FakeCircuit(breaker);
  let find: (result: CheckResult) => void = () => {};
  circuit.finds = new Promise((resolve) => {
    find = resolve;
  });
  const running: Done[] = [];
  const send = promised(staged(breakerStage(() => circuit, clock))((_call, done) => running.push(done)));
  const call = (part: Partial<Call> = {}) => send(fakeCall({ deadlineAtMs: clock.nowMs() + 30_000, ...part }));
  return { clock, breaker, circuit, find, running, call };
}

/** Everything that a caller sees of an error, in one object. */
const seen = ({ code, message, hint, details }: HostError) => ({ code, message, hint, ...details });

const refused = {
  code: 'circuit_open',
  message: "server 'github' is unreachable: it failed 3 times in a row",
  server: 'github',
  tool: 'get_issue',
  phase: 'queued',
  execution: 'not_executed',
};

test.each([
  [0, 60_000, 60],
  [30_000, 30_000, 30],
  [58_999, 1_001, 2],
  [59_999, 1, 1],
])(
  'an open breaker says after %i ms how often the server failed, and that a call may pass in %i ms: %i s, rounded up',
  async (afterMs, retryAfterMs, seconds) => {
    const { clock, call, running } = open();
    clock.advance(afterMs);
    expect(seen(await failureOf(call()))).toEqual({
      ...refused,
      retryAfterMs,
      hint: `do not call it again before ${seconds} s have passed`,
    });
    expect(running).toEqual([]);
  },
);

test('a refused list names the server and no tool', async () => {
  const { call } = open();
  const error = await failureOf(call(fakeList() as Partial<Call>));
  expect([error.details.server, 'tool' in error.details]).toEqual(['github', false]);
});

test('a caller that is refused during a trial is told that another call is trying the server', async () => {
  const { clock, call, find, running } = open();
  clock.advance(60_000);
  const trial = call();
  expect(seen(await failureOf(call()))).toEqual({
    ...refused,
    message: "server 'github' is unreachable: one call is trying it now",
    retryAfterMs: 5_000,
    hint: 'do not call it again before 5 s have passed',
  });
  find('alive');
  await Promise.resolve();
  running[0]?.(fakeResult());
  await trial;
});

test('the caller of a trial whose check fails is told of one more failure, not of a trial by another call', async () => {
  const { clock, call, find } = open();
  clock.advance(60_000);
  const trial = failureOf(call());
  find('timeout');
  expect(seen(await trial)).toEqual({
    ...refused,
    message: "server 'github' is unreachable: it failed 4 times in a row",
    retryAfterMs: 120_000,
    hint: 'do not call it again before 120 s have passed',
  });
});

test.each([
  ['cancels', 'cancelled', 'the caller cancelled'],
  ['reaches its deadline', 'timeout', 'the deadline passed'],
])('a caller that %s during the check is told that its call did not run and why', async (how, code, why) => {
  const { clock, call } = open();
  clock.advance(60_000);
  const signal = new Cancellation();
  const trial = failureOf(call({ signal }));
  if (how === 'cancels') signal.abort();
  else clock.advance(30_000);
  expect(seen(await trial)).toEqual({
    code,
    message: `${why} while server 'github' was being checked after failures`,
    server: 'github',
    tool: 'get_issue',
    reason: 'trial_check',
    phase: 'queued',
    execution: 'not_executed',
    hint: 'the request did not run and can be sent again',
  });
});

test('a caller that cancels after the check has passed leaves the end of its call to the later stages', async () => {
  const { clock, breaker, call, find, running } = open();
  clock.advance(60_000);
  const leaving = new AbortController();
  const trial = call({ signal: leaving.signal });
  find('alive');
  await Promise.resolve();
  expect(running).toHaveLength(1);
  leaving.abort();
  const answer = fakeResult('an answer that came before the cancellation');
  running[0]?.(answer);
  expect([await trial, breaker.isClosed]).toEqual([answer, true]);
});
