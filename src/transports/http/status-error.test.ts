import { expect, test } from 'vitest';
import { parseRetryAfter } from './status-error.js';

test.each([
  [undefined, undefined],
  ['0', 0],
  ['120', 120_000],
  [' 5 ', 5_000],
  ['99999999', 3_600_000],
  ['Thu, 01 Jan 2026 00:00:10 GMT', 10_000],
  ['Wed, 31 Dec 2025 23:59:00 GMT', 0],
  ['soon', undefined],
  ['-5', undefined],
  ['1.5', undefined],
])('Retry-After %j means %j', (value, expected) => {
  expect(parseRetryAfter(value, new Date('2026-01-01T00:00:00Z'))).toBe(expected);
});
