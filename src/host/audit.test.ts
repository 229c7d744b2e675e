import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { fakeCall, fakeResult } from '../../test/fakes/policy-call.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { PolicyEvent } from '../policy/policy-events.js';
import { Audit, type CallFacts, observe, ownError } from './audit.js';

function streamOf({ hasCallListeners = true } = {}) {
  const told: PolicyEvent[] = [];
  return { hasCallListeners, told, emit: (_server: string, event: PolicyEvent) => void told.push(event) };
}

const facts: CallFacts = { durationMs: 12, trail: { attempts: 1, run: 3 } };
const call = fakeCall({ args: '{"b":1,"a":"hunter2-hunter2"}' });
const about = { requestId: 'r1', principal: { id: 'ann', role: 'dev' }, tool: 'get_issue' };
const failure = (code: HostError['code'], details = {}) => new HostError(code, 'it failed', details);

test('a record has the principal, the tool, the outcome, the duration and the run', () => {
  const stream = streamOf();
  observe(stream, call, fakeResult(), facts);
  expect(stream.told).toEqual([
    {
      kind: 'call',
      ...about,
      argumentsHash: createHash('sha256').update('{"a":"hunter2-hunter2","b":1}').digest('hex'),
      outcome: 'ok',
      execution: 'executed',
      durationMs: 12,
      attempts: 1,
      fromCache: false,
      run: 1,
    },
  ]);
  expect(JSON.stringify(stream.told)).not.toContain('hunter2');
});

test.each([
  ['a result that is an error', fakeResult('{}', { isError: true }), 'tool_error', 'executed', 1],
  ['an answer from the cache', fakeResult('{}', { run: 0 }), 'ok', 'not_executed', 0],
  ['a failure', failure('timeout', { execution: 'uncertain' }), 'timeout', 'uncertain', 3],
  ['a failure without a statement about execution', failure('transport'), 'transport', undefined, 3],
] as const)('%s is recorded with its own outcome', (_name, outcome, code, execution, run) => {
  const stream = streamOf();
  observe(stream, call, outcome, facts);
  expect(stream.told).toMatchObject([{ kind: 'call', outcome: code, execution, run }]);
});

test.each([
  [failure('denied'), { kind: 'denied', action: 'call' }],
  [failure('budget_exceeded', { limit: 2, actual: 3 }), { kind: 'budget', limit: 2, spent: 3 }],
  [failure('tool_throttled', { retryAfterMs: 9 }), { kind: 'throttled', retryAfterMs: 9 }],
  [failure('outcome_uncertain', { reason: 'exit' }), { kind: 'uncertain', reason: 'exit' }],
] as const)('the event about a failed call is emitted before the record of the call', (error, event) => {
  const stream = streamOf();
  observe(stream, call, error, facts);
  expect(stream.told).toEqual([{ ...event, ...about }, expect.objectContaining({ kind: 'call', outcome: error.code })]);
});

test('the refusal of an operation that is no call is emitted with action and principal', () => {
  const stream = streamOf({ hasCallListeners: false });
  const principal = { id: 'ann', role: 'dev', scopes: ['hunter2'] };
  new Audit(stream, new FakeClock()).denied({ principal, server: 'git', tool: undefined, action: 'list' });
  const { requestId, tool, ...who } = { ...about, requestId: undefined, tool: undefined };
  expect(stream.told).toEqual([{ kind: 'denied', action: 'list', requestId, tool, ...who }]);
});

test('without a listener for calls no hash and no record is made, even if a listener is added during the call', () => {
  let looks = 0;
  const watched = Object.defineProperty({ ...call }, 'args', {
    get() {
      looks++;
      return '{}';
    },
  });
  const silent = streamOf({ hasCallListeners: false });
  observe(silent, watched, fakeResult(), facts);
  const late = streamOf();
  observe(late, watched, fakeResult(), undefined);
  expect([looks, silent.told, late.told]).toEqual([0, [], []]);
  observe(late, watched, fakeResult(), facts);
  expect([looks, late.told.length]).toEqual([1, 1]);
});

test('the hash is computed at its first use, and stored', () => {
  const stream = streamOf();
  const args = Buffer.from('{"a":1}');
  observe(stream, fakeCall({ args }), fakeResult(), facts);
  args[5] = 0x32;
  const [record] = stream.told as { argumentsHash?: string }[];
  const hash = createHash('sha256').update('{"a":2}').digest('hex');
  expect(record?.argumentsHash).toBe(hash);
  args[5] = 0x33;
  expect(record?.argumentsHash).toBe(hash);
});

test('arguments without a canonical form have no hash, and the call is still recorded', () => {
  const stream = streamOf();
  observe(stream, fakeCall({ args: '{"a":1,"a":2}' }), fakeResult(), facts);
  expect(stream.told).toMatchObject([{ kind: 'call', argumentsHash: undefined, outcome: 'ok' }]);
});

test('an error gets the request id of its call and is otherwise unchanged', () => {
  const cause = new Error('below');
  const shared = new HostError('transport', 'gone', { server: 's', execution: 'uncertain', hint: 'look', cause });
  const own = ownError(shared, call);
  expect(own).not.toBe(shared);
  expect([own.code, own.message, own.hint, own.cause]).toEqual(['transport', 'gone', 'look', cause]);
  expect(own.details).toEqual({ server: 's', execution: 'uncertain', requestId: 'r1' });
  expect(shared.details.requestId).toBeUndefined();
  expect(ownError(own, call)).toBe(own);
  expect(ownError(own, fakeCall({ requestId: 'r2' })).details.requestId).toBe('r2');
});

test('no record is made of a call without a listener; its error still gets the request id', async () => {
  const clock = new FakeClock();
  const silent = new Audit(streamOf({ hasCallListeners: false }), clock);
  expect(silent.begin('r', 1, 's', 't')).toBeUndefined();
  const result = fakeResult();
  expect(silent.ended(call, result, undefined)).toBe(result);
  expect((silent.ended(call, failure('denied'), undefined) as HostError).details.requestId).toBe('r1');

  const stream = streamOf();
  const audit = new Audit(stream, clock);
  const watch = audit.begin('r', 1, 's', 't');
  await clock.advanceAsync(40);
  audit.replayed(call, 2, 'not_executed', failure('connect_failed'));
  audit.ended(call, result, watch);
  expect(stream.told).toMatchObject([
    { kind: 'replay', ...about, attempt: 2, reason: 'not_executed', code: 'connect_failed' },
    { kind: 'call', durationMs: 40, attempts: 0 },
  ]);
});
