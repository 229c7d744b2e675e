import { expect, test } from 'vitest';
import { terminalWidth } from './print.js';

test.each([
  [true, 120, 120],
  [true, 0, 80],
  [true, undefined, 80],
  [false, 0, 200],
])('a terminal (%s) of %s columns is %s wide', (isTTY, columns, width) => {
  expect(terminalWidth({ isTTY, columns: columns as number })).toBe(width);
});
