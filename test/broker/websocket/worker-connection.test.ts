/** The worker's side of a WebSocket: every wait ends, and errors say what to do. */
import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { openWebSocketConnection } from '../../../src/broker/websocket/worker-connection.js';
import { systemClock } from '../../../src/kernel/clock.js';
import type { HostError } from '../../../src/kernel/errors.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { RecordingWorker, request } from '../../contract/broker/transports.js';
import { eventually } from '../../eventually.js';
import { keys, SocketPlace, tcpServer } from './socket-place.js';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

const errorAt = (url: string): Promise<HostError> =>
  new RecordingWorker().connect(openWebSocketConnection({ url, key: keys.w1, clock: systemClock })).then(
    () => expect.fail('it connected'),
    (error: HostError) => error,
  );

/** A server that answers each connection with these bytes. */
async function answering(text: string | undefined, afterwards: (socket: Socket) => void = () => {}): Promise<string> {
  const { port, server } = await tcpServer((socket) => {
    ends.push(() => socket.destroy());
    socket.once('data', () => {
      if (text !== undefined) socket.write(text);
      afterwards(socket);
    });
  });
  ends.push(() => server.close());
  return `ws://127.0.0.1:${port}/broker`;
}

const status = (line: string) => `HTTP/1.1 ${line}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`;

describe('each has an error of its own:', () => {
  test.each([
    ['401 Unauthorized', 'http_401', 'is behind a proxy that requires credentials', 'let the proxy pass'],
    ['403 Forbidden', 'http_403', "does not accept the name '127.0.0.1'", 'broker.listen.allowedHosts'],
    ['404 Not Found', 'http_404', 'has nothing at the path /broker', '/broker'],
    ['502 Bad Gateway', 'http_502', 'answered with HTTP 502', 'hostler up prints'],
  ])('%s', async (line, reason, message, hint) => {
    const error = await errorAt(await answering(status(line)));
    expect(error).toMatchObject({ code: 'connect_failed', details: { reason, execution: 'not_executed' } });
    expect([error.message, error.hint]).toEqual([expect.stringContaining(message), expect.stringContaining(hint)]);
    expect(JSON.stringify(error)).not.toContain(keys.w1);
  });

  test('503, a closed port, a name that is not known and a peer that hangs up', async () => {
    expect(await errorAt(await answering(status('503 Service Unavailable')))).toMatchObject({
      ...{ code: 'overloaded', hint: expect.stringContaining('broker.limits.connections') },
    });
    expect(await errorAt('ws://127.0.0.1:9/broker')).toMatchObject({
      ...{ details: { reason: 'ECONNREFUSED' }, hint: expect.stringContaining('start hostler up') },
    });
    const unknown = await errorAt('wss://hostler.invalid/broker');
    expect(unknown.message).toContain('has a name that cannot be resolved');
    const hangsUp = await errorAt(await answering(undefined, (socket) => socket.destroy()));
    expect(hangsUp.hint).toContain('if it serves TLS, use wss://');
  });

  test('a port without TLS', async () => {
    const plain = await errorAt((await answering('HTTP/1.1 400 Bad Request\r\n\r\n')).replace('ws:', 'wss:'));
    expect(plain.message).toContain('does not speak TLS');
  });
});

/** A WebSocket server that answers each connection and each message as the test says. */
async function scripted(answer: (text: string, send: (text: string) => void) => void): Promise<string> {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  await new Promise((resolve) => server.once('listening', resolve));
  server.on('connection', (socket) => {
    ends.push(() => socket.terminate());
    socket.on('message', (data) => answer(String(data), (text) => socket.send(text)));
    answer('', (text) => socket.send(text));
  });
  ends.push(() => server.close());
  return `ws://127.0.0.1:${(server.address() as { port: number }).port}/broker`;
}

const welcome = '{"v":1,"op":"welcome","worker":"w1","role":"reader","storeId":"store-1","later":true}';

