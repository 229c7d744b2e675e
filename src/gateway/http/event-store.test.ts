import { expect, test } from 'vitest';
import { EventBudget, EventStore } from './event-store.js';

const text = (bytes: number) => Buffer.alloc(bytes);
const seqs = (store: EventStore, stream: number, after = 0) => store.after(stream, after).map(({ seq }) => seq);

test('gives back what came after an event, of one stream, in order', () => {
  const store = new EventStore(new EventBudget(100), 10, 100);
  for (const [stream, seq] of [
    [0, 1],
    [1, 2],
    [0, 3],
    [1, 4],
    [0, 5],
  ] as const)
    store.keep(stream, seq, text(1));
  expect([seqs(store, 0), seqs(store, 0, 3), seqs(store, 1, 2), seqs(store, 2)]).toEqual([[1, 3, 5], [5], [4], []]);
});

test('past its count or bytes the oldest go', () => {
  const store = new EventStore(new EventBudget(1_000), 3, 10);
  for (let seq = 1; seq <= 50; seq++) store.keep(0, seq, text(1));
  expect([seqs(store, 0), store.size, store.bytes]).toEqual([[48, 49, 50], 3, 3]);
  store.keep(0, 51, text(9));
  expect([seqs(store, 0), store.bytes]).toEqual([[50, 51], 10]);
});

test('what is larger than all there is room for moves nothing', () => {
  const store = new EventStore(new EventBudget(1_000), 10, 10);
  store.keep(0, 1, text(5));
  store.keep(0, 2, text(11));
  expect(seqs(store, 0)).toEqual([1]);
});

test('all stores together keep to the budget, and give back what they held', () => {
  const budget = new EventBudget(10);
  const [one, other] = [new EventStore(budget, 10, 10), new EventStore(budget, 10, 10)];
  one.keep(0, 1, text(8));
  other.keep(0, 1, text(4));
  expect([one.size, other.size, budget.used]).toEqual([1, 0, 8]);
  one.clear();
  other.keep(0, 2, text(4));
  expect([one.size, other.size, budget.used]).toEqual([0, 1, 4]);
});
