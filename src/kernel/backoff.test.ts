import { expect, test } from 'vitest';
import { backoffMs } from './backoff.js';

test.each([
  [100, 0, 1_000, 100],
  [100, 1, 1_000, 200],
  [100, 3, 1_000, 800],
  [100, 4, 1_000, 1_000],
  [100, -1, 1_000, 100],
  [5_000, 0, 1_000, 1_000],
  [100, Number.MAX_SAFE_INTEGER, 300_000, 300_000],
])('%i ms doubled %i times, at most %i: %i', (baseMs, times, maxMs, expected) => {
  expect(backoffMs(baseMs, times, maxMs)).toBe(expected);
});
