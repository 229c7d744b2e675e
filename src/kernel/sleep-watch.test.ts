import { uptime } from 'node:os';
import { expect, test } from 'vitest';
import { type Clock, systemClock } from './clock.js';
import { FakeClock } from './fake-clock.js';
import { SleepWatch } from './sleep-watch.js';

test('W16 time that only the clock since boot has counted is sleep, and told once', () => {
  const clock = new FakeClock();
  const watch = new SleepWatch(clock);
  clock.advance(60_000);
  expect(watch.sleptMs()).toBe(0);
  clock.sleep(8 * 3_600_000);
  clock.advance(10);
  expect([watch.sleptMs(), watch.sleptMs()]).toEqual([8 * 3_600_000, 0]);
});

test.each([3_600_000, -3_600_000])('W16 a jump of the wall clock by %i ms is no sleep', (ms) => {
  const clock = new FakeClock();
  const watch = new SleepWatch(clock);
  clock.jumpWall(ms);
  clock.advance(1_000);
  expect(watch.sleptMs()).toBe(0);
});

test('a monotonic clock that goes on while the machine sleeps is enough', () => {
  const fake = new FakeClock();
  const clock: Clock = { nowMs: () => fake.nowMs(), date: () => fake.date(), at: (atMs, run) => fake.at(atMs, run) };
  const watch = new SleepWatch(clock);
  fake.sleep(3_600_000);
  fake.advance(3_600_000);
  expect(watch.sleptMs()).toBe(0);
});

test('a difference that shrinks is no sleep, and the next growth counts from there', () => {
  const fake = new FakeClock();
  let offsetMs = 10_000;
  const clock: Clock = {
    nowMs: () => fake.nowMs(),
    sinceBootMs: () => fake.nowMs() + offsetMs,
    date: () => fake.date(),
    at: (atMs, run) => fake.at(atMs, run),
  };
  const watch = new SleepWatch(clock);
  offsetMs = 0;
  expect(watch.sleptMs()).toBe(0);
  offsetMs = 6_000;
  expect(watch.sleptMs()).toBe(6_000);
});

test.runIf(process.platform === 'linux')('W16 the system clock counts time since boot as the kernel does', () => {
  const beforeMs = uptime() * 1_000;
  const sinceBootMs = systemClock.sinceBootMs?.() ?? Number.NaN;
  expect(sinceBootMs).toBeGreaterThanOrEqual(beforeMs);
  expect(sinceBootMs).toBeLessThanOrEqual(uptime() * 1_000);
});
