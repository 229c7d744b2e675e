import { describe, expect, test } from 'vitest';
import { failureOf, fakeCall, fakePrincipal, fakeResult, promised, staged } from '../../test/fakes/policy-call.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { randomInt, seededRandom } from '../kernel/random.js';
import { CallSlots, concurrency, defaultConcurrencyPlan } from './concurrency.js';
import { type Call, type Done, embedder } from './operation.js';

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

/** A server that answers when the test says so. */
function setUp(runningMax: number, waitingMax: number) {
  const clock = new FakeClock();
  const slots = new CallSlots(clock, { runningMax, waitingMax, waitMsMax: 60_000 });
  const started: Call[] = [];
  const open: Done[] = [];
  const send = promised(
    staged(concurrency(() => slots))((call, done) => {
      started.push(call);
      open.push(done);
    }),
  );
  const from = (id: string, part: Partial<Call> = {}) => send(fakeCall({ principal: fakePrincipal(id), ...part }));
  const finish = async () => {
    open.shift()?.(fakeResult());
    await settle();
  };
  return { clock, slots, started, open, send, from, finish };
}

const callers = (started: readonly Call[]) => started.map(({ principal }) => principal.id);
const counts = ({ running, waiting }: CallSlots) => ({ running, waiting });

test('as many calls run as there are slots, the next ones wait, and further ones are refused', async () => {
  const { slots, started, from, finish } = setUp(2, 1);
  const first = [from('a'), from('a'), from('a')];
  const error = await failureOf(from('a'));
  expect([error.code, error.retryable]).toEqual(['overloaded', true]);
  expect(error.message).toBe("server 'github': 2 calls run and 1 wait already");
  expect(error.details).toMatchObject({ reason: 'queue', execution: 'not_executed', limit: 1 });
  expect([started.length, counts(slots)]).toEqual([2, { running: 2, waiting: 1 }]);
  for (let i = 0; i < 3; i++) await finish();
  await Promise.all(first);
  expect(counts(slots)).toEqual({ running: 0, waiting: 0 });
});

test('the default is 64 running and 1,024 waiting', () => {
  expect(defaultConcurrencyPlan).toEqual({ runningMax: 64, waitingMax: 1_024, waitMsMax: 60_000 });
});

test('a failed call releases its slot', async () => {
  const { slots, open, started, from } = setUp(1, 1);
  const failing = from('a');
  const waiting = from('b');
  open.shift()?.(new Error('broken'));
  await expect(failing).rejects.toThrow('broken');
  expect([callers(started), counts(slots)]).toEqual([['a', 'b'], { running: 1, waiting: 0 }]);
  open.shift()?.(fakeResult());
  await waiting;
});

describe('K8 a flood', () => {
  const nine = Array.from({ length: 9 }, (_, i) => `p${i}`);

  test('of one principal does not delay the turns of nine others', async () => {
    const { started, from, finish } = setUp(1, 1_024);
    const all = [...Array.from({ length: 900 }, () => from('flood'))];
    for (const id of nine) for (let i = 0; i < 10; i++) all.push(from(id));
    for (let i = 0; i < 100; i++) await finish();
    // One call of the flood was running already; then ten rounds of ten follow, each with all principals.
    const order = callers(started).slice(1, 101);
    for (let round = 0; round < 10; round++) {
      expect(new Set(order.slice(round * 10, round * 10 + 10)).size).toBe(10);
    }
    for (let i = 0; i < 890; i++) await finish();
    await Promise.all(all);
  });

  test('D-44 of ten thousand calls does not keep another principal out of a full queue', async () => {
    const { clock, slots, started, from, finish } = setUp(4, 100);
    const flood = Array.from({ length: 10_000 }, () => from('flood').catch((error: unknown) => error));
    expect(counts(slots)).toEqual({ running: 4, waiting: 100 });
    const other = from('other');
    expect(counts(slots)).toEqual({ running: 4, waiting: 100 });
    await finish();
    await finish();
    expect(callers(started).slice(4)).toContain('other');
    for (let i = 0; i < 110; i++) await finish();
    expect((await other).run).toBe(1);
    clock.advance(1_000);
    const refused = (await Promise.all(flood)).filter((outcome) => outcome instanceof Error);
    expect(refused).toHaveLength(10_000 - 4 - 100 + 1);
  });
});

