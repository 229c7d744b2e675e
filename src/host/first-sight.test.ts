import { expect, test } from 'vitest';
import { deferred } from '../kernel/deferred.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { FirstSight, firstSightMsMax } from './first-sight.js';

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

test('with nothing unseen there is nothing to wait for', async () => {
  const sight = new FirstSight(new FakeClock());
  expect(sight.wait()).toBeUndefined();
  sight.begin([undefined, undefined]);
  expect(sight.wait()).toBeUndefined();
});

test('all wait for the same, until all were seen or could not be', async () => {
  const clock = new FakeClock();
  const sight = new FirstSight(clock);
  const seen = deferred();
  sight.begin([undefined, Promise.reject(new Error('could not be')), seen.promise]);
  const waiting = sight.wait();
  expect(sight.wait()).toBe(waiting);
  seen.resolve();
  await waiting;
  expect([sight.wait(), clock.pendingTimers]).toEqual([undefined, 0]);
});

test('what was seen before anybody asked is over', async () => {
  const sight = new FirstSight(new FakeClock());
  sight.begin([Promise.resolve()]);
  await settle();
  expect(sight.wait()).toBeUndefined();
});

test(`nobody waits longer than ${firstSightMsMax} ms after the first, nor again`, async () => {
  const clock = new FakeClock();
  const sight = new FirstSight(clock);
  sight.begin([new Promise(() => {})]);
  await clock.advanceAsync(10 * firstSightMsMax);
  let isOver = false;
  void sight.wait()?.then(() => {
    isOver = true;
  });
  await clock.advanceAsync(firstSightMsMax - 1);
  const late = sight.wait();
  expect([isOver, late === undefined]).toEqual([false, false]);
  await clock.advanceAsync(1);
  await late;
  expect([isOver, sight.wait()]).toEqual([true, undefined]);
});
