import { describe, expect, test } from 'vitest';
import { managedSession } from '../../test/fakes/managed-session.js';
import { fakeOperations } from '../../test/fakes/operations.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { Guard } from '../policy/allowlist.js';
import { callCachePlan, ResponseCache } from '../policy/cache.js';
import type { CallOptions, Session } from '../session/session.js';
import type { InboundRequest } from '../wire/inbound-requests.js';
import { MAY_HOLD_TTL } from '../wire/json-scan.js';
import type { Answer } from '../wire/peer-interface.js';
import type { ManagedServer } from './managed-server.js';

type Told = (outcome: Answer | Error) => void;

/** A caller of one server, whose session records its requests and answers when the test says so. */
function setUp(entry: Record<string, unknown> = {}, guards: readonly Guard[] = []) {
  const clock = new FakeClock(1_000);
  const asked: { readonly options: CallOptions; readonly answer: Told }[] = [];
  const probes = { count: 0 };
  const session = {
    closedBy: undefined,
    lastMessageAtMs: 0,
    facts: { era: 'legacy' },
    callToolWithCallback: (_name: string, _args: unknown, options: CallOptions, answer: Told) =>
      asked.push({ options, answer }),
    probe: async () => {
      probes.count++;
      return 'silent';
    },
    close: () => Promise.resolve(),
  } as unknown as Session;
  const held = { calls: 0 };
  const hold = { enter: () => void held.calls++, leave: () => void held.calls-- };
  let server: ManagedServer | undefined = managedSession('a', session, clock, { pins: 'off', ...entry }, hold);
  const own = server;
  const cache = new ResponseCache(clock, callCachePlan);
  const caller = fakeOperations({
    clock,
    guards: () => guards,
    cache,
    serverOf: () => {
      if (!server) throw new Error('it is gone');
      return server;
    },
    findServer: () => server,
  });
  const remove = () => {
    server = undefined;
  };
  return { clock, asked, probes, caller, cache, held, remove, server: own };
}

const minute = 60_000;
const ok = (text = '{"content":[]}'): Answer => ({
  kind: 'result',
  bytes: Buffer.from(text),
  mayHold: text.includes('ttlMs') ? MAY_HOLD_TTL : 0,
});
const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

test('without a deadline of its caller, a call has the time limit of its server, which progress extends to ten minutes', async () => {
  const { clock, asked, caller } = setUp({ timeouts: { call: '5m' } });
  const call = caller.call('a', 'x', {}, {});
  await settle();
  const { deadlineAtMs, extend } = asked[0]?.options ?? {};
  const nowMs = clock.nowMs();
  expect([deadlineAtMs, { byMs: extend?.byMs, untilMs: extend?.untilMs }]).toEqual([
    nowMs + 5 * minute,
    { byMs: 5 * minute, untilMs: nowMs + 10 * minute },
  ]);
  asked[0]?.answer(ok());
  await call;
});

test('a deadline of its caller is never exceeded, even with progress', async () => {
  const { clock, asked, caller } = setUp();
  const call = caller.call('a', 'x', {}, { deadlineMs: 2_000 });
  await settle();
  const untilMs = clock.nowMs() + 2_000;
  expect(asked[0]?.options).toMatchObject({ deadlineAtMs: untilMs, extend: { untilMs } });
  asked[0]?.answer(ok());
  await call;
});

describe('W10 a call that ends by its caller’s deadline, on a server that was silent for an hour', () => {
  async function ended(deadlineMs: number, asks = false) {
    const { clock, asked, probes, caller, server } = setUp();
    clock.advance(60 * minute);
    const onServerRequest = () => {};
    const call = caller.call('a', 'x', {}, { deadlineMs, ...(asks ? { onServerRequest } : {}) });
    await settle();
    if (asks) asked[0]?.options.onServerRequest?.({} as InboundRequest);
    clock.advance(deadlineMs);
    asked[0]?.answer(new HostError('timeout', 'late', { phase: 'written', execution: 'uncertain' }));
    await expect(call).rejects.toMatchObject({ code: 'outcome_uncertain' });
    await settle();
    return [probes.count, server.breaker.failures];
  }

  test.each([
    ['leads to a check if it was sent more than 5 s ago', 5_001, false, [1, 1]],
    ['leads to no check if it was sent exactly 5 s ago', 5_000, false, [0, 0]],
    ['leads to no check while the server waits for its caller’s answer', 60_000, true, [0, 0]],
  ])('%s', async (_what, deadlineMs, asks, expected) => {
    expect(await ended(deadlineMs, asks)).toEqual(expected);
  });
});

test('a cacheable answer ends its call, even if the server was removed meanwhile', async () => {
  const { asked, caller, held, remove } = setUp();
  const call = caller.call('a', 'x', {}, {});
  await settle();
  remove();
  asked[0]?.answer(ok('{"content":[],"ttlMs":1000}'));
  expect((await call).json()).toEqual({ content: [], ttlMs: 1_000 });
  expect(held.calls).toBe(0);
});

test('a call of an unknown tool ends when its server is removed during the start', async () => {
  const { asked, caller, held, remove } = setUp();
  const call = caller.call('a', 'x', {}, {});
  remove();
  await expect(call).rejects.toThrow('it is gone');
  expect([asked, held.calls]).toEqual([[], 0]);
});

