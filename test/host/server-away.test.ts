/** Calls to a server over HTTP that was unreachable for a while succeed again as soon as the server answers, and not before. */
import { describe, expect, onTestFinished, test } from 'vitest';
import { eventually } from '../eventually.js';
import { MortalHttpServer } from '../fakes/mortal-http-server.js';
import { failureOf, outcomeOf } from './harness.js';
import { MoodyHost } from './moody-host.js';

async function openServer(): Promise<MortalHttpServer> {
  const server = await MortalHttpServer.open();
  onTestFinished(() => server.crash());
  return server;
}

describe('W6 a server whose port was closed', () => {
  /** A host on its own clock whose breaker is open after losses; `reset` is far away. */
  async function away() {
    const server = await openServer();
    const moody = MoodyHost.make();
    const breaker = { threshold: 2, reset: '10m' };
    await moody.start({ mcpServers: { a: { url: server.url, breaker, timeouts: { call: '20s' } } } });
    expect(await outcomeOf(moody.call())).toBe('ok');
    await server.crash();
    for (let i = 0; i < 2; i++) {
      await moody.clock.advanceAsync(300);
      // A caller that repeats calls itself: Hostler neither repeats them nor waits.
      await failureOf(moody.call('write', {}, { attempt: 1 }));
    }
    expect(moody.row).toMatchObject({ circuit: 'open', consecutiveFailures: 2, state: 'ready' });
    server.received.length = 0;
    return { server, moody };
  }

  test('under 50 calls a second is served again soon after the port answers, long before the breaker tries a caller', async () => {
    const { server, moody } = await away();
    const call = async () => {
      await moody.clock.advanceAsync(20);
      return outcomeOf(moody.call('write', {}, { attempt: 1 }));
    };
    for (let i = 0; i < 50; i++) expect(await call()).toBe('circuit_open');
    await server.listen();
    const backAtMs = moody.clock.nowMs();
    await eventually(
      'calls are answered and the breaker is closed',
      async () => (await call()) === 'ok' && moody.row.circuit === 'closed',
    );
    expect(moody.row).toMatchObject({ circuit: 'closed', consecutiveFailures: 0, state: 'ready', run: 1 });
    // Without checks of the host itself it would be the 10 min of `reset`.
    expect(moody.clock.nowMs() - backAtMs).toBeLessThan(5 * 60_000);
  });

  test('is checked by the host after 0.5 s, and its answer makes the breaker half-open without any caller', async () => {
    const { server, moody } = await away();
    await server.listen();
    await moody.clock.advanceAsync(499);
    expect([server.received, moody.row.circuit]).toEqual([[], 'open']);
    await moody.clock.advanceAsync(1);
    await eventually('it is half-open', () => moody.row.circuit === 'half_open');
    expect(server.received).toEqual(['ping']);
    const { kind, to } = moody.events.at(-1) as { kind: string; to?: string };
    expect([kind, to]).toEqual(['breaker', 'half_open']);
    expect(await outcomeOf(moody.call())).toBe('ok');
    expect(moody.row).toMatchObject({ circuit: 'closed', run: 1 });
    // No further check follows once the breaker is closed.
    await moody.clock.advanceAsync(20_000);
    expect(server.count('ping')).toBe(2);
  });

  test.each([502, 503, 504])('is not back yet while a proxy answers %i for it', async (status) => {
    const { server, moody } = await away();
    server.proxyStatus = status;
    await server.listen();
    await moody.clock.advanceAsync(500);
    await eventually('it was checked', () => server.count('ping') === 1);
    // The check is over, and the next one is planned.
    await eventually('it is checked again', async () => {
      await moody.clock.advanceAsync(100);
      return server.count('ping') === 2;
    });
    expect(moody.row.circuit).toBe('open');
    server.proxyStatus = undefined;
    await eventually('it is half-open', async () => {
      await moody.clock.advanceAsync(100);
      return moody.row.circuit === 'half_open';
    });
  });

  test.each([
    ['stopped', (moody: MoodyHost) => moody.host.stop('a')],
    ['reloaded', (moody: MoodyHost) => moody.host.reload('a')],
    ['removed', (moody: MoodyHost) => moody.host.close()],
  ])('is no longer checked once it is %s', async (_how, end) => {
    const { server, moody } = await away();
    await server.listen();
    await end(moody);
    await moody.clock.advanceAsync(60_000);
    expect(server.count('ping')).toBe(0);
  });
});

