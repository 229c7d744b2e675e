/** Notifications and answers to a server that does not accept them: bounded, abandoned in time, and without effect on calls. */
import type { ServerResponse } from 'node:http';
import { afterEach, describe, expect, test } from 'vitest';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { seededRandom } from '../../src/kernel/random.js';
import type { HttpCounters } from '../../src/transports/http/call-queue.js';
import { openHttpSse } from '../../src/transports/http/http-sse-channel.js';
import { openStreamableHttp } from '../../src/transports/http/streamable-http-channel.js';
import { responseFrame } from '../../src/wire/channel.js';
import { legacyEra } from '../fakes/eras.js';
import { notification, RecordingListener, rawRequest, request } from '../fakes/http-listener.js';
import { type Answer, events, json, result, startServer } from '../fakes/http-server.js';
import { until } from '../fakes/http-until.js';

const open: Array<{ close(): unknown }> = [];
afterEach(async () => {
  for (const thing of open.splice(0).reverse()) await thing.close();
});

const LEGACY = { era: legacyEra, version: '2025-06-18' } as const;
const text = (bytes: number) => `"${'x'.repeat(bytes)}"`;
const answer = (bytes: number) => responseFrame('"q"', 'result', text(bytes));

async function streamableHttp(notice: Answer) {
  const server = await startServer((got, response, message) => {
    if (got.id === undefined || got.rpcMethod === undefined) notice(got, response, message);
    else json(response, result(got.id));
  });
  const clock = new FakeClock();
  const channel = openStreamableHttp({ server: 'fake', url: server.url }, { clock, random: seededRandom(1) });
  open.push(server, channel);
  return { server, channel, clock };
}

async function httpSse(notice: Answer) {
  let stream: ServerResponse | undefined;
  const server = await startServer((got, response, message) => {
    if (got.method === 'GET') {
      stream = response;
      events(response).write('event: endpoint\ndata: /messages\n\n');
    } else if (got.id === undefined || got.rpcMethod === undefined) notice(got, response, message);
    else {
      response.writeHead(202).end();
      stream?.write(`data: ${JSON.stringify(result(got.id))}\n\n`);
    }
  });
  const clock = new FakeClock();
  const channel = await openHttpSse({ server: 'fake', url: server.url }, { clock, random: seededRandom(1) });
  open.push(server, channel);
  return { server, channel, clock };
}

describe.each([
  ['streamable HTTP', streamableHttp],
  ['HTTP+SSE', httpSse],
])('%s', (_name, start) => {
  async function connect(notice: Answer) {
    const setup = await start(notice);
    const heard = new RecordingListener();
    setup.channel.start(heard);
    setup.channel.adopt(LEGACY);
    const posts = () => setup.server.received.filter((got) => got.method === 'POST');
    return { ...setup, heard, posts, counters: setup.channel.counters as HttpCounters };
  }

  test('notices that hang are abandoned after ten seconds each, and later ones get their turn', async () => {
    const { server, channel, clock, posts, counters } = await connect((got, response) => {
      if (got.rpcMethod !== 'notifications/hangs') response.writeHead(202).end();
    });
    for (let i = 0; i < 16; i++) channel.send(notification('notifications/hangs'));
    channel.send(notification('notifications/waits'));
    await server.until(() => posts().length === 16);
    clock.advance(9_999);
    expect([posts().length, counters.noticesLost]).toEqual([16, 0]);
    clock.advance(1);
    await server.until(() => posts().length === 17);
    expect(posts()[16]?.rpcMethod).toBe('notifications/waits');
    expect(counters.noticesLost).toBe(16);
    await until(() => clock.pendingTimers === 0);
  });

  test('W2 notices that hang do not delay a cancellation, which has two seconds on a control connection', async () => {
    const { server, channel, clock, posts, counters } = await connect(() => {});
    for (let i = 0; i < 20; i++) channel.send(notification('notifications/hangs'));
    for (let i = 0; i < 3; i++) channel.send(notification('notifications/cancelled'));
    const cancelled = () => posts().filter(({ rpcMethod }) => rpcMethod === 'notifications/cancelled').length;
    await server.until(() => posts().length === 18);
    expect(cancelled()).toBe(2);
    clock.advance(2_000);
    await server.until(() => cancelled() === 3);
    expect(counters.noticesLost).toBe(2);
  });

  test('many answers that the server does not accept are dropped and counted; calls are served', async () => {
    const { server, channel, heard, posts, counters } = await connect(() => {});
    for (let i = 0; i < 20_000; i++) expect(channel.send(answer(10))).toBeUndefined();
    await server.until(() => posts().length === 16);
    expect(counters.noticesLost).toBe(20_000 - 256);
    const call = request('tools/call');
    expect(channel.send(call)).toBeUndefined();
    expect(await heard.settled(call)).toMatchObject({ kind: 'result' });
    expect(heard.failures).toEqual([]);
  });

  test('large notices have their own bound in bytes, separate from calls', async () => {
    const { channel, heard, counters } = await connect(() => {});
    for (let i = 0; i < 300; i++) expect(channel.send(answer(100 * 1024))).toBeUndefined();
    expect(counters.noticesLost).toBe(300 - 11);
    const calls = [rawRequest('a', text(7 << 20)), rawRequest('b', text(7 << 20))];
    for (const call of calls) expect(channel.send(call)).toBeUndefined();
    await Promise.all(calls.map((call) => heard.settled(call)));
  });

  test('one answer larger than that bound is sent', async () => {
    const { server, channel, posts, counters } = await connect((_got, response) => response.writeHead(202).end());
    channel.send(answer(4 << 20));
    await server.until(() => posts().length === 1);
    expect(posts()[0]?.body.length).toBeGreaterThan(4 << 20);
    expect(counters.noticesLost).toBe(0);
  });

  test('a stream instead of an acknowledgement is not read, and a refusal is counted', async () => {
    const { server, channel, clock, counters } = await connect((got, response) => {
      if (got.rpcMethod === 'notifications/a') events(response).write(': hello\n\n');
      else response.writeHead(500).end();
    });
    channel.send(notification('notifications/a'));
    await server.until(() => server.cut === 1);
    expect(counters.noticesLost).toBe(0);
    channel.send(notification('notifications/b'));
    await until(() => counters.noticesLost === 1);
    expect(clock.pendingTimers).toBe(0);
  });

  test('close abandons notices that hang or wait', async () => {
    const { server, channel, clock, posts } = await connect(() => {});
    for (let i = 0; i < 20; i++) channel.send(notification('notifications/hangs'));
    await server.until(() => posts().length === 16);
    await channel.close();
    expect(clock.pendingTimers).toBe(0);
    expect(posts()).toHaveLength(16);
  });
});

