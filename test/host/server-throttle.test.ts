/** The requests that reach a real HTTP server that asks for fewer. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { createHost } from '../../src/host/host.js';
import type { HostCallOptions } from '../../src/host/host-interface.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { eventually } from '../eventually.js';
import { LimitedHttpServer } from '../fakes/limited-http-server.js';
import { failureOf, outcomeOf } from './harness.js';

async function setUp(entry: Record<string, unknown> = {}) {
  const server = await LimitedHttpServer.open();
  const clock = new FakeClock();
  const host = await createHost({ mcpServers: { a: { url: server.url, cache: 'off', ...entry } } }, { clock });
  onTestFinished(async () => {
    server.answerHeld();
    await host.close();
    await server.closePort();
  });
  const call = (options: HostCallOptions = {}) => host.call('a', 'write', {}, { deadlineMs: 20_000, ...options });
  await host.tools('a');
  await call({ instance: 'ann' });
  await eventually('its tools are known', () => host.status()[0]?.tools === 1);
  const calls = server.count('tools/call');
  return { server, host, clock, call, reached: () => server.count('tools/call') - calls };
}

test.each([
  ['429 with Retry-After', { status: 429, retryAfter: '100' }, 100_000],
  ['503 with Retry-After', { status: 503, retryAfter: '100' }, 100_000],
  ['429 with Retry-After of a day', { status: 429, retryAfter: '86400' }, 300_000],
])('W11 %s: of 200 calls in a row, 1 reaches the server', async (_name, refusal, waitMs) => {
  const { server, host, call, reached } = await setUp();
  server.refusal = refusal;
  const first = await failureOf(call());
  expect(first.toJSON()).toMatchObject({ code: 'overloaded', reason: 'throttled', httpStatus: refusal.status });
  expect(first.details.retryAfterMs).toBe(waitMs);
  const codes = new Set<string>();
  for (let i = 1; i < 200; i++) {
    const { code, details } = await failureOf(call());
    codes.add(`${code} ${details.reason} ${details.execution}`);
    expect(details.retryAfterMs).toBe(waitMs);
  }
  expect([[...codes], reached()]).toEqual([['overloaded throttled not_executed'], 1]);
  // A limit of the server is no failure: the breaker stays closed, and lists and reads are throttled too.
  const [row] = host.status();
  expect([row?.state, row?.circuit, row?.consecutiveFailures]).toEqual(['ready', 'closed', 0]);
  expect(row?.throttledForMs).toBeGreaterThan(0);
  const before = server.received.length;
  const others = [
    host.list('a', 'tools/list'),
    host.read('a', 'x:/y'),
    host.request('a', 'prompts/get', '{"name":"p"}'),
  ];
  expect(await Promise.all(others.map(async (other) => (await failureOf(other)).details.reason))).toEqual(
    Array(3).fill('throttled'),
  );
  expect(server.received.length).toBe(before);
  expect(host.explain('a', 'write').call).toMatchObject({ outcome: 'refused', code: 'overloaded' });
});

test('W11 of 200 calls at once, calls that still wait for a place when the server answers 429 are not sent', async () => {
  const { server, call, reached } = await setUp({ concurrency: 8 });
  server.refusal = { status: 429, retryAfter: '100' };
  server.holdsCalls = true;
  const calls = Array.from({ length: 200 }, () => outcomeOf(call()));
  await eventually('eight calls are at the server', () => server.held === 8);
  server.answerHeld();
  expect(new Set(await Promise.all(calls))).toEqual(new Set(['overloaded']));
  expect(reached()).toBe(8);
});

test('W11 a refused read throttles calls as well, and the first answer after the pause ends it', async () => {
  const { server, host, clock, call, reached } = await setUp();
  server.refusal = { status: 429, retryAfter: '1' };
  expect((await failureOf(host.read('a', 'x:/y'))).details).toMatchObject({ reason: 'throttled', retryAfterMs: 1_000 });
  expect((await failureOf(call())).details.reason).toBe('throttled');
  expect(reached()).toBe(0);
  server.refusal = undefined;
  clock.advance(999);
  expect([host.status()[0]?.throttledForMs, (await failureOf(call())).details.reason]).toEqual([1, 'throttled']);
  clock.advance(1);
  expect(host.status()[0]?.throttledForMs).toBeUndefined();
  await call();
  expect(reached()).toBe(1);
});

test('W11 a 503 without Retry-After is a failure of the server like a 502: the breaker counts it', async () => {
  const { server, host, clock, call, reached } = await setUp();
  server.refusal = { status: 503 };
  expect((await failureOf(call())).toJSON()).toMatchObject({ code: 'outcome_uncertain', httpStatus: 503 });
  expect(host.status()[0]).toMatchObject({ consecutiveFailures: 1, throttledForMs: undefined });
  // Simultaneous failures are one strike, so calls continue until the breaker has enough strikes.
  await eventually('the breaker is open', async () => {
    clock.advance(300);
    return (await outcomeOf(call())) === 'circuit_open';
  });
  const before = reached();
  expect([await outcomeOf(call()), reached()]).toEqual(['circuit_open', before]);
});

test('W11 every instance of a server with isolation per-client is throttled with it', async () => {
  const { server, call, reached } = await setUp({ isolation: 'per-client' });
  for (const instance of ['ann', 'bob']) await call({ instance });
  const before = reached();
  server.refusal = { status: 429, retryAfter: '100' };
  expect((await failureOf(call({ instance: 'ann' }))).details.reason).toBe('throttled');
  for (const instance of ['ann', 'bob', 'eve'])
    expect((await failureOf(call({ instance }))).details.reason).toBe('throttled');
  expect(reached() - before).toBe(1);
});

test('W11 a reload ends the pause, like all other throttles', async () => {
  const { server, host, call } = await setUp();
  server.refusal = { status: 429, retryAfter: '300' };
  expect((await failureOf(call())).details.reason).toBe('throttled');
  server.refusal = undefined;
  expect((await failureOf(call())).details.reason).toBe('throttled');
  await host.reload('a');
  expect([await outcomeOf(call()), host.status()[0]?.throttledForMs]).toEqual(['ok', undefined]);
});

test.each([429, 503])(
  'W25 a server that refuses initialize with %d is started again when its Retry-After is over',
  async (status) => {
    const server = createServer((request, response) => {
      request.resume().on('end', () => response.writeHead(status, { 'Retry-After': '100' }).end());
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    let requests = 0;
    server.on('request', () => requests++);
    const { port } = server.address() as AddressInfo;
    const clock = new FakeClock();
    const host = await createHost({ mcpServers: { a: { url: `http://127.0.0.1:${port}/mcp` } } }, { clock });
    onTestFinished(async () => {
      await host.close();
      server.close();
    });
    const waiting = failureOf(host.call('a', 'x', {}, { deadlineMs: 2_000 }));
    await eventually('the start has failed', () => host.status()[0]?.state === 'backing_off');
    clock.advance(2_000);
    const first = await waiting;
    const after = requests;
    const next = failureOf(host.call('a', 'x', {}, { deadlineMs: 1_000 }));
    clock.advance(1_000);
    const { code, details } = await next;
    expect([first.code, code, details.execution, requests]).toEqual([code, code, 'not_executed', after]);
    // The server asked for 100 s; 15 s is the longest wait before a start.
    expect(details.retryAfterMs).toBe(12_000);
  },
);
