import { describe, expect, test } from 'vitest';
import { FairQueue } from './fair-queue.js';

interface Entry {
  readonly party: string;
  readonly nth: number;
}

const entry = (party: string, nth: number): Entry => ({ party, nth });
const name = ({ party, nth }: Entry) => `${party}${nth}`;

function filled(entriesMax: number, counts: Record<string, number>) {
  const queue = new FairQueue<Entry>(entriesMax);
  for (const [party, count] of Object.entries(counts)) {
    for (let nth = 1; nth <= count; nth++) queue.push(party, entry(party, nth));
  }
  return queue;
}

function drain(queue: FairQueue<Entry>): string[] {
  const order: string[] = [];
  for (let next = queue.shift(); next; next = queue.shift()) order.push(name(next));
  return order;
}

test('parties take turns, and each is served in its own order', () => {
  expect(drain(filled(100, { a: 4, b: 2, c: 1 }))).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', 'a3', 'a4']);
});

test('a late party waits for one round, not for the whole line of another party', () => {
  const queue = filled(1_000, { a: 500 });
  queue.shift();
  queue.push('b', entry('b', 1));
  expect([queue.shift(), queue.shift()]).toEqual([entry('a', 2), entry('b', 1)]);
});

test('an entry that leaves is not served, and its party loses no turn', () => {
  const queue = new FairQueue<Entry>(10);
  const [a1, a2, b1] = [entry('a', 1), entry('a', 2), entry('b', 1)];
  for (const each of [a1, a2, b1]) queue.push(each.party, each);
  expect([queue.delete('a', a1), queue.delete('a', a1), queue.size]).toEqual([true, false, 2]);
  expect(drain(queue)).toEqual(['a2', 'b1']);
  expect(queue.size).toBe(0);
});

describe('a full queue', () => {
  test('refuses the party that fills it', () => {
    const queue = filled(4, { a: 4 });
    expect(queue.push('a', entry('a', 5))).toEqual({ admitted: false });
    expect(queue.size).toBe(4);
  });

  test('takes an entry of another party in place of the newest entry of the longest line', () => {
    const queue = filled(4, { a: 4 });
    expect(queue.push('b', entry('b', 1))).toEqual({ admitted: true, displaced: entry('a', 4) });
    expect(drain(queue)).toEqual(['a1', 'b1', 'a2', 'a3']);
  });

  test('displaces no entry once the lines are equally long', () => {
    const queue = filled(4, { a: 4 });
    const pushed = [1, 2, 3].map((nth) => queue.push('b', entry('b', nth)).admitted);
    expect(pushed).toEqual([true, true, false]);
    expect(queue.push('a', entry('a', 9)).admitted).toBe(false);
    expect(queue.size).toBe(4);
  });

  test('does not displace an entry if that would make lines more unequal', () => {
    const queue = filled(3, { a: 2, b: 1 });
    expect(queue.push('b', entry('b', 2)).admitted).toBe(false);
  });

  test('with a limit of 0 refuses every entry', () => {
    expect(new FairQueue<Entry>(0).push('a', entry('a', 1)).admitted).toBe(false);
  });
});
