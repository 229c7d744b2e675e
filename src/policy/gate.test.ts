import { describe, expect, test } from 'vitest';
import { answering, failureOf, fakeCall, fakeResult, promised, staged } from '../../test/fakes/policy-call.js';
import { HostError, type HostErrorOptions } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { Breaker, defaultBreakerPlan } from './breaker.js';
import type { Call } from './call.js';
import { gate, speaksAgainstServer } from './gate.js';

const error = (code: ConstructorParameters<typeof HostError>[0], details: HostErrorOptions = {}) =>
  new HostError(code, 'could not connect', details);

describe('AC-H11 what speaks against a server is its connection, by code and facts, whatever the text', () => {
  test.each([
    ['the end of its stream', error('transport', { reason: 'exit' })],
    ['a deadline after the call was sent', error('timeout', { phase: 'written', execution: 'uncertain' })],
    ['a write that failed', error('transport', { phase: 'writing' })],
    ['use after the connection was lost', error('transport', { phase: 'queued', execution: 'not_executed' })],
    ['a connection that could not be opened', error('connect_failed')],
    ['an outcome nobody knows', error('outcome_uncertain')],
    ['a message that cannot be read', error('protocol_error', { reason: 'frame_too_large' })],
    ['a status of 500', error('transport', { httpStatus: 500 })],
  ])('%s does', (_what, thrown) => {
    expect(speaksAgainstServer(thrown)).toBe(true);
  });

  describe('K3 an answer, a refusal or a caller who leaves', () => {
    test.each([
      ['an error the server answered with', error('tool_error', { reason: 'rpc_error' })],
      ['bad arguments', error('invalid_arguments', { rpcCode: -32602 })],
      ['a refused authorization', error('needs_reauth', { httpStatus: 401 })],
      ['too many requests', error('overloaded', { httpStatus: 429 })],
      ['a refusal in words of HTTP', error('protocol_error', { httpStatus: 403 })],
      ['a caller who left', error('cancelled')],
      ['a caller whose time was up before anything was sent', error('timeout', { phase: 'queued' })],
      ['D-37 a server that is just reconnecting', error('reconnecting')],
      ['a server that is parked', error('server_parked')],
      ['a denial', error('denied')],
      ['a bug of ours', new Error('could not connect')],
    ])('%s does not', (_what, thrown) => {
      expect(speaksAgainstServer(thrown)).toBe(false);
    });
  });
});

/** A server behind a breaker with the numbers of AC-C1: three failures, sixty seconds. */
function guarded(answer: (call: Call) => Promise<ReturnType<typeof fakeResult>>) {
  const clock = new FakeClock();
  const breaker = new Breaker({ ...defaultBreakerPlan, threshold: 3, resetMs: 60_000 });
  let sent = 0;
  const stage = gate(() => breaker, clock);
  const send = promised(
    staged(stage)(
      answering((call) => {
        sent++;
        return answer(call);
      }),
    ),
  );
  const call = (part: Partial<Call> = {}) => send(fakeCall({ deadlineAtMs: clock.nowMs() + 30_000, ...part }));
  return { clock, breaker, call, sent: () => sent };
}

async function opened(answer: (call: Call) => Promise<ReturnType<typeof fakeResult>>) {
  let fails = true;
  const server = guarded((call) => (fails ? Promise.reject(error('transport')) : answer(call)));
  for (let i = 0; i < 3; i++) await failureOf(server.call());
  fails = false;
  return server;
}

test('AC-C1 while it is open nothing is sent; after its time one call passes, and a success closes it', async () => {
  const { clock, breaker, call, sent } = await opened(() => Promise.resolve(fakeResult()));
  const refused = await failureOf(call());
  expect(refused.toJSON()).toMatchObject({
    code: 'circuit_open',
    execution: 'not_executed',
    retryable: true,
    retryAfterMs: 60_000,
  });
  expect([refused.message.includes('unreachable'), sent()]).toEqual([true, 3]);
  clock.advance(61_000);
  await call();
  expect([sent(), breaker.failures, breaker.circuit(clock.nowMs())]).toEqual([4, 0, 'closed']);
});

test('AC-C2 a trial that fails opens it again at once', async () => {
  const { clock, call, sent } = await opened(() => Promise.reject(error('transport')));
  clock.advance(61_000);
  expect((await failureOf(call())).code).toBe('transport');
  expect((await failureOf(call())).code).toBe('circuit_open');
  expect(sent()).toBe(4);
});

test('D-39 the trial has a deadline of its own, and one that says nothing about the server frees its place', async () => {
  const deadlines: number[] = [];
  const { clock, call, sent } = await opened(({ deadlineAtMs }) => {
    deadlines.push(deadlineAtMs);
    return Promise.reject(error('cancelled'));
  });
  clock.advance(60_000);
  await failureOf(call());
  await failureOf(call());
  expect([deadlines, sent()]).toEqual([[65_000, 65_000], 5]);
});

test('K1 of a thousand callers at the end of the open time exactly one is the trial, in every round', async () => {
  let release: (() => void)[] = [];
  const { clock, call, sent } = await opened(
    () => new Promise((_resolve, reject) => release.push(() => reject(error('transport')))),
  );
  for (let round = 1; round <= 20; round++) {
    clock.advance(300_000);
    const calls = Array.from({ length: 1_000 }, () => failureOf(call()));
    expect(sent()).toBe(3 + round);
    for (const settle of release.splice(0)) settle();
    const codes = (await Promise.all(calls)).map(({ code }) => code);
    expect(codes.filter((code) => code === 'circuit_open')).toHaveLength(999);
    release = [];
  }
});

test('a connection that is lost under many calls is one failure, of its supervisor’s: nobody else is refused', async () => {
  const clock = new FakeClock();
  const breaker = new Breaker({ ...defaultBreakerPlan, threshold: 3 });
  let isOver = true;
  const fails = answering(() => Promise.reject(error('outcome_uncertain', { execution: 'uncertain' })));
  const send = promised(
    staged(
      gate(
        () => breaker,
        clock,
        () => isOver,
      ),
    )(fails),
  );
  for (let i = 0; i < 16; i++) await failureOf(send(fakeCall()));
  expect([breaker.isClosed, breaker.failures]).toEqual([true, 0]);
  isOver = false;
  for (let i = 0; i < 3; i++) await failureOf(send(fakeCall()));
  expect(breaker.isClosed).toBe(false);
});
