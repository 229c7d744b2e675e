import type { IncomingMessage } from 'node:http';
import { Duplex } from 'node:stream';
import { expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { systemClock } from '../../kernel/clock.js';
import { brokerLimits } from './limits.js';
import { WsWire } from './ws-wire.js';

/** Below a WebSocket: how much was written at a time. */
class Below extends Duplex {
  readonly writes: number[] = [];
  override _read(): void {}
  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.writes.push(chunk.length);
    done();
  }
  override _writev(chunks: { chunk: Buffer }[], done: () => void): void {
    this.writes.push(chunks.reduce((bytes, { chunk }) => bytes + chunk.length, 0));
    done();
  }
}

async function open() {
  const below = new Below();
  const request = {
    method: 'GET',
    headers: {
      ...{ upgrade: 'websocket', connection: 'Upgrade' },
      ...{ 'sec-websocket-version': '13', 'sec-websocket-key': Buffer.alloc(16).toString('base64') },
    },
  } as unknown as IncomingMessage;
  const server = new WebSocketServer({ noServer: true });
  const socket = await new Promise<WebSocket>((resolve) =>
    server.handleUpgrade(request, below, Buffer.alloc(0), resolve),
  );
  const wire = new WsWire(socket, below, systemClock, brokerLimits);
  below.writes.length = 0;
  return { wire, below, socket };
}

const endOfTurn = () => new Promise((resolve) => setImmediate(resolve));

test('frames of one turn leave in one write, those of promises that it settles too', async () => {
  const { wire, below, socket } = await open();
  const frame = Buffer.alloc(98);
  const settled = Promise.resolve();
  for (let i = 0; i < 5; i++) {
    wire.send(frame);
    void settled.then(() => wire.send(frame));
  }
  await endOfTurn();
  wire.send(frame);
  await endOfTurn();
  expect(below.writes).toEqual([1_000, 100]);
  socket.terminate();
});

test('what is much does not wait for the end of the turn, and whoever sent it hears when it has left', async () => {
  const { wire, below, socket } = await open();
  const left: number[] = [];
  for (let i = 0; i < 4; i++) wire.send(Buffer.alloc(40_000), () => left.push(i));
  expect(below.writes).toEqual([80_008, 80_008]);
  expect(wire.bufferedBytes).toBe(0);
  await endOfTurn();
  expect([below.writes.length, left]).toEqual([2, [0, 1, 2, 3]]);
  socket.terminate();
});
