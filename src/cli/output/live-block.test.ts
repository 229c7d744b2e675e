import { expect, test } from 'vitest';
import { isRedrawn } from './live-block.js';

test('nothing is drawn again in a pipe, in CI, or on a terminal that cannot', () => {
  expect(isRedrawn({ isTTY: true }, { TERM: 'xterm' })).toBe(true);
  expect(isRedrawn({ isTTY: true }, { TERM: 'dumb' })).toBe(false);
  expect(isRedrawn({ isTTY: true }, { TERM: 'xterm', CI: 'true' })).toBe(false);
  expect(isRedrawn({ isTTY: false }, { TERM: 'xterm' })).toBe(false);
});
