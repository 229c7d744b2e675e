import { describe, expect, test } from 'vitest';
import {
  answering,
  failureOf,
  fakeCall,
  fakePrincipal,
  fakeResult,
  promised,
  staged,
} from '../../test/fakes/policy-call.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { allow } from './allowlist.js';
import { callCachePlan, ResponseCache } from './cache.js';
import { type CallCacheParts, cachedCalls } from './cache-stage.js';
import type { Call, CallResult } from './operation.js';
import { budget, CallBudgets } from './rate-limit.js';
import { SingleFlight } from './single-flight.js';

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));
const kept = '{"content":[],"ttlMs":100,"cacheScope":"private"}';

/** A server that answers at once with `reply`. If `holds` is set, it answers when the test calls the function in `held`. */
function setUp(part: Partial<CallCacheParts> = {}) {
  const clock = new FakeClock();
  const cache = new ResponseCache(clock, callCachePlan);
  const flights = new SingleFlight(clock);
  const state = { fingerprint: 'f1', readOnly: false, reply: kept, isError: false, holds: false };
  const held: ((result: CallResult) => void)[] = [];
  const sent: Call[] = [];
  const stage = cachedCalls({
    cache,
    flights,
    mayCache: () => true,
    fingerprintOf: () => state.fingerprint,
    traitsOf: () => ({ isReadOnly: state.readOnly, isIdempotent: false, isTrusted: true }),
    noticeAccount: () => {},
    ...part,
  });
  const upstream = async (call: Call): Promise<CallResult> => {
    sent.push(call);
    if (state.holds) return new Promise((resolve) => held.push(resolve));
    return fakeResult(state.reply, { isError: state.isError });
  };
  const send = promised(staged(stage)(answering(upstream)));
  return { clock, cache, flights, state, held, sent, stage, upstream, send };
}

describe('a cached answer', () => {
  test('AC-H17 the first call misses, the second equal one hits with equal bytes', async () => {
    const { cache, sent, send } = setUp();
    const first = await send(fakeCall({ args: '{"a":1,"b":2}' }));
    const second = await send(fakeCall({ args: Buffer.from('{ "b": 2, "a": 1.0 }') }));
    expect([first.fromCache, second.fromCache, second.run, sent.length]).toEqual([false, true, 0, 1]);
    expect(second.bytes.equals(first.bytes)).toBe(true);
    expect(cache.stats()).toMatchObject({ hits: 1, misses: 1 });
  });

  test('AC-H6 is gone when its time is over', async () => {
    const { clock, sent, send } = setUp();
    await send(fakeCall());
    clock.advance(200);
    expect((await send(fakeCall())).fromCache).toBe(false);
    expect(sent).toHaveLength(2);
  });

  test('is never used for a call with huge arguments, and such a call is not shared', async () => {
    const { cache, state, sent, send } = setUp();
    state.readOnly = true;
    await send(fakeCall());
    const args = JSON.stringify({ a: 'x'.repeat(300_000) });
    await Promise.all([send(fakeCall({ args })), send(fakeCall({ args }))]);
    expect([sent.length, cache.stats().entries]).toEqual([3, 1]);
  });

  test('D-20 is not returned to another principal, unless it is public', async () => {
    const { state, sent, send } = setUp();
    const bob = fakeCall({ principal: fakePrincipal('bob', 'dev') });
    await send(fakeCall());
    await send(bob);
    expect(sent).toHaveLength(2);
    state.reply = '{"ttlMs":100,"cacheScope":"public"}';
    await send(fakeCall({ args: '[1]' }));
    expect((await send({ ...bob, args: '[1]' })).fromCache).toBe(true);
  });

  test('D-59 is not returned for another large integer', async () => {
    const { send } = setUp();
    await send(fakeCall({ args: '{"id":9007199254740993}' }));
    expect((await send(fakeCall({ args: '{"id":9007199254740992}' }))).fromCache).toBe(false);
    expect((await send(fakeCall({ args: '{"id":9007199254740993}' }))).fromCache).toBe(true);
  });

  test('X9 is not returned after the configuration or a pin has changed', async () => {
    const { state, send } = setUp();
    await send(fakeCall());
    state.fingerprint = 'f2';
    expect((await send(fakeCall())).fromCache).toBe(false);
  });

  test('AC-H19 is charged to the budget, and returned while the server is down', async () => {
    const { clock, stage, upstream, state, cache } = setUp();
    const budgets = new CallBudgets(clock);
    let away = false;
    const gate = async (call: Call) => {
      if (away) throw new HostError('circuit_open', 'x');
      return upstream(call);
    };
    let denies = false;
    const guard = () => (denies ? ({ allow: false, reason: 'no' } as const) : ({ allow: true } as const));
    const send = promised(
      staged(
        allow(() => [guard]),
        budget(budgets),
        stage,
      )(answering(gate)),
    );
    await budgets.withBudget({ calls: 3 }, async () => {
      await send(fakeCall());
      away = true;
      expect((await send(fakeCall())).fromCache).toBe(true);
      state.reply = '{}';
      expect((await failureOf(send(fakeCall({ args: '[]' })))).code).toBe('circuit_open');
      expect(cache.stats()).toMatchObject({ hits: 1, misses: 2 });
      expect((await failureOf(send(fakeCall()))).code).toBe('budget_exceeded');
      denies = true;
      expect((await failureOf(send(fakeCall()))).code).toBe('denied');
      expect(cache.stats()).toMatchObject({ hits: 1, misses: 2 });
      denies = false;
      expect((await failureOf(send(fakeCall()))).details.actual).toBe(5);
    });
  });
});

