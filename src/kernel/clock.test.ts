import { expect, test } from 'vitest';
import { sleep } from './clock.js';
import { FakeClock } from './fake-clock.js';

test('timers run in order of time, then in the order they were set', () => {
  const clock = new FakeClock();
  const ran: string[] = [];
  clock.at(20, () => ran.push('b'));
  clock.at(10, () => {
    ran.push('a');
    clock.at(15, () => ran.push('nested'));
  });
  clock.at(20, () => ran.push('c'));
  const cancel = clock.at(5, () => ran.push('cancelled'));
  cancel();
  clock.advance(20);
  expect(ran).toEqual(['a', 'nested', 'b', 'c']);
  expect(clock.pendingTimers).toBe(0);
});

test('setting the wall clock does not move monotonic time', () => {
  const clock = new FakeClock(5);
  const before = clock.date().getTime();
  clock.jumpWall(-86_400_000);
  expect([clock.nowMs(), clock.date().getTime() - before]).toEqual([5, -86_400_000]);
});

test('a sleep ends at its time or when it is aborted, and leaves no timer', async () => {
  const clock = new FakeClock();
  const abort = new AbortController();
  const slept = sleep(clock, 100);
  const aborted = sleep(clock, 1_000, abort.signal);
  await clock.advanceAsync(100);
  await slept;
  abort.abort();
  await aborted;
  expect(clock.pendingTimers).toBe(0);
});
