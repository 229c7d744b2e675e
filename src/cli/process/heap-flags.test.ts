import { Script } from 'node:vm';
import { expect, test, vi } from 'vitest';
import { limitHeap } from './heap-flags.js';

test('a start leaves the flags of V8 as they are, so that code caches stay valid', () => {
  vi.useFakeTimers();
  const cachedData = new Script('(() => 1)()').createCachedData();
  limitHeap();
  // Another source of the same length: V8 keeps compiled scripts, and then does not look at the cache.
  expect(new Script('(() => 2)()', { cachedData }).cachedDataRejected).toBe(false);
  vi.useRealTimers();
});
