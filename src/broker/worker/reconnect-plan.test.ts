import { expect, test } from 'vitest';
import { reconnectDelayMs } from './reconnect-plan.js';

test.each([
  [0, 0, 100],
  [1, 100, 200],
  [2, 200, 400],
  [3, 400, 800],
  [4, 800, 1_600],
  [5, 1_000, 2_000],
  [6, 1_000, 2_000],
  [1_000_000, 1_000, 2_000],
])('after %i tries in vain it waits from %i to %i ms', (failures, fromMs, toMs) => {
  expect(reconnectDelayMs(failures, () => 0)).toBe(fromMs);
  expect(reconnectDelayMs(failures, () => 1)).toBe(toMs);
});
