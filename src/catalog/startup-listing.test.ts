import { expect, test } from 'vitest';
import { deferred } from '../kernel/deferred.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { StartupListing, startupListingMsMax } from './startup-listing.js';

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));
const discovery = { learnUnseen: () => new Map(), seeStarting: () => new Map() };
const startup = (clock = new FakeClock()) => new StartupListing(clock, discovery, undefined);
const never = () => new Promise<void>(() => {});

test('with nothing unseen there is nothing to wait for', async () => {
  const listing = startup();
  expect(listing.wait()).toBeUndefined();
  listing.track(new Map(), new Map());
  expect([listing.wait(), listing.wait(['a']), listing.whenAllListed()]).toEqual([undefined, undefined, undefined]);
});

test('who asks for all waits until all were seen or could not be', async () => {
  const clock = new FakeClock();
  const listing = startup(clock);
  const seen = deferred();
  const lost = Promise.reject<void>(new Error('could not be'));
  listing.track(new Map([['a', lost]]), new Map([['b', seen.promise]]));
  const waiting = listing.wait();
  await settle();
  expect([waiting, listing.whenAllListed()].map((one) => one !== undefined)).toEqual([true, true]);
  seen.resolve();
  await waiting;
  await settle();
  expect([listing.wait(), listing.whenAllListed(), clock.pendingTimers]).toEqual([undefined, undefined, 0]);
});

test('who asks for some waits for those', async () => {
  const listing = startup();
  const seen = deferred();
  listing.track(
    new Map([
      ['slow', never()],
      ['quick', seen.promise],
    ]),
  );
  expect(listing.wait(['known'])).toBeUndefined();
  const waiting = listing.wait(['known', 'quick']);
  seen.resolve();
  await waiting;
  await settle();
  expect([listing.wait(['quick']), listing.wait(['quick', 'slow']) !== undefined]).toEqual([undefined, true]);
});

test('what was seen before anybody asked is over', async () => {
  const listing = startup();
  listing.track(new Map([['a', Promise.resolve()]]));
  await settle();
  expect(listing.wait()).toBeUndefined();
});

test(`nobody waits longer than ${startupListingMsMax} ms after the first, nor again`, async () => {
  const clock = new FakeClock();
  const listing = startup(clock);
  listing.track(new Map([['a', never()]]));
  // Who only watches starts no time.
  expect(listing.whenAllListed()).toBeDefined();
  await clock.advanceAsync(10 * startupListingMsMax);
  let isOver = false;
  void listing.wait()?.then(() => {
    isOver = true;
  });
  await clock.advanceAsync(startupListingMsMax - 1);
  const late = listing.wait();
  expect([isOver, late === undefined]).toEqual([false, false]);
  await clock.advanceAsync(1);
  await late;
  expect([isOver, listing.wait()]).toEqual([true, undefined]);
});

test('E17 servers that are to be seen later are waited for as well', async () => {
  const clock = new FakeClock();
  const listing = startup(clock);
  const first = deferred();
  listing.track(new Map([['a', first.promise]]));
  const waited = listing.wait();
  first.resolve();
  await waited;
  await settle();
  const second = deferred();
  listing.track(new Map([['b', second.promise]]));
  const heard: string[] = [];
  void listing.wait()?.then(() => heard.push('listed'));
  void listing.whenAllListed()?.then(() => heard.push('seen'));
  await settle();
  expect(heard).toEqual([]);
  second.resolve();
  await settle();
  expect([heard.sort(), clock.pendingTimers]).toEqual([['listed', 'seen'], 0]);
});