describe('no answer is cached', () => {
  const asked = async (send: (call: Call) => Promise<CallResult>, part: Partial<Call> = {}) => {
    await send(fakeCall(part));
    return (await send(fakeCall(part))).fromCache;
  };

  test('AC-H7 without a hint', async () => {
    const { state, send } = setUp();
    state.reply = '{"content":[]}';
    expect(await asked(send)).toBe(false);
  });

  test('of a result that is an error', async () => {
    const { state, send } = setUp();
    state.isError = true;
    expect(await asked(send)).toBe(false);
  });

  test('of an exchange of several rounds, or where the cache is off', async () => {
    const { cache, send } = setUp({ mayCache: () => false });
    expect(await asked(send)).toBe(false);
    expect(cache.stats()).toMatchObject({ hits: 0, misses: 0, entries: 0 });
  });

  test('of arguments without a canonical form, which are sent all the same', async () => {
    const { sent, state, send } = setUp();
    state.readOnly = true;
    expect(await asked(send, { args: '{"a":1,"a":2}' })).toBe(false);
    expect(sent).toHaveLength(2);
  });

  test('D-23 of a call that was under way when the server was dropped', async () => {
    const { cache, state, held, send } = setUp();
    state.holds = true;
    const first = send(fakeCall());
    cache.drop('github');
    held[0]?.(fakeResult(kept));
    await first;
    expect(cache.stats().entries).toBe(0);
  });

  test('of a call that was under way when the configuration changed', async () => {
    const { cache, state, held, send } = setUp();
    state.holds = true;
    const first = send(fakeCall());
    state.fingerprint = 'f2';
    held[0]?.(fakeResult(kept));
    await first;
    expect(cache.stats().entries).toBe(0);
  });
});

describe('D-22 equal calls at the same time', () => {
  const many = (send: (call: Call) => Promise<CallResult>, part: Partial<Call> = {}) =>
    Array.from({ length: 1_000 }, () => send(fakeCall(part)));

  test('X9 of a read-only trusted tool are one upstream call, and its answer is cached once', async () => {
    const { cache, flights, state, held, sent, send } = setUp();
    Object.assign(state, { readOnly: true, holds: true });
    const calls = many(send);
    await settle();
    expect(sent).toHaveLength(1);
    held[0]?.(fakeResult(kept));
    const results = await Promise.all(calls);
    expect(results.every(({ bytes, run }) => bytes.toString() === kept && run === 1)).toBe(true);
    expect(cache.stats()).toMatchObject({ misses: 1_000, entries: 1 });
    expect([sent.length, flights.size]).toEqual([1, 0]);
  });

  test.each([
    ['a tool that is neither read-only nor idempotent', { isReadOnly: false, isIdempotent: false, isTrusted: true }],
    ['an idempotent tool', { isReadOnly: false, isIdempotent: true, isTrusted: true }],
    ['a tool without trusted annotations', { isReadOnly: true, isIdempotent: true, isTrusted: false }],
  ])('of %s are all sent', async (_name, traits) => {
    const { sent, send, state } = setUp({ traitsOf: () => traits });
    state.reply = '{}';
    await Promise.all(many(send));
    expect(sent).toHaveLength(1_000);
  });

  test('of different principals, or with idempotency keys, are not shared', async () => {
    const { state, sent, send } = setUp();
    Object.assign(state, { readOnly: true, holds: true });
    void send(fakeCall());
    void send(fakeCall({ principal: fakePrincipal('bob', 'dev') }));
    void send(fakeCall({ principal: fakePrincipal('ann', 'admin') }));
    void send(fakeCall({ idempotencyKey: 'k1' }));
    await settle();
    expect(sent).toHaveLength(4);
  });

  test('do not join a call that began before the server was dropped', async () => {
    const { cache, state, sent, send } = setUp();
    Object.assign(state, { readOnly: true, holds: true });
    void send(fakeCall());
    cache.drop('github');
    void send(fakeCall());
    await settle();
    expect(sent).toHaveLength(2);
  });

  test('share an error, which is not cached', async () => {
    let fails = true;
    const { cache, state, stage, upstream } = setUp();
    state.readOnly = true;
    const send = promised(
      staged(stage)(
        answering(async (call) => {
          await settle();
          if (fails) throw new HostError('transport', 'gone', { execution: 'uncertain' });
          return upstream(call);
        }),
      ),
    );
    const outcomes = await Promise.all(many(send).map(failureOf));
    expect(new Set(outcomes.map(({ code }) => code))).toEqual(new Set(['transport']));
    expect(cache.stats().entries).toBe(0);
    fails = false;
    expect((await send(fakeCall())).bytes.toString()).toBe(kept);
  });
});

