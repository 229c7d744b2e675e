import { describe, expect, test } from 'vitest';
import { managedSession } from '../../test/fakes/managed-session.js';
import { fakeOperations } from '../../test/fakes/operations.js';
import { failureOf, fakePrincipal } from '../../test/fakes/policy-call.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { Guard } from '../policy/allowlist.js';
import { CallBudgets, type RateLimit } from '../policy/rate-limit.js';
import type { CallOptions, Session } from '../session/session.js';
import type { InboundRequest } from '../wire/inbound-requests.js';
import type { Answer } from '../wire/peer-interface.js';
import { Audit } from './audit.js';
import type { HostRequestOptions } from './host-interface.js';

const minute = 60_000;
const settle = () => new Promise<void>((resolve) => setImmediate(resolve));
const ok = (text = '{"messages":[]}'): Answer => ({ kind: 'result', bytes: Buffer.from(text), mayHold: 0 });
const ann = fakePrincipal('ann');

/** A requester with one server that answers when the test says so. */
function setUp(entry: Record<string, unknown> = {}, rateLimit?: RateLimit) {
  const clock = new FakeClock(1_000);
  const asked: { method: string; params: unknown; options: CallOptions; answer(outcome: Answer | Error): void }[] = [];
  const session = {
    closedBy: undefined,
    lastMessageAtMs: 0,
    facts: { era: 'modern' },
    request: (method: string, params: unknown, options: CallOptions) =>
      new Promise<Answer>((resolve, reject) => {
        const answer = (outcome: Answer | Error) => (outcome instanceof Error ? reject(outcome) : resolve(outcome));
        asked.push({ method, params, options, answer });
      }),
    close: () => Promise.resolve(),
  } as unknown as Session;
  const held = { now: 0 };
  const hold = { enter: () => void held.now++, leave: () => void held.now-- };
  const managed = managedSession('a', session, clock, { breaker: { threshold: 1 }, ...entry }, hold);
  const guards: Guard[] = [];
  const denied: unknown[] = [];
  const instances: (string | undefined)[] = [];
  const principals = new Map(rateLimit ? [['ann', rateLimit]] : []);
  const requester = fakeOperations({
    clock,
    serverOf: () => managed,
    targetOf: (server, instance) => {
      instances.push(instance);
      return server;
    },
    guards: () => guards,
    budgets: new CallBudgets(clock, () => ({ principals, roles: new Map() })),
    audit: new Audit({ hasCallListeners: true, emit: (_server, event) => denied.push(event) }, clock),
  });
  const ask = (method = 'prompts/get', options: HostRequestOptions = {}) =>
    requester.request('a', method, '{"name":"p"}', { principal: ann, ...options });
  return { clock, asked, held, managed, guards, denied, instances, ask, requester };
}

test('the answer of the server, or its error, is returned with the era of its format', async () => {
  const { asked, held, ask } = setUp();
  const outcomes = [ask(), ask('completion/complete')];
  await settle();
  expect([asked.map(({ method }) => method), held.now]).toEqual([['prompts/get', 'completion/complete'], 2]);
  const error: Answer = { kind: 'error', bytes: Buffer.from('{"code":-32002}'), mayHold: 0 };
  asked[0]?.answer(ok());
  asked[1]?.answer(error);
  expect(await Promise.all(outcomes)).toEqual([
    { ...ok(), era: 'modern' },
    { ...error, era: 'modern' },
  ]);
  expect(held.now).toBe(0);
});

test('a request has the time limit of a call: the limit of the server, extended by progress to at most ten minutes', async () => {
  const { clock, asked, ask } = setUp({ timeouts: { call: '2m' } });
  const nowMs = clock.nowMs();
  void ask();
  void ask('prompts/get', { deadlineMs: 5_000 });
  await settle();
  const extended = ({ byMs, untilMs }: { byMs?: number; untilMs?: number } = {}) => ({ byMs, untilMs });
  expect(asked.map(({ options }) => [options.deadlineAtMs, extended(options.extend)])).toEqual([
    [nowMs + 2 * minute, { byMs: 2 * minute, untilMs: nowMs + 10 * minute }],
    [nowMs + 5_000, { byMs: 2 * minute, untilMs: nowMs + 5_000 }],
  ]);
});

test('the metadata, handlers and instance of the relayed client are passed on', async () => {
  const { asked, instances, ask } = setUp({ isolation: 'per-client' });
  const onServerNotification = () => {};
  void ask('prompts/get', { meta: '"a":1', instance: 'ann', onServerNotification });
  await settle();
  expect(new Set(instances)).toEqual(new Set(['ann']));
  expect(asked[0]?.options).toMatchObject({ relay: { meta: '"a":1' }, onServerNotification });
  expect(asked[0]?.options.onServerRequest).toBeUndefined();
});