describe('a relayed call', () => {
  const lost = () =>
    new HostError('transport', 'the stream ended', { phase: 'written', execution: 'uncertain', reason: 'reset' });
  const question = () => ({ method: 'elicitation/create' }) as InboundRequest;
  const readOnly = { key: 'x', raw: Buffer.from('{"name":"x","annotations":{"readOnlyHint":true}}') };
  const trusting = () => {
    const world = setUp({ trustAnnotations: true });
    world.server.learn([readOnly], () => true);
    return world;
  };

  test('forwards its metadata and handlers; a call without options has none', async () => {
    const { asked, caller } = setUp();
    const onServerNotification = () => {};
    const words = { meta: '"a":1', members: '"b":2', capabilities: '{}' };
    const calls = [caller.call('a', 'x', {}, { ...words, onServerNotification }), caller.call('a', 'x', {}, {})];
    await settle();
    expect(asked[0]?.options).toMatchObject({ relay: words, onServerNotification, onServerRequest: undefined });
    const { relay, onServerRequest, onServerNotification: ear } = asked[1]?.options ?? {};
    expect([relay, onServerRequest, ear]).toEqual([undefined, undefined, undefined]);
    for (const { answer } of asked) answer(ok());
    expect((await Promise.all(calls)).map(({ era }) => era)).toEqual(['legacy', 'legacy']);
  });

  test('is sent again when that is safe, but not after the server sent a question', async () => {
    const plain = trusting();
    const repeated = plain.caller.call('a', 'x', {}, { meta: '"a":1' });
    await settle();
    plain.asked[0]?.answer(lost());
    await plain.clock.advanceAsync(100);
    plain.asked[1]?.answer(ok());
    await repeated;
    const { asked, caller } = trusting();
    const heard: string[] = [];
    const call = caller.call('a', 'x', {}, { onServerRequest: ({ method }) => heard.push(method) });
    await settle();
    asked[0]?.options.onServerRequest?.(question());
    asked[0]?.answer(lost());
    await expect(call).rejects.toMatchObject({ code: 'transport' });
    expect([plain.asked.length, asked.length, heard]).toEqual([2, 1, ['elicitation/create']]);
  });

  test('that continues an earlier one is sent again only if no byte was sent', async () => {
    const { asked, caller, clock } = trusting();
    const call = caller.call('a', 'x', {}, { members: '"requestState":"s"' });
    await settle();
    asked[0]?.answer(new HostError('transport', 'gone', { phase: 'queued', execution: 'not_executed' }));
    await clock.advanceAsync(100);
    asked[1]?.answer(lost());
    await expect(call).rejects.toMatchObject({ code: 'transport' });
    expect(asked).toHaveLength(2);
  });

  test('whose server sent a question is not cached, whatever the server allows', async () => {
    const { asked, caller, cache } = setUp();
    const call = async (answer: Answer) => {
      const called = caller.call('a', 'x', {}, {});
      await settle();
      asked.at(-1)?.answer(answer);
      await called;
    };
    await call({ ...ok('{"content":[],"ttlMs":1000}'), wasAsked: true });
    expect([cache.stats().entries, asked.length]).toEqual([0, 1]);
    await call(ok('{"content":[],"ttlMs":1000}'));
    expect([cache.stats().entries, asked.length]).toEqual([1, 2]);
  });

  test('E4 that names no client of a server with one process each is refused before anything is charged', async () => {
    const { asked, caller } = setUp({ isolation: 'per-client' });
    await expect(caller.call('a', 'x', {}, {})).rejects.toMatchObject({
      code: 'invalid_request',
      details: { field: 'instance', execution: 'not_executed' },
    });
    await expect(caller.call('a', 'x', {}, { instance: 7 as never })).rejects.toMatchObject({
      code: 'invalid_request',
    });
    expect(asked).toEqual([]);
  });

  test('E4 of a principal that may not use such a server is denied, and the error says nothing about clients', async () => {
    const { caller } = setUp({ isolation: 'per-client' }, [() => ({ allow: false, reason: 'not yours' })]);
    await expect(caller.call('a', 'x', {}, {})).rejects.toMatchObject({ code: 'denied' });
  });

  test('to its own instance bypasses the cache', async () => {
    const { asked, caller, cache } = setUp({ isolation: 'per-client' });
    const called = caller.call('a', 'x', {}, { instance: 'ann' });
    await settle();
    asked[0]?.answer(ok('{"content":[],"ttlMs":1000}'));
    await called;
    expect(cache.stats().entries).toBe(0);
  });

  test('that the server refuses ends with the text of the server as the cause', async () => {
    const { asked, caller } = setUp();
    const called = caller.call('a', 'x', {}, {});
    await settle();
    const bytes = Buffer.from('{"code":-32042,"message":"look","data":{"url":"u"}}');
    asked[0]?.answer({ kind: 'error', bytes, mayHold: 0 });
    await expect(called).rejects.toMatchObject({ code: 'tool_error', cause: { bytes } });
  });
});

test('an option of a call that throws rejects its promise instead of throwing', async () => {
  const { caller, asked } = setUp();
  const options = {
    get principal(): never {
      throw new Error('broken');
    },
  };
  await expect(caller.call('a', 'echo', '{}', options)).rejects.toThrow('broken');
  expect(asked).toEqual([]);
});
