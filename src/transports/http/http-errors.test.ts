import { expect, test } from 'vitest';
import { parseRetryAfter, statusError } from './http-errors.js';

test.each([
  [undefined, undefined],
  ['0', 0],
  ['120', 120_000],
  [' 5 ', 5_000],
  ['99999999', 300_000],
  ['Thu, 01 Jan 2026 00:00:10 GMT', 10_000],
  ['Wed, 31 Dec 2025 23:59:00 GMT', 0],
  ['soon', undefined],
  ['-5', undefined],
  ['1.5', undefined],
])('Retry-After %j, read in ms: %j', (value, expected) => {
  expect(parseRetryAfter(value, new Date('2026-01-01T00:00:00Z'))).toBe(expected);
});

test.each([
  [429, {}, 'overloaded', undefined],
  [429, { 'retry-after': '7' }, 'overloaded', 7_000],
  [503, { 'retry-after': '7' }, 'overloaded', 7_000],
  [503, {}, 'transport', undefined],
  [503, { 'retry-after': 'soon' }, 'transport', undefined],
  [502, { 'retry-after': '7' }, 'transport', undefined],
] as const)('W11 status %d with %j is the error %s', (status, headers, code, retryAfterMs) => {
  const now = new Date('2026-01-01T00:00:00Z');
  const error = statusError({
    server: 'x',
    status,
    headers,
    inSession: false,
    rpcCode: undefined,
    now,
    sent: undefined,
  });
  expect([error.code, error.details.retryAfterMs, error.details.execution]).toEqual([code, retryAfterMs, 'uncertain']);
});