describe('W30 a server that could not be reached for an hour is served soon after it is back', () => {
  /** A host on its own clock whose server is parked, after probes without end. */
  async function unreachable(proxyStatus?: number) {
    const server = await openServer();
    const moody = MoodyHost.make();
    if (proxyStatus === undefined) await server.crash();
    else server.proxyStatus = proxyStatus;
    await moody.start({ mcpServers: { a: { url: server.url, lazy: false } } });
    await eventually('it is parked', async () => {
      await moody.clock.advanceAsync(1_000);
      return moody.row.state === 'parked';
    });
    return { server, moody };
  }

  const probed = async (moody: MoodyHost, times: number) => {
    for (let i = 0; i < times; i++) {
      const { run } = moody.row;
      await moody.clock.advanceAsync(moody.row.nextProbeInMs ?? Number.NaN);
      await eventually('it was probed without success', () => moody.row.run > run && moody.row.state === 'parked');
    }
  };

  test.each([
    ['refuses connections', undefined],
    ['is behind a proxy that answers 502', 502],
  ])('when it %s', async (_how, proxyStatus) => {
    const { server, moody } = await unreachable(proxyStatus);
    await probed(moody, 6);
    // A call may try it too, and does not delay the next probe.
    await moody.clock.advanceAsync(5_000);
    expect(await failureOf(moody.call())).toMatchObject({ code: 'server_parked' });
    expect(moody.row.nextProbeInMs).toBeLessThanOrEqual(18_000);
    server.proxyStatus = undefined;
    if (proxyStatus === undefined) await server.listen();
    await moody.clock.advanceAsync(18_000);
    await eventually('it is ready', () => moody.row.state === 'ready');
    expect(await outcomeOf(moody.call())).toBe('ok');
  });
});

test('W6 after timeouts the open time stays 30 s, although the server answers every ping', async () => {
  const server = await openServer();
  const moody = MoodyHost.make();
  await moody.start({ mcpServers: { a: { url: server.url, breaker: { threshold: 2 }, timeouts: { call: '1s' } } } });
  await moody.host.tools('a');
  server.answersCalls = false;
  for (let i = 1; i <= 2; i++) {
    const call = failureOf(moody.call());
    await eventually('it is at the server', () => server.count('tools/call') === i);
    await moody.clock.advanceAsync(1_000);
    await call;
  }
  await moody.clock.advanceAsync(20_000);
  expect(server.count('ping')).toBe(0);
  // The session probes a server that left requests unanswered for 30 s. The answer is no reason for earlier trials.
  await moody.clock.advanceAsync(9_999);
  await eventually('it is asked for a sign of life', () => server.count('ping') === 1);
  expect(moody.row.circuit).toBe('open');
  await moody.clock.advanceAsync(1);
  expect(moody.row.circuit).toBe('half_open');
});