test('HTTP+SSE: an abandoned request frees its connection, also when the server hangs', async () => {
  const server = await startServer((got, response) => {
    if (got.method === 'GET') events(response).write('event: endpoint\ndata: /messages\n\n');
    else if (got.rpcMethod !== 'hangs') response.writeHead(202).end();
  });
  const spec = { server: 'fake', url: server.url, connections: 1 };
  const channel = await openHttpSse(spec, { clock: new FakeClock(), random: seededRandom(1) });
  open.push(server, channel);
  channel.start(new RecordingListener());
  const [hangs, next] = [request('hangs'), request('next')];
  channel.send(hangs);
  await server.until(() => server.received.length === 2);
  channel.send(next);
  expect(channel.withdraw(hangs)).toBe('notify');
  await server.until(() => server.received.length === 3);
  expect(server.received[2]?.rpcMethod).toBe('next');
});

describe('W2 a server that keeps the streams of its answered requests open', () => {
  async function connect(connections?: number) {
    const held: (() => void)[] = [];
    const server = await startServer((got, response) => {
      if (got.id === undefined) return response.writeHead(202).end();
      const answerIt = () => events(response).write(`data: ${JSON.stringify(result(got.id))}\n\n`);
      if (got.body.includes('"held"')) held.push(answerIt);
      else answerIt();
    });
    const clock = new FakeClock();
    const spec = { server: 'fake', url: server.url, ...(connections === undefined ? {} : { connections }) };
    const channel = openStreamableHttp(spec, { clock, random: seededRandom(1) });
    open.push(server, channel);
    const heard = new RecordingListener();
    channel.start(heard);
    channel.adopt(LEGACY);
    const arrived = (method: string) => server.until(() => server.received.some((got) => got.rpcMethod === method));
    return { server, channel, heard, held, arrived };
  }

  test('gets a cancellation that comes after its answers', async () => {
    const { channel, heard, arrived } = await connect();
    for (let i = 0; i < 2; i++) channel.send(request('ping'));
    await until(() => heard.messages.length === 2);
    channel.send(notification('notifications/cancelled'));
    await arrived('notifications/cancelled');
  });

  test('gets a cancellation that waited for its answers', async () => {
    const { server, channel, held, arrived } = await connect();
    for (let i = 0; i < 2; i++) channel.send(request('ping', { held: 'held' }));
    await server.until(() => held.length === 2);
    channel.send(notification('notifications/cancelled'));
    held[0]?.();
    await arrived('notifications/cancelled');
  });

  test('is sent a call that waited for the answer to another', async () => {
    const { server, channel, heard, held, arrived } = await connect(1);
    channel.send(request('tools/call', { held: 'held' }));
    await server.until(() => held.length === 1);
    channel.send(request('tools/list'));
    held[0]?.();
    await arrived('tools/list');
    await until(() => heard.messages.length === 2);
    expect([heard.messages.map(({ kind }) => kind), heard.failures]).toEqual([['result', 'result'], []]);
  });
});
