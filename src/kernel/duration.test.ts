import { expect, test } from 'vitest';
import { formatDuration } from './duration.js';

test.each([
  [0, '0ms'],
  [999, '999ms'],
  [59_400, '59s'],
  [60_000, '1m'],
  [125_000, '2m 5s'],
  [3_600_000, '1h'],
  [90_000_000, '1d 1h'],
])('%i ms is %s', (ms, text) => {
  expect(formatDuration(ms)).toBe(text);
});