describe('a server that is no broker', () => {
  test.each([
    ['nonsense', 'hello'],
    ['another protocol', '{"jsonrpc":"2.0"}'],
    ['another version', '{"v":2,"op":"welcome","worker":"w1","storeId":"s"}'],
    ['a reply', '{"v":1,"op":"reply","key":"k","body":{}}'],
  ])('that answers with %s is given up', async (_what, text) => {
    const error = await errorAt(await scripted((_said, send) => send(text)));
    expect(['protocol_error', 'invalid_arguments']).toContain(error.code);
  });

  test('that never answers is given up after 10 s', async () => {
    const clock = new FakeClock();
    let said = 0;
    const url = await scripted(() => {
      said++;
    });
    const connecting = new RecordingWorker()
      .connect(openWebSocketConnection({ url, key: keys.w1, clock }))
      .catch((error: HostError) => error);
    await eventually('the connection', () => said === 1);
    clock.advance(10_000);
    expect(await connecting).toMatchObject({ code: 'connect_failed', details: { reason: 'timeout' } });
  });
});

test('messages of a newer host are ignored, and one that cannot be read ends the connection', async () => {
  let send: (text: string) => void = () => {};
  const url = await scripted((text, answer) => {
    send = answer;
    if (text === '') answer(welcome);
  });
  const worker = new RecordingWorker();
  const connection = await worker.connect(openWebSocketConnection({ url, key: keys.w1, clock: systemClock }));
  send('{"v":1,"op":"something_new","key":"k1"}');
  send('{"v":1,"op":"reply","key":"k1","body":{"era":"legacy","result":{}},"more":1}');
  await eventually('the reply', () => worker.replies.length === 1);
  send('{"v":1,"op":"reply"}');
  expect(await connection.closed).toMatchObject({ code: 'protocol_error' });
});

test('AC-BR9 a call without a receipt is rejected after 10 s as uncertain; a later receipt is ignored', async () => {
  const clock = new FakeClock();
  const keysSent: string[] = [];
  let send: (text: string) => void = () => {};
  const url = await scripted((text, answer) => {
    send = answer;
    if (text === '') answer(welcome);
    else keysSent.push((JSON.parse(text) as { key: string }).key);
  });
  const worker = new RecordingWorker('session-1', clock);
  const connection = await worker.connect(openWebSocketConnection({ url, key: keys.w1, clock }));
  ends.push(() => connection.close());
  const first = connection.call(request('k1')).catch((error: HostError) => error);
  const second = connection.call(request('k2'));
  await eventually('both came', () => keysSent.length === 2);
  send('{"v":1,"op":"receipt","key":"k2","owner":"o1","storeId":"store-1"}');
  expect(await second).toEqual({ owner: 'o1', storeId: 'store-1' });
  clock.advance(9_999);
  clock.advance(1);
  expect(await first).toMatchObject({ code: 'transport', details: { reason: 'no_answer', execution: 'uncertain' } });
  send('{"v":1,"op":"receipt","key":"k1","owner":"o1","storeId":"store-1"}');
  const again = connection.call(request('k3'));
  await eventually('it came', () => keysSent.length === 3);
  send('{"v":1,"op":"receipt","key":"k3","owner":"o1","storeId":"store-1"}');
  expect(await again).toEqual({ owner: 'o1', storeId: 'store-1' });
});

test('a call has left when the network has taken it: the time for its receipt begins then', async () => {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  await new Promise((resolve) => server.once('listening', resolve));
  ends.push(() => server.close());
  let heard = 0;
  const admitted = new Promise<WebSocket>((resolve) => {
    server.on('connection', (socket) => {
      ends.push(() => socket.terminate());
      socket.on('message', () => heard++);
      socket.send(welcome);
      socket.pause();
      resolve(socket);
    });
  });
  const url = `ws://127.0.0.1:${(server.address() as { port: number }).port}/broker`;
  const open = openWebSocketConnection({ url, key: keys.w1, clock: systemClock });
  const connection = await new RecordingWorker().connect(open);
  ends.push(() => connection.close());
  const args = Buffer.from(JSON.stringify({ text: 'x'.repeat(3_900_000) }));
  const sent = ['small', 'k1', 'k2', 'k3', 'k4', 'k5', 'k6', 'k7', 'k8'];
  const left = new Set<string>();
  for (const key of sent) {
    const call = request(key, key === 'small' ? {} : { args });
    connection.call(call, () => void left.add(key)).catch(() => {});
    await eventually('the small one has left', () => left.has('small'));
  }
  // The buffers of the system may have taken the first large ones.
  expect(left.has('k8')).toBe(false);
  (await admitted).resume();
  await eventually('all came', () => heard === sent.length);
  await eventually('all have left', () => left.size === sent.length);
});

