import { EventEmitter } from 'node:events';
import type { Duplex } from 'node:stream';
import { beforeEach, expect, test } from 'vitest';
import type { WebSocket } from 'ws';
import { FakeClock } from '../../kernel/fake-clock.js';
import { FrameSocket } from './frame-socket.js';

let clock: FakeClock;
let below: EventEmitter;
let socket: EventEmitter & { bufferedAmount: number };
let sent: string[];

beforeEach(() => {
  clock = new FakeClock();
  below = new EventEmitter();
  sent = [];
  const note = (what: string) => () => void sent.push(what);
  socket = Object.assign(new EventEmitter(), {
    ...{ bufferedAmount: 0, isPaused: false, close: () => {} },
    ...{ ping: note('ping'), pong: note('pong'), terminate: note('terminate') },
  });
  const reader = { frame: () => {}, ended: () => {} };
  new FrameSocket(socket as unknown as WebSocket, below as unknown as Duplex, clock, reader);
});

test('a large message that arrives slowly keeps the connection: the pong of the peer is queued behind the message', () => {
  for (let second = 0; second < 120; second += 5) {
    clock.advance(5_000);
    below.emit('data', Buffer.alloc(1));
  }
  expect(sent).not.toContain('terminate');
});

test('a peer that sends pings and does not read gets no more than 64 KiB of answers', () => {
  socket.emit('ping', Buffer.alloc(125));
  socket.bufferedAmount = 65 * 1024;
  for (let count = 0; count < 1_000; count++) socket.emit('ping', Buffer.alloc(125));
  expect(sent).toEqual(['pong']);
});
