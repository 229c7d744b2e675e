import { Script } from 'node:vm';
import { afterEach, expect, test, vi } from 'vitest';
import { limitHeap } from './heap-flags.js';

afterEach(() => {
  vi.useRealTimers();
  vi.doUnmock('node:v8');
  vi.doUnmock('./compile-cache.js');
});

test('a start does not change the flags of V8, so that code caches stay valid', () => {
  vi.useFakeTimers();
  const cachedData = new Script('(() => 1)()').createCachedData();
  limitHeap();
  // The source differs but has the same length: for an equal source V8 would ignore the cache and use its script in memory.
  expect(new Script('(() => 2)()', { cachedData }).cachedDataRejected).toBe(false);
});

test('the code of the start is saved before the first flag, because V8 rejects it under other flags', async () => {
  vi.useFakeTimers();
  const done: string[] = [];
  vi.doMock('node:v8', () => ({
    getHeapSpaceStatistics: () => [{ space_name: 'new_space', space_size: 16 * 1024 * 1024 }],
    setFlagsFromString: (flag: string) => done.push(flag),
  }));
  vi.doMock('./compile-cache.js', () => ({ finishCompileCache: () => done.push('saved') }));
  vi.resetModules();
  const { limitHeap } = await import('./heap-flags.js');
  limitHeap();
  vi.advanceTimersByTime(250);
  expect(done[0]).toBe('saved');
  expect(done).toContain('--semi-space-growth-factor=1');
});
