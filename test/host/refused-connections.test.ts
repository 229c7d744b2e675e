/** A real HTTP server whose port closes for a moment: the effect on its callers. */
import { expect, onTestFinished, test } from 'vitest';
import { createHost } from '../../src/host/host.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { eventually } from '../eventually.js';
import { LimitedHttpServer } from '../fakes/limited-http-server.js';
import { failureOf, outcomeOf } from './harness.js';

async function setUp() {
  const server = await LimitedHttpServer.open();
  const clock = new FakeClock();
  const host = await createHost({ mcpServers: { a: { url: server.url, cache: 'off' } } }, { clock });
  onTestFinished(async () => {
    await host.close();
    await server.closePort();
  });
  const call = (nonce: string, deadlineMs = 5_000, signal?: AbortSignal) =>
    host.call('a', 'write', { nonce }, { deadlineMs, signal });
  await call('warm');
  await eventually('its tools are known', () => host.status()[0]?.tools === 1);
  return { server, host, clock, call };
}

test.each([60, 1_000])(
  'W19 a port that is closed for %d ms costs callers the wait, and no call runs twice',
  async (ms) => {
    const { server, host, clock, call } = await setUp();
    await server.closePort();
    const calls = Array.from({ length: 64 }, (_, i) => outcomeOf(call(`n${i}`)));
    const others = [
      host.list('a', 'tools/list'),
      host.read('a', 'x:/y'),
      host.request('a', 'prompts/get', '{"name":"p"}'),
    ];
    const read = Promise.all(others.map(outcomeOf));
    await clock.advanceAsync(ms);
    await server.openPort();
    // The waits between two tries are over long before the deadline of 5 s; the sockets get all the real time that they need.
    const untilMs = clock.nowMs() + 3_000;
    let isOver = false;
    const outcomes = Promise.all(calls).finally(() => {
      isOver = true;
    });
    await eventually('all calls have ended', () => {
      if (clock.nowMs() < untilMs) clock.advance(10);
      return isOver;
    });
    expect(new Set(await outcomes)).toEqual(new Set(['ok']));
    expect(await read).toEqual(['ok', 'ok', 'ok']);
    expect(server.executed.filter((nonce) => nonce !== 'warm').sort()).toEqual(
      Array.from({ length: 64 }, (_, i) => `n${i}`).sort(),
    );
    expect(host.status()[0]).toMatchObject({ state: 'ready', circuit: 'closed' });
  },
);

test('W19 a port that stays closed ends the call before its deadline, with the reason', async () => {
  const { server, clock, call } = await setUp();
  await server.closePort();
  const outcome = failureOf(call('n', 500));
  let isOver = false;
  void outcome.then(() => {
    isOver = true;
  });
  await eventually('it has ended', () => {
    clock.advance(10);
    return isOver;
  });
  expect((await outcome).toJSON()).toMatchObject({ code: 'connect_failed', reason: 'ECONNREFUSED' });
});

test('W19 a caller that cancels while the port is closed gets its answer at once', async () => {
  const { server, call } = await setUp();
  await server.closePort();
  const leaving = new AbortController();
  const outcome = failureOf(call('n', 60_000, leaving.signal));
  leaving.abort();
  expect((await outcome).code).toBe('cancelled');
  await server.openPort();
  await call('next');
  expect(server.executed).toEqual(['warm', 'next']);
});

test.each(['stopped', 'closed'])('W19 calls that wait for a port are refused when their server is %s', async (how) => {
  const { server, host, call } = await setUp();
  await server.closePort();
  const calls = Array.from({ length: 8 }, (_, i) => failureOf(call(`n${i}`, 60_000)));
  await (how === 'stopped' ? host.stop('a') : host.close());
  const failures = await Promise.all(calls);
  expect(new Set(failures.map(({ code, details }) => `${code} ${details.execution}`))).toEqual(
    new Set(['server_stopped not_executed']),
  );
});