describe('a call that waits', () => {
  test('ends unsent at its deadline', async () => {
    const { clock, slots, started, from } = setUp(1, 10);
    void from('a');
    const waiting = failureOf(from('b', { deadlineAtMs: 100 }));
    clock.advance(100);
    const error = await waiting;
    expect([error.code, error.retryable]).toEqual(['timeout', true]);
    expect(error.details).toMatchObject({ server: 'github', execution: 'not_executed', reason: 'queue' });
    expect([started.length, counts(slots), clock.pendingTimers]).toEqual([1, { running: 1, waiting: 0 }, 0]);
  });

  test('ends after a minute in the queue, even if its deadline is later', async () => {
    const { clock, from } = setUp(1, 10);
    void from('a');
    const waiting = failureOf(from('b'));
    clock.advance(60_000);
    expect((await waiting).details).toMatchObject({ reason: 'queue', execution: 'not_executed' });
  });

  test('ends unsent when its caller leaves', async () => {
    const { clock, slots, started, from } = setUp(1, 10);
    void from('a');
    const controller = new AbortController();
    const waiting = failureOf(from('b', { signal: controller.signal }));
    controller.abort();
    const error = await waiting;
    expect([error.code, error.details.execution]).toEqual(['cancelled', 'not_executed']);
    expect([started.length, counts(slots), clock.pendingTimers]).toEqual([1, { running: 1, waiting: 0 }, 0]);
  });

  test('is sent in the tick in which it gets its slot: no caller can leave in between', async () => {
    const { slots, started, open, from } = setUp(1, 10);
    const calls = [from('a'), from('b')];
    open.shift()?.(fakeResult());
    expect([callers(started), counts(slots)]).toEqual([['a', 'b'], { running: 1, waiting: 0 }]);
    open.shift()?.(fakeResult());
    await Promise.all(calls);
  });

  test('and a thousand like it that fail at once end one after another, not nested', async () => {
    const slots = new CallSlots(new FakeClock(), { runningMax: 1, waitingMax: 1_024, waitMsMax: 60_000 });
    let depth = 0;
    let deepest = 0;
    let first: Done = () => {};
    const stage = concurrency(() => slots);
    const isFirst = fakeCall({ principal: fakePrincipal('first') });
    const send = promised(
      staged(stage)((call, done) => {
        if (call === isFirst) {
          first = done;
          return;
        }
        deepest = Math.max(deepest, ++depth);
        done(new Error('gone'));
        depth--;
      }),
    );
    const calls = [isFirst, ...Array.from({ length: 1_000 }, () => fakeCall())].map((call) => send(call));
    first(fakeResult());
    const outcomes = await Promise.allSettled(calls);
    expect(outcomes.filter(({ status }) => status === 'rejected')).toHaveLength(1_000);
    expect([deepest, counts(slots)]).toEqual([1, { running: 0, waiting: 0 }]);
  });

  test('is not sent after its deadline, even if the timer is late', async () => {
    const clock = new FakeClock();
    const late = { nowMs: () => clock.nowMs(), date: () => clock.date(), at: () => () => undefined };
    const slots = new CallSlots(late, { runningMax: 1, waitingMax: 10, waitMsMax: 60_000 });
    const told: (string | undefined)[] = [];
    for (const deadlineAtMs of [200, 100, 200]) {
      slots.take(fakeCall({ deadlineAtMs }), (refusal) => told.push(refusal?.code));
    }
    clock.advance(100);
    slots.give();
    expect(told).toEqual([undefined, 'timeout', undefined]);
    expect(counts(slots)).toEqual({ running: 1, waiting: 0 });
  });

  test('leaves no timer and no listener behind once it runs', async () => {
    const { clock, from, finish } = setUp(1, 10);
    const controller = new AbortController();
    const both = [from('a'), from('b', { signal: controller.signal, deadlineAtMs: 1_000 })];
    await finish();
    expect(clock.pendingTimers).toBe(0);
    controller.abort();
    await finish();
    expect(await Promise.all(both)).toHaveLength(2);
  });
});

test.each([
  ['timeout', { deadlineAtMs: 0 }],
  ['cancelled', { signal: AbortSignal.abort() }],
] as const)('a call that comes too late is not sent: %s', async (code, part) => {
  const { slots, from } = setUp(1, 1);
  const error = await failureOf(from('a', part));
  expect([error.code, error.details.execution, slots.running]).toEqual([code, 'not_executed', 0]);
});

test('after any mixture of outcomes no call runs or waits, and each call ended once', async () => {
  const random = seededRandom(7);
  const { clock, slots, open, from } = setUp(3, 8);
  let ended = 0;
  let mostRunning = 0;
  const calls: Promise<unknown>[] = [];
  for (let i = 0; i < 3_000; i++) {
    const controller = new AbortController();
    const call = from(`p${randomInt(random, 0, 4)}`, {
      signal: controller.signal,
      deadlineAtMs: clock.nowMs() + randomInt(random, 1, 50),
    });
    calls.push(call.catch(() => undefined).finally(() => ended++));
    if (random() < 0.2) controller.abort();
    if (random() < 0.5) open.shift()?.(fakeResult());
    if (random() < 0.2) open.shift()?.(new Error('broken'));
    if (random() < 0.3) clock.advance(randomInt(random, 0, 20));
    if (random() < 0.3) await settle();
    mostRunning = Math.max(mostRunning, slots.running);
  }
  while (open.length > 0 || slots.waiting > 0) {
    open.shift()?.(fakeResult());
    await settle();
  }
  await Promise.all(calls);
  expect([ended, mostRunning, counts(slots), clock.pendingTimers]).toEqual([3_000, 3, { running: 0, waiting: 0 }, 0]);
});

test('R1 clients of the operator take turns like keys do: relays do not share one turn', async () => {
  const { started, send, finish } = setUp(1, 10);
  const from = (instance: string) => send(fakeCall({ principal: embedder, relay: { instance } as Call['relay'] }));
  const calls = [from('one'), from('one'), from('one'), from('two')];
  for (let i = 0; i < 4; i++) await finish();
  await Promise.all(calls);
  expect(started.map(({ relay }) => relay?.instance)).toEqual(['one', 'one', 'two', 'one']);
});
