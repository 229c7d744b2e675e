/**
 * A host over a legacy HTTP server that forgets its sessions: each call ends, the server is asked for a new session at a
 * bounded rate, and a server that is healthy again is served again.
 */
import { afterEach, describe, expect, test } from 'vitest';
import { createHost, type Host } from '../../src/host/host.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { eventually } from '../eventually.js';
import { ForgetfulServer } from '../fakes/forgetful-server.js';
import { fakePrincipal } from '../fakes/policy-call.js';
import { failureOf, outcomeOf } from '../host/harness.js';

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

interface Setup {
  readonly host: Host;
  readonly server: ForgetfulServer;
  readonly clock: FakeClock;
  call(nonce: string, options?: Parameters<Host['call']>[3], args?: Record<string, unknown>): Promise<unknown>;
  /** Lets host time pass in small steps until the condition holds. */
  inTime(what: string, isSo: () => boolean): Promise<boolean>;
  row(): ReturnType<Host['status']>[number];
}

async function open(
  entry: Record<string, unknown> = {},
  prepare: (server: ForgetfulServer) => void = () => {},
): Promise<Setup> {
  const server = await new ForgetfulServer().start();
  prepare(server);
  closers.push(() => server.http.close());
  const clock = new FakeClock();
  const host = await createHost({ mcpServers: { a: { url: server.http.url, ...entry } } }, { clock });
  closers.push(() => host.close());
  const call: Setup['call'] = (nonce, options, args = {}) => host.call('a', 'write', { nonce, ...args }, options);
  const inTime = (what: string, isSo: () => boolean) =>
    eventually(what, () => {
      clock.advance(20);
      return isSo();
    });
  const row = () => host.status()[0] as ReturnType<Host['status']>[number];
  await call('first');
  return { host, server, clock, call, inTime, row };
}

describe('W1 a renewal whose initialize fails', () => {
  test.each(['rpc_error', 'status_500'] as const)(
    '%s: refuses every waiting call at once as not executed, and the next call renews again',
    async (mode) => {
      const { server, clock, call, row } = await open();
      server.initialize = mode;
      server.isHoldingInitialize = true;
      server.forgetSessions();
      const before = server.initializes;
      const calls = Array.from({ length: 20 }, (_, i) => failureOf(call(`lost ${i}`)));
      await eventually(
        'every call waits for the renewal',
        () => server.refused === 20 && server.initializesInFlight === 1,
      );
      server.releaseHeld();
      server.isHoldingInitialize = false;
      for (const { code, details } of await Promise.all(calls)) {
        expect({ code, ...details }).toMatchObject({
          code: 'transport',
          reason: 'session_not_renewed',
          execution: 'not_executed',
        });
      }
      expect([server.initializes - before, row().consecutiveFailures]).toEqual([1, 1]);
      // The next call waits until a second has passed since the last initialize.
      server.initialize = 'answer';
      const next = outcomeOf(call('next'));
      await clock.advanceAsync(900);
      expect(server.initializes - before).toBe(1);
      await clock.advanceAsync(101);
      expect(await next).toBe('ok');
      expect([server.initializes - before, server.withoutSession]).toEqual([2, 0]);
      expect(server.executed).toEqual(['first', 'next']);
    },
  );

  test('hang: calls end by their own deadline with one initialize in flight, and service resumes', async () => {
    const { server, clock, call, inTime, row } = await open();
    server.initialize = 'hang';
    server.forgetSessions();
    const before = server.initializes;
    const calls = Array.from({ length: 20 }, (_, i) => failureOf(call(`lost ${i}`, { deadlineMs: 2_000 })));
    await eventually('every call was refused', () => server.refused === 20);
    await clock.advanceAsync(2_100);
    for (const { code, details } of await Promise.all(calls))
      expect([code, details.execution]).toEqual(['timeout', 'not_executed']);
    expect([server.initializes - before, server.initializesInFlight]).toEqual([1, 1]);
    // Without any call: a hung initialize makes the server suspect after 10 s, and is given up 5 s later.
    await inTime('the status shows the doubt', () => row().state === 'suspect');
    server.initialize = 'answer';
    await inTime('the session is opened again', () => row().run === 2 && row().state === 'ready');
    expect(await outcomeOf(call('after'))).toBe('ok');
    expect([server.initializesInFlightMax, row().circuit, server.executed]).toEqual([1, 'closed', ['first', 'after']]);
  });

  test('hang within a shorter start limit: the calls that wait are refused at once, and the next call renews', async () => {
    const { server, clock, call, row } = await open({ timeouts: { start: '4s' } });
    server.initialize = 'hang';
    server.forgetSessions();
    const calls = Array.from({ length: 20 }, (_, i) => failureOf(call(`lost ${i}`, { deadlineMs: 60_000 })));
    await eventually('every call was refused', () => server.refused === 20 && server.initializesInFlight === 1);
    await clock.advanceAsync(4_100);
    for (const { code, details } of await Promise.all(calls)) {
      expect([code, details.reason, details.execution]).toEqual(['transport', 'session_not_renewed', 'not_executed']);
    }
    expect(row().consecutiveFailures).toBe(1);
    server.initialize = 'answer';
    expect(await outcomeOf(call('after'))).toBe('ok');
    expect([row().run, row().state, row().circuit, server.executed]).toEqual([
      1,
      'ready',
      'closed',
      ['first', 'after'],
    ]);
  });
});