describe('a request is refused before anything is sent', () => {
  test.each([
    'tools/call',
    'tools/list',
    'initialize',
    'subscriptions/listen',
    'notifications/cancelled',
    '',
    'x'.repeat(257),
  ])('if its method is %j', async (method) => {
    const { asked, ask } = setUp();
    expect(await failureOf(ask(method))).toMatchObject({ code: 'invalid_request', details: { field: 'method' } });
    expect(asked).toEqual([]);
  });

  test('if its params are not one object, or its deadline is not a number', async () => {
    const { requester, ask } = setUp();
    expect((await failureOf(requester.request('a', 'x', '[]', {}))).code).toBe('invalid_arguments');
    expect((await failureOf(requester.request('a', 'x', '{"a":1,"a":2}', {}))).code).toBe('invalid_arguments');
    expect((await failureOf(ask('x', { deadlineMs: 'soon' as never }))).details.field).toBe('deadlineMs');
  });

  test('by a guard, which decides about the server as a whole, and the denial is reported', async () => {
    const { guards, denied, asked, ask } = setUp();
    guards.push(() => ({ allow: false, reason: 'no' }));
    expect((await failureOf(ask())).code).toBe('denied');
    const { id, role } = ann;
    const event = { kind: 'denied', action: 'call', principal: { id, role }, tool: undefined, requestId: undefined };
    expect([denied, asked]).toEqual([[event], []]);
  });

  test('by a rate limit', async () => {
    const { asked, ask } = setUp({}, { calls: 1, windowMs: minute });
    void ask();
    expect((await failureOf(ask())).code).toBe('budget_exceeded');
    await settle();
    expect(asked).toHaveLength(1);
  });

  test('by an open breaker; before that, requests wait for their turn in the queue of calls', async () => {
    const { asked, ask } = setUp({ concurrency: 1 });
    const outcomes = [failureOf(ask()), failureOf(ask())];
    await settle();
    expect(asked).toHaveLength(1);
    asked[0]?.answer(new HostError('transport', 'gone', { execution: 'uncertain', phase: 'written' }));
    expect((await outcomes[0])?.code).toBe('transport');
    expect((await failureOf(ask())).code).toBe('circuit_open');
  });
});

describe('W11 a request that waited in the queue', () => {
  test.each(['resources/read', 'prompts/get', 'completion/complete', 'vendor/method'])(
    'as %s is not sent to a server that meanwhile asked for fewer requests',
    async (method) => {
      const { clock, asked, ask, managed } = setUp({ concurrency: 1 });
      const [first, second] = [failureOf(ask('prompts/get')), failureOf(ask(method))];
      await settle();
      expect([asked.length, managed.slots.waiting]).toEqual([1, 1]);
      asked[0]?.answer(
        new HostError('overloaded', '429', { httpStatus: 429, retryAfterMs: 5_000, execution: 'not_executed' }),
      );
      expect((await first).details).toMatchObject({ reason: 'throttled', retryAfterMs: 5_000 });
      expect((await second).details).toMatchObject({
        reason: 'throttled',
        execution: 'not_executed',
        retryAfterMs: 5_000,
      });
      expect(asked).toHaveLength(1);
      clock.advance(5_000);
      const third = ask(method);
      await settle();
      asked[1]?.answer(ok());
      expect((await third).kind).toBe('result');
    },
  );
});

describe('a failed request', () => {
  test('is sent again only if no byte of it was sent', async () => {
    const { asked, ask, clock } = setUp();
    const outcome = failureOf(ask());
    await settle();
    asked[0]?.answer(new HostError('transport', 'gone', { execution: 'not_executed', phase: 'queued' }));
    await clock.advanceAsync(100);
    expect(asked).toHaveLength(2);
    asked[1]?.answer(new HostError('transport', 'gone', { execution: 'uncertain', phase: 'written' }));
    expect((await outcome).details.execution).toBe('uncertain');
    expect(asked).toHaveLength(2);
  });

  test('because a person took too long does not count against the server', async () => {
    const heard: string[] = [];
    const { clock, asked, ask } = setUp();
    const late = () => new HostError('timeout', 'no answer by the deadline', { phase: 'written' });
    const first = failureOf(ask('prompts/get', { onServerRequest: ({ method }) => heard.push(method) }));
    await settle();
    asked[0]?.options.onServerRequest?.({ method: 'elicitation/create' } as InboundRequest);
    clock.advance(2 * minute);
    asked[0]?.answer(late());
    expect((await first).code).toBe('timeout');
    const second = failureOf(ask());
    await settle();
    clock.advance(minute);
    asked[1]?.answer(late());
    expect((await second).code).toBe('timeout');
    expect([heard, (await failureOf(ask())).code]).toEqual([['elicitation/create'], 'circuit_open']);
  });
});
