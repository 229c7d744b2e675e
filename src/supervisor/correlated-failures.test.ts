import { describe, expect, test } from 'vitest';
import { bootClock, type Clock } from '../kernel/clock.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { CorrelatedFailures, type Freeze, SleepWatch } from './correlated-failures.js';

function guardOf(servers: number) {
  const clock = new FakeClock();
  const freezes: Freeze[] = [];
  const guard = new CorrelatedFailures(clock);
  const names = Array.from({ length: servers }, (_, i) => `s${i}`);
  for (const name of names) guard.entered(name);
  const fail = (...which: number[]) => {
    for (const i of which) {
      const freeze = guard.failed(`s${i}`);
      if (freeze) freezes.push(freeze);
    }
  };
  return { clock, guard, freezes, fail };
}

describe('servers that fail together', () => {
  test('S4 if more than half of four fail within ten seconds, budgets are frozen for thirty, with one event', () => {
    const { clock, guard, freezes, fail } = guardOf(4);
    fail(0);
    clock.advance(5_000);
    fail(1);
    expect(guard.isFrozen).toBe(false);
    clock.advance(5_000);
    fail(2, 3);
    expect(guard.isFrozen).toBe(true);
    expect(freezes).toEqual([{ cause: 'correlated', forMs: 30_000, untilMs: 40_000, servers: ['s0', 's1', 's2'] }]);
    clock.advance(29_999);
    expect(guard.isFrozen).toBe(true);
    clock.advance(1);
    expect(guard.isFrozen).toBe(false);
  });

  test.each([
    ['three servers are too few to tell', 3, [0, 1, 2]],
    ['half is not more than half', 4, [0, 1]],
    ['one server that fails ten times counts once', 4, Array.from({ length: 10 }, () => 0)],
  ])('%s', (_title, servers, failures) => {
    const { guard, fail } = guardOf(servers);
    fail(...failures);
    expect(guard.isFrozen).toBe(false);
  });

  test('failures more than ten seconds apart do not count together', () => {
    const { clock, guard, fail } = guardOf(4);
    fail(0, 1);
    clock.advance(10_001);
    fail(2);
    expect(guard.isFrozen).toBe(false);
  });

  test('idle servers do not count, and servers that just failed still do', () => {
    const { guard, fail } = guardOf(100);
    for (let i = 4; i < 100; i++) guard.left(`s${i}`);
    fail(0, 1);
    guard.left('s0');
    fail(2);
    expect(guard.isFrozen).toBe(true);
  });

  test('D-33 broken servers cannot freeze the budgets again until they are proven', () => {
    const { clock, guard, freezes, fail } = guardOf(4);
    for (let second = 0; second < 600; second++) {
      fail(0, 1, 2);
      clock.advance(1_000);
    }
    expect(freezes).toHaveLength(1);
    for (const name of ['s0', 's1', 's2']) guard.proven(name);
    fail(0, 1, 2);
    expect(freezes).toHaveLength(2);
  });

  test('a server that was forgotten or never added changes nothing', () => {
    const { guard, fail } = guardOf(5);
    fail(0, 1);
    guard.forget('s0');
    guard.failed('s0');
    guard.failed('stranger');
    guard.proven('stranger');
    guard.left('stranger');
    fail(2);
    expect(guard.isFrozen).toBe(false);
    guard.forget('s4');
    guard.entered('s0');
    fail(0);
    expect(guard.isFrozen).toBe(true);
  });
});

describe('a process that did not run', () => {
  test('S4 a timer more than five seconds late freezes the budgets, but does not extend the freeze', () => {
    const { clock, guard } = guardOf(1);
    clock.advance(10_000);
    expect(guard.woke('s0', 5_000)).toBeUndefined();
    expect(guard.isFrozen).toBe(false);
    expect(guard.woke('s0', 4_999)).toEqual({ cause: 'suspended', forMs: 30_000, untilMs: 40_000, servers: ['s0'] });
    expect(guard.isFrozen).toBe(true);
    expect(guard.woke('s0', 0)).toBeUndefined();
    clock.advance(30_000);
    expect(guard.isFrozen).toBe(false);
  });
});

describe('a machine that slept while its monotonic clock stood still', () => {
  test('W16 freezes the budgets at the first failure after it, although no timer is late', () => {
    const { clock, guard, freezes, fail } = guardOf(1);
    clock.advance(1_000);
    clock.sleep(3_600_000);
    fail(0, 0);
    expect(guard.isFrozen).toBe(true);
    expect(freezes).toEqual([{ cause: 'suspended', forMs: 30_000, untilMs: 31_000, servers: ['s0'] }]);
    clock.advance(30_000);
    fail(0);
    expect([guard.isFrozen, freezes.length]).toEqual([false, 1]);
  });

  test('W16 also freezes them for a server that had failed before the sleep', () => {
    const { clock, guard, fail } = guardOf(1);
    fail(0);
    expect(guard.isFrozen).toBe(false);
    clock.sleep(3_600_000);
    fail(0);
    expect(guard.isFrozen).toBe(true);
  });

  test('W16 freezes them at a timer that fires in time', () => {
    const { clock, guard } = guardOf(1);
    clock.sleep(3_600_000);
    expect(guard.woke('s0', clock.nowMs())).toMatchObject({ cause: 'suspended' });
  });

  test.each([
    ['a sleep of five seconds', (clock: FakeClock) => clock.sleep(5_000)],
    ['a wall clock that was set', (clock: FakeClock) => clock.jumpWall(3_600_000)],
  ])('W16 %s freezes nothing', (_title, happen) => {
    const { clock, guard, fail } = guardOf(1);
    happen(clock);
    fail(0);
    expect([guard.isFrozen, guard.woke('s0', clock.nowMs())]).toEqual([false, undefined]);
  });
});

test('W16 time that only the boot-time clock counted is sleep, and is reported once', () => {
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

test('a monotonic clock that continues during sleep is enough', () => {
  const fake = new FakeClock();
  const clock: Clock = { nowMs: () => fake.nowMs(), date: () => fake.date(), at: (atMs, run) => fake.at(atMs, run) };
  const watch = new SleepWatch(clock);
  fake.sleep(3_600_000);
  fake.advance(3_600_000);
  expect(watch.sleptMs()).toBe(0);
});

test('a shrinking difference is no sleep, and the next growth counts from the smaller value', () => {
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

test('W16 on Linux the system clock reads the boot time of the kernel; on other systems the monotonic clock never stops', () => {
  const uptimeS = () => 12.5;
  expect(bootClock('linux', uptimeS).sinceBootMs?.()).toBe(12_500);
  expect(bootClock('darwin', uptimeS)).toEqual({});
});
