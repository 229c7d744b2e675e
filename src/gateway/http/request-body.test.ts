import { EventEmitter } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { expect, test } from 'vitest';
import { readBody } from './request-body.js';

function read(pieces: readonly string[], bytesMax: number): (string | undefined)[] {
  const request = new EventEmitter();
  const told: (string | undefined)[] = [];
  readBody(request as IncomingMessage, bytesMax, (body) => told.push(body?.toString()));
  for (const piece of pieces) request.emit('data', Buffer.from(piece));
  request.emit('end');
  return told;
}

test.each([
  ['nothing', [], ['']],
  ['one piece', ['abc'], ['abc']],
  ['as much as there may be', ['abc', 'de'], ['abcde']],
  ['more', ['abc', 'def'], [undefined]],
  ['much more, told once', ['abc', 'def', 'ghi'], [undefined]],
])('%s', (_name, pieces, told) => {
  expect(read(pieces, 5)).toEqual(told);
});

test('pieces of any size come out in order', () => {
  const pieces = Array.from({ length: 9_000 }, (_, i) => 'x'.repeat(i % 7) + i);
  expect(read(pieces, 1_000_000)).toEqual([pieces.join('')]);
});

test('too many pieces are too much', () => {
  expect(read(new Array(10_001).fill('x'), 1_000_000)).toEqual([undefined]);
});

test('a sender that leaves is told nothing', () => {
  const request = new EventEmitter();
  readBody(request as IncomingMessage, 5, () => expect.unreachable());
  request.emit('data', Buffer.from('a'));
  request.emit('close');
  expect(request.listenerCount('data')).toBe(1);
});
