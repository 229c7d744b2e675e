import type { ServerResponse } from 'node:http';
import { afterEach, expect, test } from 'vitest';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { seededRandom } from '../../src/kernel/random.js';
import { guardedDial } from '../../src/transports/http/dial-guard.js';
import { type OpenLimits, openHttpSse } from '../../src/transports/http/http-sse-channel.js';
import type { Channel } from '../../src/wire/channel.js';
import { RecordingListener, request } from '../fakes/http-listener.js';
import { type Answer, events, result, startServer } from '../fakes/http-server.js';
import { until } from '../fakes/http-until.js';

const open: Array<{ close(): unknown }> = [];
afterEach(async () => {
  for (const thing of open.splice(0).reverse()) await thing.close();
});

const endpoint = (address: string) => `event: endpoint\ndata: ${address}\n\n`;

async function start(answer: Answer, limits?: OpenLimits) {
  const server = await startServer(answer);
  open.push(server);
  const clock = new FakeClock();
  const opening = openHttpSse({ server: 'old', url: server.url }, { clock, random: seededRandom(1) }, limits);
  opening.catch(() => {});
  return { server, clock, opening };
}

/** A server of 2024: answers over the stream, acknowledges POSTs. */
async function connected(post?: Answer) {
  let stream: ServerResponse | undefined;
  const { server, opening, clock } = await start((got, response, message) => {
    if (got.method === 'GET') {
      stream = response;
      events(response).write(`: hello\n\n${endpoint('/messages?sessionId=1')}`);
    } else if (post) post(got, response, message);
    else {
      response.writeHead(202).end('Accepted');
      stream?.write(`event: message\ndata: ${JSON.stringify(result(got.id))}\n\n`);
    }
  });
  const channel: Channel = await opening;
  open.push(channel);
  const heard = new RecordingListener();
  channel.start(heard);
  return { server, channel, heard, clock, endStream: () => stream?.end(), cutStream: () => stream?.socket?.destroy() };
}

test('messages are posted to the address the stream names; answers come over the stream', async () => {
  const { server, channel, heard, clock } = await connected();
  const frame = request('initialize');
  expect(channel.send(frame)).toBeUndefined();
  await heard.settled(frame);
  expect(server.received.map((entry) => [entry.method, entry.path])).toEqual([
    ['GET', '/mcp'],
    ['POST', '/messages?sessionId=1'],
  ]);
  expect(heard.messages[0]?.origin).toBeUndefined();
  expect(clock.pendingTimers).toBe(0);
});

test.each(['http://other.example/messages', '//127.0.0.1:1/x', 'https://127.0.0.1/x', 'http://['])(
  'the address %s is refused',
  async (address) => {
    const { opening, server } = await start((_got, response) => void events(response).write(endpoint(address)));
    await expect(opening).rejects.toMatchObject({ code: 'protocol_error', details: { reason: 'endpoint_origin' } });
    await server.until(() => server.cut === 1);
  },
);

test('the opening fails in time if the server names no address', async () => {
  const { opening, clock, server } = await start((_got, response) => void events(response).write(': wait\n\n'));
  await server.until(() => server.received.length === 1);
  clock.advance(29_999);
  expect(clock.pendingTimers).toBe(1);
  clock.advance(1);
  await expect(opening).rejects.toMatchObject({ code: 'timeout' });
});

test('the deadline of the caller ends the opening', async () => {
  const { opening, clock, server } = await start(() => {}, { deadlineAtMs: 1_000 });
  await server.until(() => server.received.length === 1);
  clock.advance(1_000);
  await expect(opening).rejects.toMatchObject({
    code: 'timeout',
    details: { server: 'old', execution: 'not_executed' },
  });
  await server.until(() => server.cut === 1);
});

test('cancelling ends the opening at once', async () => {
  const caller = new AbortController();
  const limits = { deadlineAtMs: 60_000, signal: caller.signal };
  const { opening, clock, server } = await start(() => {}, limits);
  await server.until(() => server.received.length === 1);
  caller.abort();
  await expect(opening).rejects.toMatchObject({ code: 'cancelled', details: { execution: 'not_executed' } });
  await server.until(() => server.cut === 1);
  expect(clock.pendingTimers).toBe(0);
});

test('cancelling ends the opening also while the address is being dialled', async () => {
  const caller = new AbortController();
  let dialled = false;
  const dial = guardedDial({
    policy: 'any',
    server: 'old',
    resolve: () => {
      dialled = true;
    },
  });
  const deps = { clock: new FakeClock(), random: seededRandom(1), dial };
  const limits = { deadlineAtMs: 60_000, signal: caller.signal };
  const opening = openHttpSse({ server: 'old', url: 'http://slow.example/sse' }, deps, limits);
  await until(() => dialled);
  caller.abort();
  await expect(opening).rejects.toMatchObject({ code: 'cancelled' });
});

test.each([
  ['a deadline that is past', { deadlineAtMs: 0 }, 'timeout'],
  ['a caller that has already cancelled', { deadlineAtMs: 1_000, signal: AbortSignal.abort() }, 'cancelled'],
])('with %s nothing is dialled', async (_name, limits, code) => {
  const { opening, clock, server } = await start(() => {}, limits);
  await expect(opening).rejects.toMatchObject({ code });
  expect([server.received.length, clock.pendingTimers]).toEqual([0, 0]);
});

