import { expect, test } from 'vitest';
import { reconnectDelayMs, refusedDelayMs } from './reconnect-plan.js';

test.each([
  [0, 0, 100],
  [1, 150, 200],
  [2, 300, 400],
  [3, 600, 800],
  [4, 1_200, 1_600],
  [5, 1_500, 2_000],
  [1_000_000, 1_500, 2_000],
])('D-52 after %i failures a worker waits from %i to %i ms', (failures, fromMs, toMs) => {
  const bounds = [reconnectDelayMs(failures, () => 0), reconnectDelayMs(failures, () => 1)].sort((a, b) => a - b);
  expect(bounds).toEqual([fromMs, toMs]);
});

test.each([
  [1, 22_500, 30_000],
  [2, 45_000, 60_000],
  [4, 180_000, 240_000],
  [5, 225_000, 300_000],
  [1_000_000, 225_000, 300_000],
])('D-52 after %i refusals of the key a worker waits from %i to %i ms', (refusals, fromMs, toMs) => {
  expect([refusedDelayMs(refusals, () => 1), refusedDelayMs(refusals, () => 0)]).toEqual([fromMs, toMs]);
});
