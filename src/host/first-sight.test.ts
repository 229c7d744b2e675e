import { expect, test } from 'vitest';
import { deferred } from '../kernel/deferred.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { FirstSight, firstSightMsMax } from './first-sight.js';

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));
const never = () => new Promise<void>(() => {});

test('with nothing unseen there is nothing to wait for', async () => {
  const sight = new FirstSight(new FakeClock());
  expect(sight.wait()).toBeUndefined();
  sight.begin(new Map(), new Map());
  expect([sight.wait(), sight.wait(['a']), sight.whenSeen()]).toEqual([undefined, undefined, undefined]);
});

test('who asks for all waits until all were seen or could not be', async () => {
  const clock = new FakeClock();
  const sight = new FirstSight(clock);
  const seen = deferred();
  const lost = Promise.reject<void>(new Error('could not be'));
  sight.begin(new Map([['a', lost]]), new Map([['b', seen.promise]]));
  const waiting = sight.wait();
  await settle();
  expect([waiting, sight.whenSeen()].map((one) => one !== undefined)).toEqual([true, true]);
  seen.resolve();
  await waiting;
  await settle();
  expect([sight.wait(), sight.whenSeen(), clock.pendingTimers]).toEqual([undefined, undefined, 0]);
});

test('who asks for some waits for those', async () => {
  const sight = new FirstSight(new FakeClock());
  const seen = deferred();
  sight.begin(
    new Map([
      ['slow', never()],
      ['quick', seen.promise],
    ]),
  );
  expect(sight.wait(['known'])).toBeUndefined();
  const waiting = sight.wait(['known', 'quick']);
  seen.resolve();
  await waiting;
  await settle();
  expect([sight.wait(['quick']), sight.wait(['quick', 'slow']) !== undefined]).toEqual([undefined, true]);
});

test('what was seen before anybody asked is over', async () => {
  const sight = new FirstSight(new FakeClock());
  sight.begin(new Map([['a', Promise.resolve()]]));
  await settle();
  expect(sight.wait()).toBeUndefined();
});

test(`nobody waits longer than ${firstSightMsMax} ms after the first, nor again`, async () => {
  const clock = new FakeClock();
  const sight = new FirstSight(clock);
  sight.begin(new Map([['a', never()]]));
  // Who only watches starts no time.
  expect(sight.whenSeen()).toBeDefined();
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

test('E17 servers that are to be seen later are waited for as well', async () => {
  const clock = new FakeClock();
  const sight = new FirstSight(clock);
  const first = deferred();
  sight.begin(new Map([['a', first.promise]]));
  const waited = sight.wait();
  first.resolve();
  await waited;
  await settle();
  const second = deferred();
  sight.begin(new Map([['b', second.promise]]));
  const heard: string[] = [];
  void sight.wait()?.then(() => heard.push('listed'));
  void sight.whenSeen()?.then(() => heard.push('seen'));
  await settle();
  expect(heard).toEqual([]);
  second.resolve();
  await settle();
  expect([heard.sort(), clock.pendingTimers]).toEqual([['listed', 'seen'], 0]);
});
