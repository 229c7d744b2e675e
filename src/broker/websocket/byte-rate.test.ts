import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { ByteRate } from './worker-traffic.js';

function rig() {
  const clock = new FakeClock();
  const paused: boolean[] = [];
  return { clock, paused, rate: new ByteRate(clock, 1_000, (isPaused) => void paused.push(isPaused)) };
}

test('a burst of 250 ms passes at once; bytes above it cause a pause', () => {
  const { clock, paused, rate } = rig();
  rate.use(250);
  expect(paused).toEqual([]);
  rate.use(100);
  expect(paused).toEqual([true]);
  clock.advance(99);
  expect(paused).toEqual([true]);
  clock.advance(1);
  expect(paused).toEqual([true, false]);
});

test('bytes that are counted during a pause make it longer', () => {
  const { clock, paused, rate } = rig();
  rate.use(350);
  rate.use(500);
  clock.advance(599);
  expect(paused).toEqual([true]);
  clock.advance(1);
  expect(paused).toEqual([true, false]);
  expect(clock.pendingTimers).toBe(0);
});

test('over a long time no more than the rate and one burst pass', () => {
  const { clock, rate } = rig();
  let bytes = 0;
  for (let ms = 0; ms < 10_000; ms++) {
    while (!rate.isPaused) {
      rate.use(70);
      bytes += 70;
    }
    clock.advance(1);
  }
  expect(bytes).toBeGreaterThan(9_900);
  expect(bytes).toBeLessThan(10_000 + 250 + 2 * 70);
});
