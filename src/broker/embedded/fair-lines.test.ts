import fc from 'fast-check';
import { expect, test } from 'vitest';
import { FairLines } from './fair-lines.js';

const entry = (seq: number) => ({ seq });

test('each sender in turn, and within one by number', () => {
  const lines = new FairLines();
  const add = (sender: string, ...seqs: number[]) => {
    for (const seq of seqs) lines.add(sender, entry(seq));
  };
  add('a', 1, 2, 3, 4);
  add('b', 5);
  add('c', 6, 7);
  const senders = new Map([1, 2, 3, 4].map((seq) => [seq, 'a']));
  for (const [seq, sender] of [
    [5, 'b'],
    [6, 'c'],
    [7, 'c'],
  ] as const)
    senders.set(seq, sender);
  const order: number[] = [];
  for (let next = lines.peek(); next; next = lines.peek()) {
    order.push(next.seq);
    expect(lines.take(senders.get(next.seq) as string, next)).toBe(true);
  }
  expect(order).toEqual([1, 5, 6, 2, 7, 3, 4]);
  expect(lines.size).toBe(0);
});

test('what comes back stands where its number says, also after thousands went', () => {
  const lines = new FairLines<{ seq: number }>();
  const all = Array.from({ length: 5_000 }, (_, seq) => entry(seq));
  for (const each of all) lines.add('a', each);
  const taken = all.slice(0, 3_000);
  for (const each of taken) expect(lines.take('a', each)).toBe(true);
  for (const seq of [2_999, 7, 1_500, 0]) lines.add('a', all[seq] as { seq: number });
  const order: number[] = [];
  for (let next = lines.peek(); next; next = lines.peek()) {
    order.push(next.seq);
    lines.take('a', next);
  }
  expect(order).toEqual([0, 7, 1_500, ...Array.from({ length: 2_001 }, (_, n) => 2_999 + n)]);
});

test('what does not wait cannot be taken', () => {
  const lines = new FairLines<{ seq: number }>();
  const one = entry(1);
  lines.add('a', one);
  expect(lines.take('b', one)).toBe(false);
  expect(lines.take('a', entry(1))).toBe(false);
  expect(lines.take('a', one)).toBe(true);
  expect(lines.take('a', one)).toBe(false);
  expect(lines.size).toBe(0);
});

test('whatever is added and taken: the same things wait as in a list, and nobody is served twice before everybody once', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.constantFrom('a', 'b', 'c'), fc.nat(2)), { maxLength: 60 }), (steps) => {
      const lines = new FairLines<{ seq: number; sender: string }>();
      const model = new Map<string, { seq: number; sender: string }[]>();
      const away: { seq: number; sender: string }[] = [];
      let seq = 0;
      for (const [sender, what] of steps) {
        const back = what === 1 ? away.pop() : undefined;
        if (what === 2) {
          const next = lines.peek();
          if (!next) continue;
          expect(next).toBe(model.get(next.sender)?.[0]);
          lines.take(next.sender, next);
          model.get(next.sender)?.shift();
          away.push(next);
        } else {
          const added = back ?? { seq: ++seq, sender };
          lines.add(added.sender, added);
          const line = [...(model.get(added.sender) ?? []), added].sort((x, y) => x.seq - y.seq);
          model.set(added.sender, line);
        }
      }
      expect(lines.size).toBe([...model.values()].flat().length);
      const waiting = [...model].filter(([, line]) => line.length > 0).map(([sender]) => sender);
      const round = waiting.map(() => {
        const next = lines.peek() as { seq: number; sender: string };
        lines.take(next.sender, next);
        return next.sender;
      });
      expect(round.sort()).toEqual(waiting.sort());
    }),
  );
});
