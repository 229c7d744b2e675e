import { Duplex, PassThrough } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { stoppingLine } from './hello.js';
import type { Opened } from './open-link.js';
import { Relay } from './relay.js';

/** The relay’s end of a connection. Writes do not finish before `release`. */
class FakeSocket extends Duplex {
  readonly received: string[] = [];
  #finish: (() => void) | undefined;
  #isFree = false;

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.received.push(String(chunk));
    if (this.#isFree) done();
    else this.#finish = done;
  }

  release(): void {
    this.#isFree = true;
    this.#finish?.();
  }

  /** The host closes its side. */
  leave(): void {
    this.push(null);
  }
}

const welcome = { hostler: 1, version: '1.0.0', pid: 1, url: null, config: '/a', notes: [] };
const connectedTo = (socket: FakeSocket) => ({ kind: 'connected', socket, welcome }) as unknown as Opened;

function setUp(...opened: Opened[]) {
  const [input, output, clock] = [new PassThrough(), new PassThrough(), new FakeClock()];
  const unusable: string[] = [];
  let joins = 0;
  const relay = new Relay({
    ...{ input, output, clock, version: '1.0.0', onJoined: () => {}, onFailure: () => {}, onServing: () => {} },
    join: async () => opened[joins++] ?? { kind: 'failed', reason: 'no more hosts' },
    onUnusable: ({ kind }) => unusable.push(kind),
  });
  const turns = async () => {
    for (let n = 0; n < 10; n++) await nextTurn();
  };
  const send = (id: number, method: string, params: object = {}) =>
    input.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
  return { relay, clock, input, output, unusable, send, turns, joins: () => joins };
}

test('R2 if the host restarts while it takes no data, the relay reads from its client again', async () => {
  const [first, second] = [new FakeSocket(), new FakeSocket()];
  second.release();
  const { relay, send, turns, joins } = setUp(connectedTo(first), connectedTo(second));
  relay.begin();
  await turns();
  // More than the connection takes at once: the input is paused until the host has read it.
  send(1, 'tools/call', { name: 'x', arguments: { text: 'x'.repeat(first.writableHighWaterMark) } });
  await turns();
  first.push(stoppingLine('restart'));
  await turns();
  first.release();
  first.leave();
  await turns();
  expect([first.destroyed, joins()]).toEqual([true, 1]);
  send(2, 'tools/list');
  await turns();
  expect(joins()).toBe(2);
  expect(second.received.join('')).toContain('"tools/list"');
});

test('R1 requests that were read before the socket is refused are answered with the reason, not lost', async () => {
  const refused: Opened = { kind: 'unreachable', code: 'EACCES' };
  const { relay, clock, output, unusable, send, turns } = setUp(
    { kind: 'failed', reason: 'busy' },
    ...Array.from({ length: 5 }, () => refused),
  );
  relay.begin();
  await turns();
  send(1, 'ping');
  for (let tries = 0; tries < 5; tries++) {
    clock.advance(5_000);
    await turns();
  }
  expect(unusable).toEqual([]);
  expect(JSON.parse(String(output.read()))).toMatchObject({
    id: 1,
    error: { message: expect.stringContaining('EACCES') },
  });
});

test('R1 if the socket is refused at once, the input remains unread for the code that serves the client', async () => {
  const { relay, input, unusable, send, turns } = setUp({ kind: 'unreachable', code: 'EACCES' });
  relay.begin();
  send(1, 'ping');
  await turns();
  expect([unusable, input.listenerCount('data'), String(input.read())]).toEqual([
    ...[['unreachable'], 0, expect.stringContaining('"ping"')],
  ]);
});

test('R2 a client that closes its input with an open listen stream or a slow read starts no other host', async () => {
  const first = new FakeSocket();
  first.release();
  const { relay, clock, input, output, send, turns, joins } = setUp(connectedTo(first), connectedTo(new FakeSocket()));
  let isClosed = false;
  void relay.closed.then(() => (isClosed = true));
  relay.begin();
  await turns();
  send(1, 'subscriptions/listen', { notifications: { toolsListChanged: true } });
  send(2, 'resources/read', { uri: 'a:b' });
  await turns();
  input.end();
  await turns();
  // The host ends the stream at once, and gives up the read after 10 s.
  clock.advance(10_000);
  first.leave();
  await turns();
  expect([isClosed, joins()]).toEqual([true, 1]);
  const answers = String(output.read()).trimEnd().split('\n');
  expect(answers.map((line) => JSON.parse(line))).toMatchObject([
    { id: 2, error: { message: expect.stringContaining('the client closed its input') } },
  ]);
});

test('the relay reports once that its client is served, at the first line of a host', async () => {
  const [input, output, socket] = [new PassThrough(), new PassThrough(), new FakeSocket()];
  let served = 0;
  const relay = new Relay({
    ...{ input, output, clock: new FakeClock(), version: '1.0.0', onJoined: () => {}, onFailure: () => {} },
    ...{ join: async () => connectedTo(socket), onUnusable: () => {}, onServing: () => served++ },
  });
  relay.begin();
  const counts: number[] = [];
  for (let line = 0; line < 3; line++) {
    for (let turn = 0; turn < 10; turn++) await nextTurn();
    counts.push(served);
    socket.push('{"jsonrpc":"2.0","id":1,"result":{}}\n');
  }
  expect(counts).toEqual([0, 1, 1]);
});
