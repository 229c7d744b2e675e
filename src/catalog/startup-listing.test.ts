import { expect, test } from 'vitest';
import { deferred } from '../kernel/deferred.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { StartupListing, startupListingMsMax } from './startup-listing.js';

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));
const discovery = { listUnlisted: () => new Map(), listStarting: () => new Map() };
const startup = (clock = new FakeClock()) => new StartupListing(clock, discovery, undefined);
const never = () => new Promise<void>(() => {});

test('without unlisted servers there is no wait', async () => {
  const listing = startup();
  expect(listing.wait()).toBeUndefined();
  listing.track(new Map(), new Map());
  expect([listing.wait(), listing.wait(['a']), listing.whenAllListed()]).toEqual([undefined, undefined, undefined]);
});

test('a request for all servers waits until each was listed or failed', async () => {
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

test('a request for some servers waits for those only', async () => {
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

test('a listing that ended before the first request needs no wait', async () => {
  const listing = startup();
  listing.track(new Map([['a', Promise.resolve()]]));
  await settle();
  expect(listing.wait()).toBeUndefined();
});

test(`no request waits longer than ${startupListingMsMax} ms after the first one, and none waits twice`, async () => {
  const clock = new FakeClock();
  const listing = startup(clock);
  listing.track(new Map([['a', never()]]));
  // `whenAllListed` starts no time limit.
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

test('E17 servers that are added later are waited for as well', async () => {
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

test('a server that was too slow once is listed, but neither a request nor readiness waits for it', async () => {
  const clock = new FakeClock();
  const slow = new Set<string>();
  const marks = {
    was: (name: string) => slow.has(name),
    exceeded: (name: string) => slow.add(name),
    settled: () => {},
  };
  const first = new StartupListing(clock, discovery, undefined, marks);
  first.track(
    new Map([
      ['hanging', never()],
      ['quick', Promise.resolve()],
    ]),
  );
  const waiting = first.wait();
  await settle();
  clock.advance(startupListingMsMax);
  await waiting;
  expect([...slow]).toEqual(['hanging']);
  const next = new StartupListing(clock, discovery, undefined, marks);
  next.track(new Map([['hanging', never()]]));
  expect([next.wait(), next.whenReady(), next.whenAllListed() === undefined]).toEqual([undefined, undefined, false]);
});
