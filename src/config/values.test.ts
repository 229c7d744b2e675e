import { expect, test } from 'vitest';
import { parseDuration } from './values.js';

test.each([
  [250, 250],
  ['250', 250],
  ['250ms', 250],
  ['30s', 30_000],
  ['1.5s', 1_500],
  ['5m', 300_000],
  ['24h', 86_400_000],
])('%j is %d ms', (text, durationMs) => {
  expect(parseDuration(text, 'timeouts.start')).toBe(durationMs);
});

test.each([0, -1, '', '5 s', '5d', '25h', 'soon', null, Number.NaN, '1e3'])(
  '%j is refused, naming the field',
  (text) => {
    expect(() => parseDuration(text, 'timeouts.start')).toThrow('timeouts.start');
  },
);