test('D-51 a connection that swallows everything is given up by both sides within 30 s', async () => {
  const place = await SocketPlace.open();
  ends.push(() => place.close());
  const { port, server } = await tcpServer((socket) => {
    const onward = place.tcp();
    socket.on('data', (data) => void onward.then((to) => isOpen && to.write(data)));
    void onward.then((from) => from.on('data', (data) => isOpen && socket.write(data)));
    ends.push(() => socket.destroy());
  });
  ends.push(() => server.close());
  let isOpen = true;
  const clock = new FakeClock();
  const url = `ws://127.0.0.1:${port}/broker`;
  const connection = await new RecordingWorker().connect(openWebSocketConnection({ url, key: keys.w1, clock }));
  isOpen = false;
  clock.advance(20_000);
  clock.advance(10_000);
  expect(await connection.closed).toMatchObject({ code: 'transport', details: { reason: 'silent' } });
});

test('D-51 the host gives up a worker that answers no ping within 30 s', async () => {
  const clock = new FakeClock();
  const place = await SocketPlace.open({ clock });
  ends.push(() => place.close());
  const raw = await place.admitted();
  raw.socket.removeAllListeners('ping');
  raw.socket.pause();
  clock.advance(30_000);
  await eventually('it is cut', () => place.transport.connections === 0);
  expect(place.events.at(-1)).toMatchObject({ kind: 'disconnected', reason: 'silent' });
});

test('D-52 a host that stops says so, not that the key was refused; calls that it did not read count as not executed', async () => {
  const place = await SocketPlace.open();
  place.service.onCall = () => {};
  const connection = await place.connect();
  const read = connection.call(request('k1')).catch((error: HostError) => error);
  await eventually('it was read', () => place.service.calls.length === 1);
  place.service.calls[0]?.receipt('owner-1');
  await read;
  await place.transport.stop();
  const closing = place.transport.close();
  const unread = await connection.call(request('k2')).catch((error: HostError) => error);
  expect(unread).toMatchObject({ code: 'transport', details: { execution: 'not_executed' } });
  expect(await connection.closed).toMatchObject({ code: 'transport', details: { reason: 'going_away' } });
  await closing;
});

test('if a proxy closes with 1001, the calls that it passed on are uncertain', async () => {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  ends.push(() => server.close());
  server.on('connection', (socket) => {
    socket.send(JSON.stringify({ v: 1, op: 'welcome', worker: 'w1', storeId: 's' }));
    socket.once('message', () => socket.close(1001));
  });
  await eventually('it listens', () => server.address() !== null);
  const url = `ws://127.0.0.1:${(server.address() as { port: number }).port}/broker`;
  const open = openWebSocketConnection({ url, key: keys.w1, clock: systemClock });
  const connection = await new RecordingWorker().connect(open);
  const call = await connection.call(request('k1')).catch((error: HostError) => error);
  expect(call).toMatchObject({ code: 'transport', details: { execution: 'uncertain' } });
});

test('a connection that the other side closes normally is reported as lost', async () => {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  ends.push(() => server.close());
  server.on('connection', (socket) => {
    socket.send(welcome);
    socket.close(1000);
  });
  await eventually('it listens', () => server.address() !== null);
  const url = `ws://127.0.0.1:${(server.address() as { port: number }).port}/broker`;
  const open = openWebSocketConnection({ url, key: keys.w1, clock: systemClock });
  const connection = await new RecordingWorker().connect(open);
  expect(await connection.closed).toMatchObject({ code: 'transport', details: { reason: 'closed' } });
});

test('a host that closes with unanswered calls leaves them uncertain', async () => {
  const place = await SocketPlace.open();
  place.service.onCall = () => {};
  const connection = await place.connect();
  const read = connection.call(request('k1')).catch((error: HostError) => error);
  await eventually('it was read', () => place.service.calls.length === 1);
  await place.transport.close();
  expect(await read).toMatchObject({ code: 'transport', details: { execution: 'uncertain' } });
});
