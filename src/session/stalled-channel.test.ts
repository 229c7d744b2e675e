/**
 * Tests the stall watch of a real channel over fake connections: the connections for calls never begin a request, and the
 * control connections work or hang.
 */
import type { Dispatcher } from 'undici';
import { describe, expect, test } from 'vitest';
import { isHostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { openStreamableHttp } from '../transports/http/streamable-http-channel.js';
import { openSession } from './open-session.js';

interface Posted {
  readonly method: string;
  readonly id: number | undefined;
}

/** Answers each POST as the test says. `unsent`: undici never begins it; `silent`: the server never answers it. */
class FakePool {
  readonly posted: Posted[] = [];
  mode: 'answer' | 'unsent' | 'silent' = 'answer';
  readonly connections: number;

  constructor(connections: number) {
    this.connections = connections;
  }

  dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    if (options.method !== 'POST') return this.#respond(handler, 405, {}, '');
    const message = JSON.parse(String(options.body)) as Posted;
    if (this.mode === 'unsent') return true;
    this.posted.push(message);
    if (this.mode === 'silent') {
      handler.onRequestStart?.(controllerOf(handler), {});
      return true;
    }
    if (message.method === 'server/discover') return this.#respond(handler, 404, {}, '');
    if (message.id === undefined) return this.#respond(handler, 202, {}, '');
    const result = message.method === 'initialize' ? { protocolVersion: '2025-11-25', capabilities: {} } : {};
    const headers = {
      'content-type': 'application/json',
      ...(message.method === 'initialize' ? { 'mcp-session-id': 's1' } : {}),
    };
    return this.#respond(handler, 200, headers, JSON.stringify({ jsonrpc: '2.0', id: message.id, result }));
  }

  destroy(): Promise<void> {
    return Promise.resolve();
  }

  #respond(handler: Dispatcher.DispatchHandler, status: number, headers: Record<string, string>, body: string): true {
    const controller = controllerOf(handler);
    handler.onRequestStart?.(controller, {});
    setImmediate(() => {
      if (controller.aborted) return;
      handler.onResponseStart?.(controller, status, headers, '');
      if (body !== '') handler.onResponseData?.(controller, Buffer.from(body));
      handler.onResponseEnd?.(controller, {});
    });
    return true;
  }
}

function controllerOf(handler: Dispatcher.DispatchHandler): Dispatcher.DispatchController {
  const controller = {
    aborted: false,
    paused: false,
    reason: null,
    pause() {},
    resume() {},
    abort(reason: Error) {
      if (controller.aborted) return;
      controller.aborted = true;
      handler.onResponseError?.(controller, reason);
    },
  };
  return controller;
}

async function open() {
  const clock = new FakeClock();
  const pools: FakePool[] = [];
  const pool = (_origin: string, connections: number) => {
    const made = new FakePool(connections);
    pools.push(made);
    return made as unknown as Dispatcher;
  };
  const spec = { server: 'a', url: 'http://a.example/mcp', connections: 4 };
  const channel = openStreamableHttp(spec, { clock, random: () => 0.5, pool });
  const told: string[] = [];
  const session = await openSession({
    server: 'a',
    client: { name: 'hostler', version: '0', capabilities: {} },
    clock,
    startTimeoutMs: 1_000,
    clean: (text) => text,
    handlers: {
      missed: () => told.push(`missed at ${clock.nowMs()}`),
      answered: () => told.push(`answered at ${clock.nowMs()}`),
      closed: (error) => told.push(`closed at ${clock.nowMs()}: ${error.details.reason}`),
    },
    open: () => Promise.resolve(channel),
  });
  await clock.advanceAsync(0);
  const calls = pools.find(({ connections }) => connections === 4) as FakePool;
  const control = pools.find(({ connections }) => connections === 2) as FakePool;
  const call = (deadlineMs = 60_000) =>
    session.callTool('x', '{}', { deadlineAtMs: clock.nowMs() + deadlineMs }).then(
      () => 'ok',
      (error: unknown) => {
        if (!isHostError(error)) throw error;
        return `${error.code} ${error.details.execution}`;
      },
    );
  const pings = () => control.posted.filter(({ method }) => method === 'ping').length;
  return { clock, session, calls, control, call, pings, told };
}

test('W2 control traffic has two connections of its own, separate from those of calls', async () => {
  const { calls, control, call, session, clock } = await open();
  expect(await call()).toBe('ok');
  await session.probe(clock.nowMs() + 1_000);
  expect(control.posted.map(({ method }) => method)).toEqual([
    'server/discover',
    'initialize',
    'notifications/initialized',
    'ping',
  ]);
  expect(calls.posted.map(({ method }) => method)).toEqual(['tools/call']);
});

describe('W5 a channel that has stopped sending', () => {
  test('becomes suspect after 10 s and is checked at once; without an answer in 5 s it is ended', async () => {
    const { clock, calls, control, call, pings, told } = await open();
    calls.mode = 'unsent';
    control.mode = 'silent';
    const waiting = [call(), call()];
    await clock.advanceAsync(9_999);
    expect([told, pings()]).toEqual([[], 0]);
    await clock.advanceAsync(1);
    expect([told, pings()]).toEqual([['missed at 10000'], 1]);
    await clock.advanceAsync(5_000);
    expect(told).toEqual(['missed at 10000', 'closed at 15000: stalled']);
    expect(await Promise.all(waiting)).toEqual(['transport not_executed', 'transport not_executed']);
  });

  test('is ended 10 s after the check, even if the server answers it: the fault is in the channel', async () => {
    const { clock, calls, call, pings, told } = await open();
    calls.mode = 'unsent';
    const waiting = call();
    await clock.advanceAsync(10_000);
    expect([told, pings()]).toEqual([['missed at 10000', 'answered at 10000'], 1]);
    await clock.advanceAsync(10_000);
    expect([told.at(-1), pings()]).toEqual(['closed at 20000: stalled', 1]);
    expect(await waiting).toBe('transport not_executed');
  });

  test('is detected even if each caller leaves before 10 s have passed', async () => {
    const { clock, calls, call, told } = await open();
    calls.mode = 'unsent';
    for (let i = 0; i < 12; i++) {
      void call(3_000);
      await clock.advanceAsync(4_000);
    }
    expect(told.map((entry) => entry.split(' ')[0])).toEqual(['missed', 'answered', 'closed']);
  });
});

test('W5 a server that works on calls in silence never becomes suspect for it, however many requests wait', async () => {
  const { clock, calls, call, pings, told } = await open();
  calls.mode = 'silent';
  const waiting = Array.from({ length: 10 }, () => call(29_000));
  await clock.advanceAsync(28_000);
  expect([calls.posted.length, told, pings()]).toEqual([4, [], 0]);
  await clock.advanceAsync(1_000);
  expect(new Set(await Promise.all(waiting))).toEqual(new Set(['timeout uncertain', 'timeout not_executed']));
});

test('W5 a channel that sends again after the check is not ended', async () => {
  const { clock, calls, call, told } = await open();
  calls.mode = 'unsent';
  const waiting = call(12_000);
  await clock.advanceAsync(12_000);
  expect(await waiting).toBe('timeout not_executed');
  calls.mode = 'answer';
  expect(await call()).toBe('ok');
  await clock.advanceAsync(60_000);
  expect(told).toEqual(['missed at 10000', 'answered at 10000']);
});