test('an open channel outlives the signal it was opened with', async () => {
  const caller = new AbortController();
  const limits = { deadlineAtMs: 1_000, signal: caller.signal };
  const { opening, clock } = await start(
    (_got, response) => void events(response).write(endpoint('/messages')),
    limits,
  );
  const channel = await opening;
  open.push(channel);
  const heard = new RecordingListener();
  channel.start(heard);
  caller.abort();
  clock.advance(2_000);
  expect(channel.send(request('tools/list'))).toBeUndefined();
  expect(heard.ends).toEqual([]);
});

const note = (text: string) => `data: {"jsonrpc":"2.0","method":"notifications/n","params":"${text}"}\n\n`;

test('messages before the address are dropped and counted', async () => {
  const { opening } = await start((_got, response) => {
    events(response);
    for (let i = 0; i < 20; i++) response.write(note('x'.repeat(1024 * 1024)));
    response.write(endpoint('/messages') + note('first'));
  });
  const channel = await opening;
  open.push(channel);
  const heard = new RecordingListener();
  channel.start(heard);
  await heard.until(() => heard.messages.length > 0);
  expect(heard.messages.map((message) => message.text)).toEqual(['"first"']);
  expect(channel.counters.junk).toBe(20);
});

test.each([
  ['1 MiB', 100 * 1024, 30, 10],
  ['100 messages', 1, 200, 100],
])('messages after the address and before the first listener are stored up to %s', async (_name, bytes, sent, kept) => {
  const { opening } = await start((_got, response) => {
    events(response).write(endpoint('/messages') + note('x'.repeat(bytes)).repeat(sent));
  });
  const channel = await opening;
  open.push(channel);
  await until(() => channel.counters.junk === sent - kept);
  const heard = new RecordingListener();
  channel.start(heard);
  expect(heard.messages).toHaveLength(kept);
});

test('a response that is no stream rejects with its status', async () => {
  const { opening, clock } = await start((_got, response) => response.writeHead(404).end());
  await expect(opening).rejects.toMatchObject({ code: 'protocol_error', details: { httpStatus: 404 } });
  expect(clock.pendingTimers).toBe(0);
});

test('an unreachable server rejects as not executed', async () => {
  const opening = openHttpSse(
    { server: 'old', url: 'http://127.0.0.1:1/sse' },
    { clock: new FakeClock(), random: () => 0 },
  );
  await expect(opening).rejects.toMatchObject({ code: 'connect_failed', details: { execution: 'not_executed' } });
});

test('a refused POST fails its request', async () => {
  const { channel, heard } = await connected((_got, response) => response.writeHead(500).end());
  const frame = request('tools/call');
  channel.send(frame);
  expect(await heard.settled(frame)).toMatchObject({
    code: 'transport',
    details: { httpStatus: 500, execution: 'uncertain' },
  });
});

test('a POST that breaks fails its request as uncertain', async () => {
  const { channel, heard } = await connected((_got, response) => response.socket?.destroy());
  const frame = request('tools/call');
  channel.send(frame);
  expect(await heard.settled(frame)).toMatchObject({ code: 'transport', details: { execution: 'uncertain' } });
});

test.each(['endStream', 'cutStream'] as const)('the channel ends with its stream (%s)', async (how) => {
  const { channel, heard, ...server } = await connected();
  server[how]();
  await heard.until(() => heard.ends.length === 1);
  expect(heard.ends[0]).toMatchObject({ code: 'transport', details: { execution: 'uncertain' } });
  expect(channel.send(request('late'))).toMatchObject({ details: { execution: 'not_executed' } });
  await channel.close();
  expect([heard.ends.length, heard.late]).toEqual([1, 0]);
});

test('cancelling: unsent while the connection opens, otherwise with a notification', async () => {
  const { server, channel, heard } = await connected();
  const never = request('never');
  channel.send(never);
  expect(channel.withdraw(never)).toBe('unsent');
  const sent = request('sent');
  channel.send(sent);
  await heard.settled(sent);
  expect(channel.withdraw(sent)).toBe('notify');
  expect(server.received.some((entry) => entry.rpcMethod === 'never')).toBe(false);
});

test('close leaves no connection', async () => {
  const { server, channel, heard } = await connected();
  await channel.close();
  await until(() => server.cut === 1);
  expect(heard.ends).toHaveLength(1);
});

test('W14 an answer that is too large names its request before it ends the stream', async () => {
  let streamed: ServerResponse | undefined;
  const { opening } = await start((got, response) => {
    if (got.method === 'GET') {
      streamed = response;
      events(response).write(endpoint('/messages'));
      return;
    }
    response.writeHead(202).end();
    const text = 'x'.repeat(9 * 1024 * 1024);
    if (got.rpcMethod === 'big') streamed?.write(`data: {"jsonrpc":"2.0","id":${got.id},"result":"${text}"}\n\n`);
  });
  const channel = await opening;
  open.push(channel);
  const told: unknown[] = [];
  let ended: () => void = () => {};
  const over = new Promise<void>((resolve) => {
    ended = resolve;
  });
  channel.start({
    message: () => {},
    failed: () => {},
    tooLarge: (id, error) => told.push([id, error.code]),
    closed: (error) => {
      told.push(error.code);
      ended();
    },
  });
  const big = request('big');
  channel.send(request('write'));
  channel.send(big);
  await over;
  expect(told).toEqual([[big.id, 'result_too_large'], 'result_too_large']);
});
