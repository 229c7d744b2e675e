import { expect, test } from 'vitest';
import { failureOf } from '../../test/fakes/policy-call.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { type Reader, type ReadLimits, SharedReads } from './shared-reads.js';

function open() {
  const clock = new FakeClock();
  const reads = new SharedReads<string>(clock);
  const asked: { resolve: (value: string) => void; reject: (error: unknown) => void; limits: ReadLimits }[] = [];
  let version = 1;
  const reader = (deadlineAtMs: number, signal?: AbortSignal): Reader => ({
    deadlineAtMs,
    signal,
    version: () => version,
    left: (code) => new HostError(code, `left at ${deadlineAtMs}`),
  });
  const join = (deadlineAtMs: number, signal?: AbortSignal, key = 'k') =>
    reads.join(
      key,
      reader(deadlineAtMs, signal),
      (limits) =>
        new Promise((resolve, reject) => {
          asked.push({ resolve, reject, limits });
        }),
    );
  const change = () => version++;
  return { clock, reads, asked, join, change };
}

test('a thousand equal reads are one, and other ones are others', async () => {
  const { asked, join, reads } = open();
  const all = Array.from({ length: 1_000 }, () => join(100));
  const other = join(100, undefined, 'other');
  expect([asked.length, reads.flying]).toEqual([2, 2]);
  asked[0]?.resolve('one');
  asked[1]?.resolve('two');
  expect([...new Set(await Promise.all(all)), await other]).toEqual(['one', 'two']);
  expect(reads.flying).toBe(0);
});

test('a caller leaves at its own deadline, alone', async () => {
  const { clock, asked, join } = open();
  const first = join(100);
  const hasty = failureOf(join(10));
  clock.advance(10);
  expect((await hasty).message).toBe('left at 10');
  expect(asked[0]?.limits.signal.aborted).toBe(false);
  asked[0]?.resolve('late');
  expect([await first, clock.pendingTimers]).toEqual(['late', 0]);
});

test('the last one to leave cancels the read, and who comes then asks anew', async () => {
  const { asked, join } = open();
  const leaving = new AbortController();
  const both = [failureOf(join(100, leaving.signal)), failureOf(join(100, leaving.signal))];
  leaving.abort();
  expect((await Promise.all(both)).map(({ code }) => code)).toEqual(['cancelled', 'cancelled']);
  expect(asked[0]?.limits.signal.aborted).toBe(true);
  const next = join(100);
  expect(asked.length).toBe(2);
  asked[0]?.resolve('old');
  asked[1]?.resolve('new');
  expect(await next).toBe('new');
});

test('whoever has much more time than the first asks on its own', async () => {
  const { asked, join } = open();
  const short = join(100);
  const long = join(5_000);
  expect(asked.length).toBe(2);
  asked[0]?.resolve('short');
  const joined = join(5_000);
  asked[1]?.resolve('long');
  expect(await Promise.all([short, long, joined])).toEqual(['short', 'long', 'long']);
});

test('a failure is everybody’s', async () => {
  const { asked, join } = open();
  const both = [failureOf(join(100)), failureOf(join(100))];
  asked[0]?.reject(new HostError('transport', 'gone'));
  expect((await Promise.all(both)).map(({ code }) => code)).toEqual(['transport', 'transport']);
});

test('who has left before it began asks nobody', async () => {
  const { asked, join } = open();
  expect((await failureOf(join(100, AbortSignal.abort()))).code).toBe('cancelled');
  expect(asked.length).toBe(0);
});

test('a change before the question is sent is no matter; one after it makes who comes then ask anew', async () => {
  const { asked, join, change } = open();
  const early = [join(100)];
  change();
  early.push(join(100));
  expect([asked.length, asked[0]?.limits.sending()]).toEqual([1, 2]);
  early.push(join(100));
  change();
  const late = [join(100), join(100)];
  expect(asked.length).toBe(2);
  asked[0]?.resolve('old');
  asked[1]?.resolve('new');
  expect(await Promise.all([...early, ...late])).toEqual(['old', 'old', 'old', 'new', 'new']);
});