test('W9 every call takes 8 s: the breaker closes with the first trial, and no call is cut', async () => {
  const server = await openServer();
  const moody = MoodyHost.make();
  // Opened by calls that were too slow, then allowed the time they need.
  const breaker = { threshold: 2, reset: '30s' };
  await moody.start({ mcpServers: { a: { url: server.url, breaker, timeouts: { call: '10s' } } } });
  await moody.host.tools('a');
  server.answersCalls = false;
  for (let i = 1; i <= 2; i++) {
    const call = failureOf(moody.call());
    await eventually('it is at the server', () => server.count('tools/call') === i);
    await moody.clock.advanceAsync(10_000);
    await call;
  }
  server.answerHeld();
  expect(moody.row.circuit).toBe('open');
  await moody.clock.advanceAsync(30_000);
  const trial = outcomeOf(moody.call());
  await eventually('the trial is at the server', () => server.count('tools/call') === 3);
  expect(await outcomeOf(moody.call())).toBe('circuit_open');
  await moody.clock.advanceAsync(5_000);
  // Two more after 5 s, and no others.
  const more = [outcomeOf(moody.call()), outcomeOf(moody.call())];
  await eventually('they are at the server', () => server.count('tools/call') === 5);
  expect(await outcomeOf(moody.call())).toBe('circuit_open');
  expect(moody.row.circuit).toBe('half_open');
  await moody.clock.advanceAsync(3_000);
  server.answerHeld();
  expect(await Promise.all([trial, ...more])).toEqual(['ok', 'ok', 'ok']);
  expect(moody.row).toMatchObject({ circuit: 'closed', consecutiveFailures: 0, run: 1 });
});

test('W10 hung calls that end by their callers’ deadline open the breaker, and restart nothing', async () => {
  const server = await openServer();
  const moody = MoodyHost.make();
  await moody.start({ mcpServers: { a: { url: server.url } } });
  await moody.host.tools('a');
  Object.assign(server, { answersCalls: false, answersPings: false });
  for (let i = 1; i <= 5; i++) {
    const call = failureOf(moody.call('write', {}, { deadlineMs: 20_000 }));
    await eventually('it is at the server', () => server.count('tools/call') === i);
    await moody.clock.advanceAsync(20_000);
    await call;
    await moody.clock.advanceAsync(5_000);
    await eventually('the strike is counted', () => moody.row.consecutiveFailures === i);
    // The server sends a message now and then, so the supervisor does not suspect it: only the calls are strikes.
    if (i < 5) await moody.host.list('a', 'resources/list');
  }
  expect(moody.row).toMatchObject({ circuit: 'open', run: 1, restartCount: 0 });
});

test('W10 twelve calls that hang at a time are one ping and one strike', async () => {
  const server = await openServer();
  const moody = MoodyHost.make();
  await moody.start({ mcpServers: { a: { url: server.url } } });
  await moody.host.tools('a');
  Object.assign(server, { answersCalls: false, answersPings: false });
  const calls = Array.from({ length: 12 }, () => failureOf(moody.call('write', {}, { deadlineMs: 20_000 })));
  await eventually('they are at the server', () => server.count('tools/call') === 12);
  await moody.clock.advanceAsync(20_000);
  await Promise.all(calls);
  await moody.clock.advanceAsync(5_000);
  await eventually('the strike is counted', () => moody.row.consecutiveFailures === 1);
  expect(server.count('ping')).toBe(1);
});

test('W10 a hung call is no strike if the server answers the ping, or if the deadline was 5 ms', async () => {
  const server = await openServer();
  const moody = MoodyHost.make();
  await moody.start({ mcpServers: { a: { url: server.url } } });
  await moody.host.tools('a');
  server.answersCalls = false;
  const call = failureOf(moody.call('write', {}, { deadlineMs: 20_000 }));
  await eventually('it is at the server', () => server.count('tools/call') === 1);
  await moody.clock.advanceAsync(20_000);
  await call;
  await eventually('it is asked for a sign of life', () => server.count('ping') === 1);
  server.answersPings = false;
  const impatient = failureOf(moody.call('write', {}, { deadlineMs: 5 }));
  await eventually('it is at the server', () => server.count('tools/call') === 2);
  await moody.clock.advanceAsync(5);
  await impatient;
  await moody.clock.advanceAsync(10_000);
  expect([moody.row.consecutiveFailures, server.count('ping')]).toEqual([0, 1]);
});
