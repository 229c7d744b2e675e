import { expect, test } from 'vitest';
import { ByteBudget } from '../../kernel/byte-budget.js';
import { type BodyFault, GatheredBody } from './parse-post.js';

class TestBody extends GatheredBody {
  readonly #done: (body: Buffer | BodyFault) => void;

  constructor(bytesMax: number, budget: ByteBudget, done: (body: Buffer | BodyFault) => void) {
    super(bytesMax, budget);
    this.#done = done;
  }

  protected done(body: Buffer | BodyFault): void {
    this.#done(body);
  }
}

function read(pieces: readonly string[], bytesMax: number, budget = new ByteBudget(10_000_000)): string[] {
  const told: string[] = [];
  const body = new TestBody(bytesMax, budget, (all) => told.push(all.toString()));
  for (const piece of pieces) body.piece(Buffer.from(piece));
  body.end();
  return told;
}

test.each([
  ['nothing', [], ['']],
  ['one piece', ['abc'], ['abc']],
  ['exactly as much as allowed', ['abc', 'de'], ['abcde']],
  ['one byte more', ['abc', 'def'], ['too_large']],
  ['much more, reported once', ['abc', 'def', 'ghi'], ['too_large']],
])('a body with a limit of 5 bytes: %s', (_name, pieces, told) => {
  expect(read(pieces, 5)).toEqual(told);
});

test('a body in pieces of any size is returned complete and in order', () => {
  const pieces = Array.from({ length: 9_000 }, (_, i) => 'x'.repeat(i % 7) + i);
  expect(read(pieces, 1_000_000)).toEqual([pieces.join('')]);
});

test('a body in too many pieces is refused', () => {
  expect(read(new Array(10_001).fill('x'), 1_000_000)).toEqual(['too_large']);
});

test('a body whose sender disconnects is never returned', () => {
  const body = new TestBody(5, new ByteBudget(10_000), () => expect.unreachable());
  body.piece(Buffer.from('a'));
  body.left();
  body.piece(Buffer.from('more than there may be'));
  body.end();
});

test('X19 all incomplete bodies together use at most the budget, and each releases its part at its end', () => {
  const budget = new ByteBudget(6_000);
  const halves = ['x'.repeat(2_000), 'x'.repeat(2_000)];
  const told: string[] = [];
  const bodies = [1, 2].map(() => new TestBody(1_000_000, budget, (body) => told.push(body.toString())));
  for (const body of bodies) for (const half of halves) body.piece(Buffer.from(half));
  expect([told, budget.used]).toEqual([['busy'], 4_000]);
  // A body in one piece does not use the budget, even when little is left.
  expect(read(['y'.repeat(9_000)], 1_000_000, budget)).toHaveLength(1);
  bodies[0]?.left();
  expect(budget.used).toBe(0);
  expect(read(halves, 1_000_000, budget)).toEqual(['x'.repeat(4_000)]);
  expect(budget.used).toBe(0);
});

test('a body in many pieces is returned unchanged, and uses little more memory than its own size while it arrives', () => {
  const budget = new ByteBudget(10_000_000);
  const told: (Buffer | string)[] = [];
  const body = new TestBody(1_000_000, budget, (each) => told.push(each));
  const whole = Buffer.from(Array.from({ length: 300_000 }, (_, i) => i % 251));
  let at = 0;
  for (const size of [1, 5_000, 3, 70_000, 1, 130_000, 64 * 1024, 29_459]) {
    body.piece(whole.subarray(at, at + size));
    at += size;
    expect(budget.used).toBeLessThanOrEqual(Math.max(256, at + Math.min(at, 64 * 1024)));
  }
  expect(at).toBe(whole.length);
  body.end();
  expect([(told[0] as Buffer).equals(whole), told.length, budget.used]).toEqual([true, 1, 0]);
});
