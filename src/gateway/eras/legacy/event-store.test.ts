import { expect, test } from 'vitest';
import { EventBudget, EventStore, eventOverheadBytes } from './event-stream.js';

const text = (bytes: number) => Buffer.alloc(bytes);
/** The bytes in use by this many events of this size. */
const held = (events: number, bytes: number) => events * (bytes + eventOverheadBytes);
const seqs = (store: EventStore, stream: number, after = 0) => store.after(stream, after).map(({ seq }) => seq);

test('returns the later events of one stream, in order', () => {
  const store = new EventStore(new EventBudget(10_000), 10, 10_000);
  for (const [stream, seq] of [
    [0, 1],
    [1, 2],
    [0, 3],
    [1, 4],
    [0, 5],
  ] as const)
    store.add(stream, seq, text(1));
  expect([seqs(store, 0), seqs(store, 0, 3), seqs(store, 1, 2), seqs(store, 2)]).toEqual([[1, 3, 5], [5], [4], []]);
});

test('beyond its bound of events or bytes the oldest events are removed', () => {
  const store = new EventStore(new EventBudget(10_000), 3, held(1, 1) + held(1, 9));
  for (let seq = 1; seq <= 50; seq++) store.add(0, seq, text(1));
  expect([seqs(store, 0), store.size, store.bytes]).toEqual([[49, 50], 2, held(2, 1)]);
  store.add(0, 51, text(9));
  expect([seqs(store, 0), store.bytes]).toEqual([[50, 51], held(1, 1) + held(1, 9)]);
  const few = new EventStore(new EventBudget(10_000), 3, 10_000);
  for (let seq = 1; seq <= 50; seq++) few.add(0, seq, text(1));
  expect([seqs(few, 0), few.size, few.bytes]).toEqual([[48, 49, 50], 3, held(3, 1)]);
});

test('an event above the size limit removes no other event', () => {
  const store = new EventStore(new EventBudget(1_000), 10, held(1, 10));
  store.add(0, 1, text(5));
  store.add(0, 2, text(11));
  expect(seqs(store, 0)).toEqual([1]);
});

test('all stores together stay within the budget, and release their bytes', () => {
  const budget = new EventBudget(held(1, 10));
  const [one, other] = [new EventStore(budget, 10, 1_000), new EventStore(budget, 10, 1_000)];
  one.add(0, 1, text(8));
  other.add(0, 1, text(4));
  expect([one.size, other.size, budget.used, budget.events]).toEqual([1, 0, held(1, 8), 1]);
  one.clear();
  other.add(0, 2, text(4));
  expect([one.size, other.size, budget.used, budget.events]).toEqual([0, 1, held(1, 4), 1]);
  other.clear();
  expect([budget.used, budget.events]).toEqual([0, 0]);
});

test('W18 a small event keeps no memory but its own, and is returned with the same bytes', () => {
  const store = new EventStore(new EventBudget(100_000), 10, 100_000);
  const small = Buffer.from('data: Grüße, 東京\n\n');
  // Part of a slab that other buffers share.
  expect(small.buffer.byteLength).toBeGreaterThan(small.length);
  store.add(0, 1, small);
  const own = text(20_000);
  store.add(0, 2, own);
  const [first, second] = store.after(0, 0);
  expect(typeof first?.text).toBe('string');
  expect(Buffer.from(first?.text as string, 'latin1').equals(small)).toBe(true);
  expect(second?.text).toBe(own);
  expect(store.bytes).toBe(held(1, small.length) + held(1, own.length));
});
