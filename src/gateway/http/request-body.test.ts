import { EventEmitter } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { expect, test } from 'vitest';
import { BodyBudget, readBody } from './request-body.js';

function read(pieces: readonly string[], bytesMax: number, budget = new BodyBudget(10_000_000)): string[] {
  const request = new EventEmitter();
  const told: string[] = [];
  readBody(request as IncomingMessage, bytesMax, budget, (body) => told.push(body.toString()));
  for (const piece of pieces) request.emit('data', Buffer.from(piece));
  request.emit('end');
  return told;
}

test.each([
  ['nothing', [], ['']],
  ['one piece', ['abc'], ['abc']],
  ['as much as there may be', ['abc', 'de'], ['abcde']],
  ['more', ['abc', 'def'], ['too_large']],
  ['much more, told once', ['abc', 'def', 'ghi'], ['too_large']],
])('%s', (_name, pieces, told) => {
  expect(read(pieces, 5)).toEqual(told);
});

test('pieces of any size come out in order', () => {
  const pieces = Array.from({ length: 9_000 }, (_, i) => 'x'.repeat(i % 7) + i);
  expect(read(pieces, 1_000_000)).toEqual([pieces.join('')]);
});

test('too many pieces are too much', () => {
  expect(read(new Array(10_001).fill('x'), 1_000_000)).toEqual(['too_large']);
});

test('a sender that leaves is told nothing', () => {
  const request = new EventEmitter();
  readBody(request as IncomingMessage, 5, new BodyBudget(10_000), () => expect.unreachable());
  request.emit('data', Buffer.from('a'));
  request.emit('close');
  expect(request.listenerCount('data')).toBe(1);
});

test('X19 of all bodies that are being read no more is held than the budget, and what ends gives its part back', () => {
  const budget = new BodyBudget(10_000);
  const halves = ['x'.repeat(2_000), 'x'.repeat(2_000)];
  const requests = [1, 2].map(() => new EventEmitter());
  const told: string[] = [];
  for (const request of requests) {
    readBody(request as IncomingMessage, 1_000_000, budget, (body) => told.push(body.toString()));
    for (const half of halves) request.emit('data', Buffer.from(half));
  }
  expect([told, budget.used]).toEqual([['busy'], 8_000]);
  // One piece is never held beside another.
  expect(read(['y'.repeat(9_000)], 1_000_000, budget)).toHaveLength(1);
  requests[0]?.emit('close');
  expect(budget.used).toBe(0);
  expect(read(halves, 1_000_000, budget)).toEqual(['x'.repeat(4_000)]);
  expect(budget.used).toBe(0);
});
