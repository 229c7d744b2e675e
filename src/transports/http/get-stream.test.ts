import { expect, test } from 'vitest';
import { seededRandom } from '../../kernel/random.js';
import { reconnectDelayMs } from './get-stream.js';

test('the first attempt waits exactly as long as the server asked, within bounds', () => {
  const ask = (retryMs: number | undefined) => reconnectDelayMs(retryMs, 0, 30_000, () => 0.5);
  expect([undefined, 500, 0, 60_000, 1e9].map(ask)).toEqual([1_000, 500, 100, 60_000, 60_000]);
});

test('after fruitless attempts it grows to its bound, is spread, and is never shorter than asked', () => {
  const random = seededRandom(3);
  for (const asked of [100, 1_000, 20_000, 60_000]) {
    for (let fruitless = 1; fruitless < 40; fruitless++) {
      const delayMs = reconnectDelayMs(asked, fruitless, 30_000, random);
      expect(delayMs).toBeGreaterThanOrEqual(asked);
      expect(delayMs).toBeLessThanOrEqual(Math.max(asked, 30_000));
    }
  }
  expect(reconnectDelayMs(1_000, 1, 30_000, () => 1)).toBe(2_000);
  expect(reconnectDelayMs(1_000, 3, 30_000, () => 1)).toBe(8_000);
  expect(reconnectDelayMs(1_000, 30, 30_000, () => 1)).toBe(30_000);
});
