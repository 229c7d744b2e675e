import { expect, test } from 'vitest';
import { parseServing } from './host-config.js';
import { drainMsOf } from './listen-settings.js';

const drainMs = (drain?: unknown) => drainMsOf(parseServing({ listen: drain === undefined ? {} : { drain } }).listen);

test.each([
  [undefined, 10_000],
  ['30s', 30_000],
  [250, 250],
  ['2m', 120_000],
  [0, 0],
  ['0', 0],
])('E14 a drain time of %s is %i ms', (written, expected) => {
  expect(drainMs(written)).toBe(expected);
});

test.each(['soon', '', -1, '25h', true, null, {}, Number.NaN])(
  'E14 a drain time of %s is refused by its path',
  (written) => {
    expect(() => drainMs(written)).toThrow(/^listen\.drain/);
  },
);
