import { expect, test } from 'vitest';
import { Fifo } from './fair-queue.js';

interface Entry {
  readonly nth: number;
}

test('entries leave from anywhere in a long queue, and the others keep their order', () => {
  const queue = new Fifo<Entry>();
  const order: Entry[] = [];
  const push = (nth: number) => {
    const entry = { nth };
    order.push(entry);
    queue.push(entry);
  };
  const removed = (at: number) => order.splice(at, 1)[0] as Entry;
  for (let nth = 1; nth <= 500; nth++) push(nth);
  for (let nth = 501; nth <= 980; nth++) {
    expect(queue.shift()).toBe(removed(0));
    const at = [0, 7, order.length - 1][nth % 3] as number;
    expect(queue.delete(removed(at))).toBe(true);
    push(nth);
    expect([queue.size, queue.newest]).toEqual([order.length, order.at(-1)]);
  }
  expect([...queue]).toEqual(order);
  for (const entry of order) expect(queue.shift()).toBe(entry);
  expect([queue.size, queue.newest, queue.shift()]).toEqual([0, undefined, undefined]);
});

test('an entry is removed once', () => {
  const queue = new Fifo<Entry>();
  const [a, b] = [{ nth: 1 }, { nth: 2 }];
  for (const each of [a, b]) queue.push(each);
  expect([queue.delete(b), queue.delete(b), queue.newest, queue.shift(), queue.delete(a)]).toEqual([
    true,
    false,
    a,
    a,
    false,
  ]);
});

test('an empty queue takes entries again', () => {
  const queue = new Fifo<Entry>();
  for (let nth = 0; nth < 200; nth++) {
    queue.push({ nth });
    expect(queue.shift()).toEqual({ nth });
  }
  expect([...queue]).toEqual([]);
});
