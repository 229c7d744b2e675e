/** The port of the broker: who is turned away before it is a connection, and how it is served. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { openWorkerLink } from '../../../src/broker/embedded/worker-link.js';
import type { Delivery } from '../../../src/broker/ports.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { HostError } from '../../../src/kernel/errors.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { eventually } from '../../eventually.js';
import { keyOf } from './core-bench.js';
import { RawSocket, type SocketBench, socketBench } from './socket-bench.js';

let bench: SocketBench | undefined;
const up = async (options?: Parameters<typeof socketBench>[0]): Promise<SocketBench> => {
  bench = await socketBench(options);
  return bench;
};
afterEach(async () => {
  await bench?.close();
  bench = undefined;
});
const never = new AbortController().signal;
const quiet = { replied() {}, told() {} };

test('AC-BR5 the connection past the limit is refused before it is one, and a freed place is usable', async () => {
  const { url, broker } = await up({ limits: { connections: 3 } });
  const open = await Promise.all([1, 2, 3].map(() => RawSocket.open(url)));
  const refused = new RawSocket(url);
  await eventually('a refusal', () => refused.status);
  expect(refused.status).toBe(503);
  expect(refused.isOpen).toBe(false);
  expect(broker.status()).toMatchObject({ connections: 3, turnedAway: 1 });
  open[1]?.socket.close();
  await eventually('a free place', () => broker.status().connections === 2);
  const alice = (await RawSocket.open(url)).hello('alice');
  await eventually('a welcome', () => alice.frames[0]);
  expect(alice.frames).toMatchObject([{ kind: 'welcome', mailbox: 'alice' }]);
  const again = new RawSocket(url);
  await eventually('a refusal', () => again.status === 503);
  for (const each of [...open, alice]) each.socket.terminate();
});

test.each([
  ['a page of another site', { origin: 'https://evil.example' }, 403],
  ['a page of another site on the same machine under its own name', { origin: 'http://rebound.example' }, 403],
  ['another Host', { host: 'rebound.example' }, 403],
  ['a Host with a user in it', { host: 'a@127.0.0.1' }, 403],
  ['a null origin', { origin: 'null' }, 403],
])('X1 %s is refused before there is a WebSocket', async (_, headers, status) => {
  const { url, broker } = await up();
  const raw = new RawSocket(url, headers as Record<string, string>);
  await eventually('a refusal', () => raw.status);
  expect([raw.status, raw.isOpen]).toEqual([status, false]);
  expect(broker.status()).toMatchObject({ connections: 0, turnedAway: 1 });
});

test('X1 our own page, and no page at all, are let through to the hello', async () => {
  const { url } = await up();
  for (const headers of [{}, { origin: new URL(url).origin.replace('ws', 'http') }]) {
    const raw = await RawSocket.open(url, headers);
    raw.socket.terminate();
  }
});

test.each(['/', '/broker/', '/broker?x=1', '/mcp', '/Broker', '//broker'])('no other path: %s', async (name) => {
  const { url } = await up();
  const raw = new RawSocket(`ws://${new URL(url).host}${name}`);
  await eventually('a refusal', () => raw.status);
  expect(raw.status).toBe(404);
});

test('what is no WebSocket gets nothing, and what never ends its header is cut', { timeout: 20_000 }, async () => {
  const { url } = await up();
  const { host, port } = new URL(url);
  const response = await fetch(`http://${host}/broker`);
  expect(response.status).toBe(426);
  const slow = connect(Number(port), '127.0.0.1');
  let isOver = false;
  slow.on('close', () => {
    isOver = true;
  });
  slow.on('error', () => undefined);
  slow.write('GET /broker HTTP/1.1\r\nHost: 127.0.0.1\r\n');
  slow.resume();
  await eventually('the end of the slow one', () => isOver, 15_000);
});

test('D-53 frames are never compressed, and one past four mebibytes ends its connection', async () => {
  const { url, broker } = await up();
  const alice = (await RawSocket.open(url)).hello('alice');
  await eventually('a welcome', () => alice.frames.length === 1);
  expect(alice.socket.extensions).toBe('');
  alice.say({ kind: 'deliver', id: 'a', type: 'request', to: 'host', body: { x: 'x'.repeat(4 * 1024 * 1024) } });
  await eventually('the end', () => alice.closed);
  expect(alice.closed?.code).toBe(1009);
  await eventually('nobody', () => broker.status().connections === 0);
  expect(broker.status().mailboxes).toEqual([]);
});

test('D-53 a stranger may say as much as a hello needs, and no more', async () => {
  const { url, broker } = await up();
  const stranger = await RawSocket.open(url);
  stranger.say({ kind: 'hello', v: 1, key: 'x'.repeat(1_000_000) });
  await eventually('the end', () => stranger.closed);
  expect(stranger.closed?.code).toBe(1006);
  expect(stranger.frames).toEqual([]);
  const alice = (await RawSocket.open(url)).hello('alice');
  await eventually('a welcome', () => alice.frames.length === 1);
  alice.say({ kind: 'deliver', id: 'a', type: 'request', to: 'host', body: { x: 'x'.repeat(1_000_000) } });
  await eventually('a receipt', () => alice.frames.length === 2);
  expect(broker.status()).toMatchObject({ connections: 1, turnedAway: 1 });
  alice.socket.terminate();
});

test('B8 a socket that nobody reads is cut, its messages stay, and the others are served meanwhile', async () => {
  const { url, broker, events, host, store } = await up({ limits: { slowMs: 300 } });
  const stuck = (await RawSocket.open(url)).hello('alice').say({ kind: 'subscribe' });
  await eventually('a subscription', () => stuck.frames.length === 2);
  stuck.socket.pause();
  const served: string[] = [];
  const bob = await openWorkerLink({ url, key: keyOf('bob'), clock: systemClock })(
    { replied: (id) => void served.push(id), told() {} },
    never,
  );
  const deliveries: Delivery[] = [];
  const link = await host()({ deliver: (each) => void deliveries.push(each), cancelled() {} }, never);
  const alice = await RawSocket.open(url);
  alice.hello('alice');
  const big = JSON.stringify({ x: 'x'.repeat(1_000_000) });
  for (let n = 0; n < 30; n++) {
    alice.say({ kind: 'deliver', id: `a${n}`, type: 'request', to: 'host', body: {} });
    await bob.send({ id: `b${n}`, body: Buffer.from('{}'), ttlMs: 60_000 });
  }
  await eventually('all requests', () => deliveries.length === 60);
  await Promise.all(deliveries.map(({ reply, ack, from }) => reply(from.mailbox === 'alice' ? big : '{}').then(ack)));
  await eventually('the end of the stuck one', () =>
    events.some((event) => event.kind === 'disconnected' && event.reason === 'slow_consumer'),
  );
  await eventually('bob to be served', () => served.length === 30);
  await eventually('what was taken to be gone', async () => (await store.sizes()).length === 1);
  expect(await store.sizes()).toMatchObject([{ mailbox: 'alice', count: 30 }]);
  expect(broker.status()).toMatchObject({ deadLetters: 0, refused: 0 });
  stuck.socket.terminate();
  alice.socket.terminate();
  await bob.close();
  await link.close();
});

test('a message of the largest size goes through, and one byte more is refused here, by name', async () => {
  const { worker, host } = await up();
  const bodies: number[] = [];
  const hostLink = await host()(
    {
      deliver: ({ body, ack }) => {
        bodies.push(body.length);
        ack();
      },
      cancelled() {},
    },
    never,
  );
  const alice = await worker('alice')(quiet, never);
  const size = 4 * 1024 * 1024 - 4 * 1024;
  const body = (bytes: number) => Buffer.from(JSON.stringify({ x: 'x'.repeat(bytes - 8) }));
  await alice.send({ id: 'a', body: body(size), ttlMs: 1_000 });
  await eventually('it', () => bodies[0]);
  expect(bodies).toEqual([size]);
  await expect(alice.send({ id: 'b', body: body(size + 1), ttlMs: 1_000 })).rejects.toMatchObject({
    details: { reason: 'message_too_large', execution: 'not_executed' },
  });
  await alice.send({ id: 'c', body: body(10), ttlMs: 1_000 });
  await hostLink.close();
});

test('an address that others reach needs TLS', async () => {
  await expect(socketBench({ listen: { host: '0.0.0.0', port: 0 } })).rejects.toMatchObject({
    code: 'invalid_spec',
    details: { field: 'broker.listen.tls' },
  });
  await up({ listen: { host: '0.0.0.0', port: 0, insecure: true } });
  await expect(
    openWorkerLink({ url: 'ws://broker.example/broker', key: 'k', clock: systemClock })(quiet, never),
  ).rejects.toMatchObject({ code: 'invalid_spec', message: expect.stringContaining('in the clear') });
});

test('wss: served with a certificate, refused without its authority, and fails at once when it cannot be used', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-tls-'));
  const [cert, key] = [path.join(folder, 'cert.pem'), path.join(folder, 'key.pem')];
  execFileSync(
    'openssl',
    [
      ...['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=localhost'],
      ...['-addext', 'subjectAltName=IP:127.0.0.1,DNS:localhost', '-keyout', key, '-out', cert],
    ],
    { stdio: 'ignore' },
  );
  const listen = { port: 0, tls: { cert, key } };
  const { url, broker } = await up({ listen });
  expect(url).toMatch(/^wss:/);
  const settings = { url, key: keyOf('alice'), clock: systemClock };
  const alice = await openWorkerLink({ ...settings, tls: { ca: cert } })(quiet, never);
  expect(alice.me).toEqual({ mailbox: 'alice', role: 'researcher' });
  await alice.close();
  await expect(openWorkerLink(settings)(quiet, never)).rejects.toMatchObject({ code: 'connect_failed' });
  expect(broker.status().turnedAway).toBe(0);
  const bad = path.join(folder, 'bad.pem');
  writeFileSync(bad, 'not a certificate');
  for (const tls of [
    { cert: bad, key },
    { cert, key: bad },
    { cert: path.join(folder, 'none.pem'), key },
  ])
    await expect(socketBench({ listen: { port: 0, tls } })).rejects.toMatchObject({ code: 'invalid_spec' });
  rmSync(folder, { recursive: true, force: true });
});

test('a port that is taken says so', async () => {
  const { url } = await up();
  await expect(socketBench({ listen: { port: Number(new URL(url).port) } })).rejects.toMatchObject({
    code: 'connect_failed',
    details: { reason: 'EADDRINUSE' },
  });
});

test('new keys cut sockets before any time has passed, and the link says that it is final', async () => {
  // A clock that stands still: what waited for time would never come.
  const { worker, broker } = await up({ clock: new FakeClock() });
  const alice = await worker('alice')(quiet, never);
  broker.rekey([]);
  expect(await alice.closed).toMatchObject({ code: 'unauthenticated' });
  await expect(worker('alice')(quiet, never)).rejects.toMatchObject({ code: 'unauthenticated', retryable: false });
});

test('a broker whose disk failed still ends: everybody is sent away, the port is closed, and it is told', async () => {
  const { url, broker, store, events } = await up();
  store.flush = () =>
    Promise.reject(new HostError('insufficient_storage', 'the disk failed', { execution: 'uncertain' }));
  const alice = (await RawSocket.open(url)).hello('alice');
  await eventually('a welcome', () => alice.frames[0]);
  await broker.close();
  await eventually('the end', () => alice.closed);
  const late = new RawSocket(url);
  await new Promise((resolve) => late.socket.once('error', resolve));
  expect([late.isOpen, late.status, broker.status().connections]).toEqual([false, undefined, 0]);
  const problems = events.filter(({ kind }) => kind === 'problem');
  expect(problems).toMatchObject([
    { error: { message: 'the disk failed' } },
    { error: { message: 'the disk failed' } },
  ]);
});
