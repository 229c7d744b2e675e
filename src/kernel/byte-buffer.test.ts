import { expect, test } from 'vitest';
import { ByteBudget } from './byte-budget.js';
import { ByteBuffer, unpooledCopy } from './byte-buffer.js';

test('pieces of any size come out in order, and the buffer is empty afterwards', () => {
  const buffer = new ByteBuffer();
  const whole = Buffer.from(Array.from({ length: 300_000 }, (_, i) => i % 251));
  let at = 0;
  for (const size of [1, 5_000, 3, 70_000, 1, 130_000, 64 * 1024, 29_459]) {
    expect(buffer.add(whole, at, at + size)).toBe(true);
    at += size;
    expect(buffer.length).toBe(at);
  }
  expect(at).toBe(whole.length);
  expect(buffer.take().equals(whole)).toBe(true);
  expect([buffer.length, buffer.take().length]).toEqual([0, 0]);
});

test('single bytes and pieces can be mixed, and taken bytes are not written to again', () => {
  const buffer = new ByteBuffer();
  for (const byte of Buffer.from('x'.repeat(600))) buffer.addByte(byte);
  buffer.add(Buffer.from('abc'), 1);
  const taken = buffer.take();
  buffer.add(Buffer.from('other'));
  expect(taken.toString()).toBe(`${'x'.repeat(600)}bc`);
});

test('the buffer that is taken has at most twice the memory of its bytes', () => {
  const buffer = new ByteBuffer();
  for (const length of [5_000, 70_000]) {
    for (let i = 0; i < length; i++) buffer.addByte(1);
    const taken = buffer.take();
    expect([taken.length, taken.buffer.byteLength <= 2 * length]).toEqual([length, true]);
  }
});

test('a piece beyond the budget is not added, and `clear` returns all bytes of the buffer to the budget', () => {
  const budget = new ByteBudget(1_000);
  const [one, other] = [new ByteBuffer(budget), new ByteBuffer(budget)];
  expect(one.add(Buffer.alloc(700))).toBe(true);
  expect([other.add(Buffer.alloc(400)), other.addByte(1), budget.used]).toEqual([false, true, 956]);
  other.clear();
  expect(budget.used).toBe(700);
  one.take();
  expect(budget.used).toBe(0);
});

test('a budget counts up to its maximum, and refused bytes are not counted', () => {
  const budget = new ByteBudget(10);
  expect([budget.take(6), budget.take(5), budget.take(4), budget.used]).toEqual([true, false, true, 10]);
  budget.release(6);
  expect([budget.used, budget.max]).toEqual([4, 10]);
});

test('a copy has its own memory, of exactly its size', () => {
  const bytes = Buffer.from('{}');
  const copy = unpooledCopy(bytes);
  bytes.write('[]');
  expect(copy.toString()).toBe('{}');
  expect(copy.buffer.byteLength).toBe(2);
});
