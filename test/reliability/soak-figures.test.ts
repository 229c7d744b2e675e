/** The rules of the soak test: which errors it accepts, and which change of a figure counts as growth. */
import { describe, expect, test } from 'vitest';
import { Histogram, isExplained, levelsOf, slopeOf } from './soak-figures.mjs';

describe('an error', () => {
  const disturbances = [
    { kind: 'kill', server: 'a', fromMs: 10_000, backMs: 11_000 },
    { kind: 'edit', server: 'b', fromMs: 10_000, backMs: 11_000 },
  ];
  test.each([
    ['of a call that was in progress at the kill', 'a', 'outcome_uncertain', 9_900, 10_001, true],
    ['of a call that began while the server was away', 'a', 'connect_failed', 10_500, 10_600, true],
    ['within 2 s of the return of the server', 'a', 'circuit_open', 13_000, 13_001, true],
    ['later than 2 s after the return of the server', 'a', 'circuit_open', 13_001, 13_002, false],
    ['that ended before the kill', 'a', 'outcome_uncertain', 9_000, 9_999, false],
    ['of a code that no kill causes', 'a', 'timeout', 10_500, 10_600, false],
    ['of another server', 'c', 'connect_failed', 10_500, 10_600, false],
    ['of a call that waited for an edited server', 'b', 'reconnecting', 10_500, 10_600, true],
    ['of a code that no edit causes', 'b', 'outcome_uncertain', 10_500, 10_600, false],
  ])('%s', (_what, server, code, beganMs, endedMs, expected) => {
    expect(isExplained({ server, code, beganMs, endedMs }, disturbances)).toBe(expected);
  });

  test('of a server that never returned is explained until the end', () => {
    const away = [{ kind: 'kill', server: 'a', fromMs: 10_000, backMs: Infinity }];
    expect(isExplained({ server: 'a', code: 'connect_failed', beganMs: 1e9, endedMs: 1e9 }, away)).toBe(true);
  });
});

test('the slope is that of the line through the points, and 0 for a single one', () => {
  const zigzag = Array.from({ length: 100 }, (_, x) => [x, 7 + 0.25 * x + (x % 2)]);
  expect(slopeOf(zigzag)).toBeCloseTo(0.25, 2);
  expect(slopeOf([[1, 5]])).toBe(0);
});

test('levels are the medians of the first and the last fifth', () => {
  const figures = [1, 99, 1, 1, 1, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 3, 3, 3, 200, 3];
  expect(levelsOf(figures)).toEqual({ first: 1, last: 3, max: 200 });
});

test('the values of the histogram are at most 10 % too high, and its maximum is exact', () => {
  const times = new Histogram();
  for (let ms = 1; ms <= 1_000; ms++) times.add(ms);
  expect(times.at(0.5)).toBeGreaterThanOrEqual(500);
  expect(times.at(0.5)).toBeLessThanOrEqual(550);
  expect(times.at(1)).toBe(1_000);
});
