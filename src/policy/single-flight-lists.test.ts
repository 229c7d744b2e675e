import { expect, test } from 'vitest';
import { failureOf, fakeList } from '../../test/fakes/policy-call.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { ListResult, Operation, Outcome } from './operation.js';
import { SingleFlight } from './single-flight.js';

const listed = (name: string): ListResult => ({
  items: [{ key: name, raw: Buffer.from(name) }],
  ttlMs: 0,
  isPublic: false,
});

/** A server that answers when the test says so, and a version of its list. */
function open() {
  const clock = new FakeClock();
  const flights = new SingleFlight(clock);
  const sent: { operation: Operation; done: (outcome: Outcome) => void }[] = [];
  let version = 1;
  const join = (deadlineAtMs: number, signal?: AbortSignal, key = 'k') =>
    new Promise<string>((resolve, reject) => {
      flights.join(
        key,
        fakeList({ deadlineAtMs, signal }),
        (operation, done) => sent.push({ operation, done }),
        (outcome) =>
          outcome instanceof Error ? reject(outcome) : resolve(String((outcome as ListResult).items[0]?.raw)),
        () => version,
      );
    });
  const answer = (nth: number, name: string) => sent[nth]?.done(listed(name));
  /** The request leaves now. */
  const leaves = (nth: number) => {
    const { stage } = (sent[nth] as (typeof sent)[number]).operation;
    stage.epoch = version;
  };
  return { clock, flights, sent, join, answer, leaves, change: () => version++ };
}

test('a thousand equal list requests become one, and different ones are separate', async () => {
  const { sent, join, flights, answer } = open();
  const all = Array.from({ length: 1_000 }, () => join(100));
  const other = join(100, undefined, 'other');
  expect([sent.length, flights.size]).toEqual([2, 2]);
  answer(0, 'one');
  answer(1, 'two');
  expect([...new Set(await Promise.all(all)), await other]).toEqual(['one', 'two']);
  expect(flights.size).toBe(0);
});

test('each caller gets bytes of its own', async () => {
  const { flights, sent } = open();
  const lists: ListResult[] = [];
  for (let i = 0; i < 2; i++)
    flights.join(
      'k',
      fakeList(),
      (operation, done) => sent.push({ operation, done }),
      (outcome) => lists.push(outcome as ListResult),
    );
  sent[0]?.done(listed('one'));
  lists[0]?.items[0]?.raw.fill('x');
  expect(String(lists[1]?.items[0]?.raw)).toBe('one');
});

test('a caller leaves at its own deadline, without effect on the others', async () => {
  const { clock, sent, join, answer } = open();
  const first = join(100);
  const hasty = failureOf(join(10));
  clock.advance(10);
  expect((await hasty).message).toBe("server 'github': tools/list: no answer by the deadline");
  expect(sent[0]?.operation.signal?.aborted).toBe(false);
  answer(0, 'late');
  expect([await first, clock.pendingTimers]).toEqual(['late', 0]);
});

test('the last caller that leaves cancels the request, and the next caller sends a new one', async () => {
  const { sent, join, answer } = open();
  const leaving = new AbortController();
  const both = [failureOf(join(100, leaving.signal)), failureOf(join(100, leaving.signal))];
  leaving.abort();
  expect((await Promise.all(both)).map(({ code }) => code)).toEqual(['cancelled', 'cancelled']);
  expect(sent[0]?.operation.signal?.aborted).toBe(true);
  const next = join(100);
  expect(sent.length).toBe(2);
  answer(0, 'old');
  answer(1, 'new');
  expect(await next).toBe('new');
});

test('a caller with much more time than the first sends its own request', async () => {
  const { sent, join, answer } = open();
  const short = join(100);
  const long = join(5_000);
  expect(sent.length).toBe(2);
  answer(0, 'short');
  const joined = join(5_000);
  answer(1, 'long');
  expect(await Promise.all([short, long, joined])).toEqual(['short', 'long', 'long']);
});

test('a failure reaches every caller', async () => {
  const { sent, join } = open();
  const both = [failureOf(join(100)), failureOf(join(100))];
  sent[0]?.done(new HostError('transport', 'gone'));
  expect((await Promise.all(both)).map(({ code }) => code)).toEqual(['transport', 'transport']);
});

test('a caller that has cancelled before it joins sends nothing', async () => {
  const { sent, join } = open();
  expect((await failureOf(join(100, AbortSignal.abort()))).code).toBe('cancelled');
  expect(sent.length).toBe(0);
});

test('a change before the request is sent does not matter; after a later change the next caller sends a new request', async () => {
  const { sent, join, answer, leaves, change } = open();
  const early = [join(100)];
  change();
  early.push(join(100));
  expect(sent.length).toBe(1);
  leaves(0);
  early.push(join(100));
  change();
  const late = [join(100), join(100)];
  expect(sent.length).toBe(2);
  answer(0, 'old');
  answer(1, 'new');
  expect(await Promise.all([...early, ...late])).toEqual(['old', 'old', 'old', 'new', 'new']);
});
