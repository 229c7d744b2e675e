/** What a socket can be made to keep in the broker's memory by somebody who means harm. */
import { randomBytes } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { afterEach, expect, test } from 'vitest';
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

const reasonsOf = ({ events }: SocketBench): string[] =>
  events.flatMap((event) => (event.kind === 'disconnected' ? [event.reason] : []));

test('pings are answered, and who sends hundreds is cut', async () => {
  const own = await up();
  const alice = (await RawSocket.open(own.url)).hello('alice');
  await eventually('a welcome', () => alice.frames.length === 1);
  const pongs: string[] = [];
  alice.socket.on('pong', (data) => pongs.push(data.toString()));
  alice.socket.ping('one');
  await eventually('a pong', () => pongs.length === 1);
  expect(pongs).toEqual(['one']);
  for (let n = 0; n < 500; n++) alice.socket.ping('x');
  await eventually('the end', () => alice.closed);
  expect(reasonsOf(own)).toEqual(['too_fast']);
  expect(pongs.length).toBeLessThan(200);
});

test('who pings and does not read has no more kept for it than its buffer, and is cut', async () => {
  const own = await up({
    limits: { slowMs: 200, outboundBytes: 64 * 1024, controls: { perSecond: 1e9, burst: 1e9 } },
  });
  const raw = await handshaken(own.url);
  raw.write(frame(1, Buffer.from(JSON.stringify({ kind: 'hello', v: 1, key: keyOf('alice') }))));
  await eventually('alice', () => own.events.some(({ kind }) => kind === 'connected'));
  raw.pause();
  const pings = Buffer.concat(Array.from({ length: 500 }, () => frame(9, Buffer.alloc(125))));
  const flood = setInterval(() => {
    for (let n = 0; n < 20 && raw.writableLength < 4_000_000; n++) raw.write(pings);
  }, 1);
  await eventually('the end', () => reasonsOf(own).length === 1, 15_000);
  clearInterval(flood);
  raw.destroy();
  expect(reasonsOf(own)).toEqual(['slow_consumer']);
}, 20_000);

test('a frame in a few pieces is read, and one in hundreds ends its connection', async () => {
  const own = await up();
  const alice = (await RawSocket.open(own.url)).hello('alice');
  await eventually('a welcome', () => alice.frames.length === 1);
  const text = JSON.stringify({ kind: 'deliver', id: 'a', type: 'request', to: 'host', body: { x: 'x'.repeat(300) } });
  const inPieces = (pieces: number) => {
    const size = Math.ceil(text.length / pieces);
    for (let at = 0; at < text.length; at += size)
      alice.socket.send(text.slice(at, at + size), { fin: at + size >= text.length });
  };
  inPieces(10);
  await eventually('a receipt', () => alice.frames.length === 2);
  inPieces(text.length);
  await eventually('the end', () => alice.closed);
  expect(alice.closed?.code).toBe(1008);
  expect(own.broker.status().mailboxes).toMatchObject([{ mailbox: 'host', count: 1 }]);
});

/** As a client must write it: masked, here with zeros. */
function frame(opcode: number, payload: Buffer): Buffer {
  const length = payload.length < 126 ? Buffer.from([0x80 | payload.length]) : Buffer.from([0xfe, 0, 0]);
  if (payload.length >= 126) length.writeUInt16BE(payload.length, 1);
  return Buffer.concat([Buffer.from([0x80 | opcode]), length, Buffer.alloc(4), payload]);
}

async function handshaken(url: string): Promise<Socket> {
  const { hostname, port, host, pathname } = new URL(url);
  const socket = connect(Number(port), hostname);
  let isUp = false;
  socket.on('error', () => undefined);
  socket.once('data', () => {
    isUp = true;
  });
  socket.write(
    [
      ...[`GET ${pathname} HTTP/1.1`, `Host: ${host}`, 'Connection: Upgrade', 'Upgrade: websocket'],
      ...['Sec-WebSocket-Version: 13', `Sec-WebSocket-Key: ${randomBytes(16).toString('base64')}`, '', ''],
    ].join('\r\n'),
  );
  await eventually('a WebSocket', () => isUp);
  return socket;
}
