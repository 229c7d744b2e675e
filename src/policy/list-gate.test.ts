import { expect, test } from 'vitest';
import { failureOf } from '../../test/fakes/policy-call.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { Breaker, defaultBreakerPlan } from './breaker.js';
import { throughGate } from './list-gate.js';

const lost = () => Promise.reject(new HostError('transport', 'gone'));

function open(threshold = 2) {
  const clock = new FakeClock();
  const breaker = new Breaker({ ...defaultBreakerPlan, threshold });
  const list = <T>(run: (deadlineAtMs: number) => Promise<T>) =>
    throughGate('files', breaker, clock, clock.nowMs() + 10_000, run);
  const callFails = () => {
    const admission = breaker.admit(clock.nowMs(), clock.nowMs() + 1_000);
    if (admission.admitted) breaker.failed(admission.ticket, clock.nowMs());
  };
  return { clock, breaker, list, callFails };
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

test('D-17 a list that works neither closes what calls opened nor forgives what they have failed', async () => {
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
  answer('late');
  expect([await early, breaker.circuit(clock.nowMs())]).toEqual(['late', 'open']);
});

test('D-17 a list that is the probe closes it, and has the probe’s deadline', async () => {
  const { clock, breaker, list, callFails } = open();
  callFails();
  callFails();
  clock.advance(30_000);
  expect(await list(async (deadlineAtMs) => deadlineAtMs)).toBe(35_000);
  expect(breaker.circuit(clock.nowMs())).toBe('closed');
});

test('a list that fails speaks against the server; one that is refused or given up does not', async () => {
  const { clock, breaker, list } = open();
  await failureOf(list(() => Promise.reject(new HostError('protocol_error', 'no', { reason: 'rpc_error' }))));
  await failureOf(list(() => Promise.reject(new HostError('cancelled', 'no'))));
  expect(breaker.failures).toBe(0);
  await failureOf(list(lost));
  await failureOf(list(lost));
  expect(breaker.circuit(clock.nowMs())).toBe('open');
  clock.advance(30_000);
  // A probe that says nothing about the server leaves its place to the next.
  await failureOf(list(() => Promise.reject(new HostError('cancelled', 'no'))));
  await list(async () => 'fine');
  expect(breaker.circuit(clock.nowMs())).toBe('closed');
});