test('W2 a session is renewed although more calls wait than there are connections', async () => {
  const { server, call, row } = await open({ concurrency: 100 });
  server.isHolding = true;
  // 100 calls are on the wire and 200 wait; the session is forgotten under them.
  const calls = Array.from({ length: 300 }, (_, i) => outcomeOf(call(`n${i}`)));
  await eventually('100 calls are on the wire', () => server.held.length === 100);
  server.forgetSessions();
  server.isHolding = false;
  server.releaseHeld();
  expect(new Set(await Promise.all(calls))).toEqual(new Set(['ok']));
  expect([server.initializes, server.withoutSession, row().state, row().circuit]).toEqual([2, 0, 'ready', 'closed']);
  expect(server.executed.length).toBe(new Set(server.executed).size);
});

test('W2 a session is renewed while every call connection is busy for long', async () => {
  const { server, call, inTime } = await open({ concurrency: 64 });
  await eventually('the stream is open', () => server.openStreams === 1);
  server.isHolding = true;
  const busy = Array.from({ length: 64 }, (_, i) => outcomeOf(call(`busy${i}`)));
  await eventually('every connection is busy', () => server.held.length === 64);
  const before = server.initializes;
  server.forgetSessions();
  // The standalone stream ends, is refused, and the session is renewed over the control connections.
  await inTime('the session is renewed', () => server.initializes === before + 1);
  server.releaseHeld();
  expect(new Set(await Promise.all(busy))).toEqual(new Set(['ok']));
});

describe('W3 a server that answers 400 for a session it does not know', () => {
  test.each([false, true])(
    'is recognised by one ping; the JSON-RPC error has the id of the request: %s',
    async (named) => {
      const { server, call, row } = await open();
      server.unknownStatus = 400;
      server.namesRequest = named;
      server.forgetSessions();
      const calls = Array.from({ length: 50 }, (_, i) => outcomeOf(call(`n${i}`)));
      expect(new Set(await Promise.all(calls))).toEqual(new Set(['ok']));
      expect([server.initializes, server.pings, server.executed.length]).toEqual([2, 1, 51]);
      expect([row().run, row().circuit]).toEqual([1, 'closed']);
    },
  );

  test.each([false, true])(
    'a 400 in a known session is returned, with one ping in 10 s; the error has the id of the request: %s',
    async (named) => {
      const { server, clock, call } = await open();
      server.namesRequest = named;
      const wrong = () => failureOf(call('wrong', {}, { refuse: true }));
      const expected = named ? ['invalid_arguments', -32602] : ['protocol_error', -32602];
      for (let i = 0; i < 5; i++) {
        const { code, details } = await wrong();
        expect([code, details.rpcCode]).toEqual(expected);
      }
      await Promise.all([wrong(), wrong(), wrong()]);
      expect(server.pings).toBe(1);
      clock.advance(10_000);
      await Promise.all([wrong(), wrong(), wrong()]);
      expect([server.pings, server.initializes]).toEqual([2, 1]);
    },
  );

  test('is detected by its refused stream too, when no client calls', async () => {
    const { server, inTime } = await open();
    await eventually('the stream is open', () => server.openStreams === 1);
    server.unknownStatus = 400;
    server.forgetSessions();
    await inTime('the session is renewed', () => server.initializes === 2 && server.openStreams === 1);
    expect(server.pings).toBe(1);
  });
});

test('W3 a server that answers 404 for the stream it does not have keeps its session', async () => {
  const { server, clock, call } = await open({}, (fake) => {
    fake.hasStream = false;
  });
  await eventually('the check was answered', () => server.pings === 1);
  for (let i = 0; i < 5; i++) {
    await clock.advanceAsync(2_000);
    expect(await outcomeOf(call(`n${i}`))).toBe('ok');
  }
  expect([server.initializes, server.pings]).toEqual([1, 1]);
});

test('W4 a resource subscription survives the renewal of its session', async () => {
  const { host, server, call } = await open();
  let updates = 0;
  await host.subscribe('a', 'r:1', fakePrincipal('ann'), () => updates++);
  expect(server.subscribed).toEqual(['s1 r:1']);
  server.forgetSessions();
  await call('renews');
  await eventually('it is subscribed in the new session', () => server.subscribed.includes('s2 r:1'));
  await eventually('the stream is open', () => server.openStreams === 1);
  server.announce('notifications/resources/updated', { uri: 'r:1' });
  await eventually('the update arrives', () => updates === 1);
});

test('W5 a standalone stream that ends after every event is opened at most once a second', async () => {
  const { server, clock, inTime } = await open({}, (fake) => {
    fake.endsStreams = true;
  });
  await eventually('the stream was opened', () => server.streamsOpened === 1);
  const openedBefore = clock.nowMs();
  await inTime('it was opened ten times more', () => server.streamsOpened === 11);
  expect(clock.nowMs() - openedBefore).toBeGreaterThanOrEqual(9_900);
});