describe('a relayed call', () => {
  test('that continues an earlier one is neither answered from the cache nor cached nor shared', async () => {
    const { cache, state, held, sent, send } = setUp();
    await send(fakeCall());
    expect(cache.stats().entries).toBe(1);
    const relay = { members: '"requestState":"s"' };
    expect((await send(fakeCall({ relay, args: '{"other":1}' }))).fromCache).toBe(false);
    expect((await send(fakeCall({ relay }))).fromCache).toBe(false);
    expect([cache.stats().entries, sent.length]).toEqual([1, 3]);
    state.readOnly = true;
    state.holds = true;
    const both = [send(fakeCall({ relay, args: '{"b":1}' })), send(fakeCall({ relay, args: '{"b":1}' }))];
    await settle();
    expect(sent).toHaveLength(5);
    for (const resolve of held) resolve(fakeResult());
    await Promise.all(both);
  });

  test('shares nothing with one whose client has other capabilities', async () => {
    const { state, held, sent, send } = setUp();
    state.readOnly = true;
    state.holds = true;
    const capabilities = ['{}', '{"elicitation":{}}', '{}'];
    const calls = capabilities.map((each) => send(fakeCall({ relay: { capabilities: each } })));
    await settle();
    expect(sent).toHaveLength(2);
    for (const resolve of held) resolve(fakeResult());
    await Promise.all(calls);
  });

  test('is answered with the cached bytes', async () => {
    const { send } = setUp();
    const eras = [await send(fakeCall()), await send(fakeCall())].map(({ era, fromCache }) => [era, fromCache]);
    expect(eras).toEqual([
      ['modern', false],
      ['modern', true],
    ]);
  });
});

describe('E1 another account', () => {
  const changing = () => {
    let isAnother = false;
    const world = setUp({
      noticeAccount: ({ server }) => {
        if (isAnother) world.cache.drop(server);
        isAnother = false;
      },
    });
    return Object.assign(world, {
      change: () => {
        isAnother = true;
      },
    });
  };

  test('E1 is noticed before a cached answer is returned, and its own answer is cached', async () => {
    const { send, sent, change } = changing();
    await send(fakeCall());
    expect((await send(fakeCall())).fromCache).toBe(true);
    change();
    expect((await send(fakeCall())).fromCache).toBe(false);
    expect([(await send(fakeCall())).fromCache, sent.length]).toEqual([true, 2]);
  });

  test('E1 joins no call that was sent for the earlier account, whose answer is not cached', async () => {
    const { state, held, sent, send, change, cache } = changing();
    Object.assign(state, { readOnly: true, holds: true });
    const old = send(fakeCall());
    const follower = send(fakeCall());
    change();
    const other = send(fakeCall());
    expect(sent).toHaveLength(2);
    held[0]?.(fakeResult('{"content":["old"],"ttlMs":60000}'));
    expect((await old).bytes.equals((await follower).bytes)).toBe(true);
    expect(cache.stats().entries).toBe(0);
    held[1]?.(fakeResult('{"content":["new"],"ttlMs":60000}'));
    await other;
    const kept = await send(fakeCall());
    expect([kept.fromCache, kept.bytes.toString(), sent.length]).toEqual([
      true,
      '{"content":["new"],"ttlMs":60000}',
      2,
    ]);
  });
});
