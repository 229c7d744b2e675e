import { expect, test } from 'vitest';
import { TokenBucket } from './token-bucket.js';

test('a burst at once, then so many a second, and never more than the burst saved up', () => {
  const bucket = new TokenBucket({ perSecond: 500, burst: 3 }, 0);
  expect([0, 0, 0, 0].map((atMs) => bucket.take(atMs))).toEqual([0, 0, 0, 2]);
  expect(bucket.take(1)).toBe(1);
  expect(bucket.take(2)).toBe(0);
  expect([9_000, 9_000, 9_000, 9_000].map((atMs) => bucket.take(atMs))).toEqual([0, 0, 0, 2]);
});
