import { expect, test } from 'vitest';
import { BytesMemo } from './bytes-memo.js';

const keep = () => true;

test('a value is computed once for equal bytes; a value that must not be cached is computed each time', () => {
  const memo = new BytesMemo<string>();
  let made = 0;
  const make = (bytes: Buffer) => `${++made} ${bytes.toString('utf8')}`;
  expect(memo.of(Buffer.from('é'), make, keep)).toBe('1 é');
  expect(memo.of(Buffer.from('xé').subarray(1), make, keep)).toBe('1 é');
  expect(memo.of(Buffer.from('e'), make, keep)).toBe('2 e');
  expect(memo.of(Buffer.from('once'), make, () => false)).toBe('3 once');
  expect(memo.of(Buffer.from('once'), make, () => false)).toBe('4 once');
});

test('a cached value does not change when the bytes that it was made from change', () => {
  const memo = new BytesMemo<Buffer>();
  const message = Buffer.from('abc');
  memo.of(message, (bytes) => bytes, keep);
  message[0] = 0x78;
  expect(memo.of(Buffer.from('abc'), (bytes) => bytes, keep).toString()).toBe('abc');
});

test('large bytes are not cached, and the oldest entry is dropped first', () => {
  const memo = new BytesMemo<number>();
  let made = 0;
  const make = () => ++made;
  const large = Buffer.alloc(1_025, 0x61);
  memo.of(large, make, keep);
  expect(memo.of(large, make, keep)).toBe(2);
  for (let i = 0; i < 65; i++) memo.of(Buffer.from(`k${i}`), make, keep);
  const before = made;
  memo.of(Buffer.from('k64'), make, keep);
  memo.of(Buffer.from('k0'), make, keep);
  expect(made - before).toBe(1);
});
