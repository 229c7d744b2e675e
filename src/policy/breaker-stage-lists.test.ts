import { expect, test } from 'vitest';
import { FakeCircuit } from '../../test/fakes/gated-circuit.js';
import { failureOf, fakeList, fakeResult, promised, staged } from '../../test/fakes/policy-call.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { Breaker, defaultBreakerPlan } from './breaker.js';
import { breakerStage } from './breaker-stage.js';
import type { Call, CallResult } from './operation.js';

const fine = fakeResult('fine');
const garbled = () => Promise.reject(new HostError('protocol_error', 'gone'));

function open(threshold = 2) {
  const clock = new FakeClock();
  const breaker = new Breaker({ ...defaultBreakerPlan, threshold });
  const circuit = new FakeCircuit(breaker);
  const list = (run: () => Promise<unknown>, deadlineMs = 10_000) => {
    const send = promised(
      staged(breakerStage(() => circuit, clock))((operation, done) => {
        operation.stage.sentAtMs = clock.nowMs();
        void run().then((result) => done((result === 'fine' ? fine : result) as CallResult), done);
      }),
    );
    return send(fakeList({ server: 'files', deadlineAtMs: clock.nowMs() + deadlineMs }) as Call);
  };
  const callFails = () => {
    const admission = breaker.admit(clock.nowMs());
    if (admission.admitted) breaker.failed(admission.ticket, clock.nowMs(), 'timeout');
  };
  return { clock, breaker, circuit, list, callFails };
}

test('D-17 an open breaker refuses a list, and the server is not asked', async () => {
  const { list, callFails } = open();
  callFails();
  callFails();
  let asked = 0;
  const error = await failureOf(list(async () => asked++));
  expect(error.toJSON()).toMatchObject({ code: 'circuit_open', retryAfterMs: 30_000, execution: 'not_executed' });
  expect(asked).toBe(0);
});

test('D-17 a list that succeeds neither closes a breaker that calls opened nor resets their failures', async () => {
  const { clock, breaker, list, callFails } = open();
  callFails();
  await list(async () => 'fine');
  expect(breaker.failures).toBe(1);
  let answer: (value: string) => void = () => {};
  const early = list(
    () =>
      new Promise<string>((resolve) => {
        answer = resolve;
      }),
  );
  callFails();
  answer('fine');
  expect([await early, breaker.circuit(clock.nowMs())]).toEqual([fine, 'open']);
});

test('D-17 a list that is the trial closes the breaker, after the check of the session', async () => {
  const { clock, breaker, circuit, list, callFails } = open();
  callFails();
  callFails();
  clock.advance(30_000);
  circuit.finds = Promise.resolve('alive');
  expect(await list(async () => 'fine')).toBe(fine);
  expect([breaker.circuit(clock.nowMs()), circuit.checks]).toEqual(['closed', 1]);
});

test('W9 a list is refused and not sent when the check before it gets no answer', async () => {
  const { clock, breaker, circuit, list, callFails } = open();
  callFails();
  callFails();
  clock.advance(30_000);
  circuit.finds = Promise.resolve('timeout');
  let asked = 0;
  expect((await failureOf(list(async () => asked++))).code).toBe('circuit_open');
  expect([asked, breaker.circuit(clock.nowMs()), breaker.failures]).toEqual([0, 'open', 3]);
});

test.each([
  [8_900, 1, 0],
  [9_000, 0, 1],
  [10_000, 0, 1],
  [4_000, 0, 0],
])(
  'W10 a list during which no message arrives for %i ms: %i checks, %i strikes',
  async (deadlineMs, suspects, failures) => {
    const { clock, breaker, circuit, list } = open();
    circuit.lastMessageAtMs = 0;
    const late = new HostError('timeout', 'late', { phase: 'written' });
    const asked = failureOf(
      list(() => new Promise((_, reject) => clock.at(deadlineMs, () => reject(late))), deadlineMs),
    );
    await clock.advanceAsync(deadlineMs);
    expect(await asked).toBe(late);
    expect([circuit.suspects.length, breaker.failures]).toEqual([suspects, failures]);
  },
);

test('a failed list is a strike; a refused or abandoned list is not', async () => {
  const { clock, breaker, list } = open();
  await failureOf(list(() => Promise.reject(new HostError('protocol_error', 'no', { reason: 'rpc_error' }))));
  await failureOf(list(() => Promise.reject(new HostError('cancelled', 'no'))));
  expect(breaker.failures).toBe(0);
  await failureOf(list(garbled));
  await failureOf(list(garbled));
  expect(breaker.circuit(clock.nowMs())).toBe('open');
  clock.advance(30_000);
  // A trial that gives no evidence about the server leaves its place to the next trial.
  await failureOf(list(() => Promise.reject(new HostError('cancelled', 'no'))));
  await list(async () => 'fine');
  expect(breaker.circuit(clock.nowMs())).toBe('closed');
});
