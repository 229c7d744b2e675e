import { expect, test } from 'vitest';
import { SilentTime } from './server-circuit.js';

test('W10 the times of calls that were abandoned one after another add up', () => {
  const silentTime = new SilentTime();
  expect([silentTime.add(0, 0, 4_000), silentTime.add(10_000, 0, 14_000)]).toEqual([4_000, 8_000]);
});

test('W10 time in which several calls waited counts once', () => {
  const silentTime = new SilentTime();
  expect([silentTime.add(0, 0, 4_000), silentTime.add(100, 0, 4_000), silentTime.add(2_000, 0, 5_000)]).toEqual([
    4_000, 4_000, 5_000,
  ]);
});

test('W10 a message resets the sum, and time before the message does not count', () => {
  const silentTime = new SilentTime();
  silentTime.add(0, 0, 4_000);
  expect(silentTime.add(5_000, 6_000, 9_000)).toBe(3_000);
});
