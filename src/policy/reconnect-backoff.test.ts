import { getEventListeners } from 'node:events';
import { describe, expect, test } from 'vitest';
import { failureOf } from '../../test/fakes/policy-call.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { seededRandom } from '../kernel/random.js';
import { isUnconnected, ReconnectBackoff } from './retry.js';

const unconnected = () =>
  new HostError('connect_failed', 'no connection', { server: 'a', phase: 'queued', execution: 'not_executed' });
const key = {};

/** Repeats `attempt` after a wait while no connection can be opened, as dispatch does. */
async function untilConnected<T>(
  waits: ReconnectBackoff,
  clock: FakeClock,
  { deadlineAtMs, signal }: { deadlineAtMs: number; signal?: AbortSignal | undefined },
  attempt: () => Promise<T>,
): Promise<T> {
  const sinceMs = clock.nowMs();
  for (;;) {
    try {
      const result = await attempt();
      if (waits.size > 0) waits.answered(key);
      return result;
    } catch (error) {
      if (!isUnconnected(error)) throw error;
      await new Promise<void>((resolve, reject) => {
        waits.refused(key, { error, sinceMs, deadlineAtMs, signal }, (end) => (end ? reject(end) : resolve()));
      });
    }
  }
}

/** A server that refuses connections until the test says otherwise, and the requests to it. */
function setUp(random = () => 0.5) {
  const clock = new FakeClock();
  const waits = new ReconnectBackoff(clock, random);
  const world = { isOpen: false, dialsAtMs: [] as number[] };
  const dial = async () => {
    world.dialsAtMs.push(clock.nowMs());
    if (!world.isOpen) throw unconnected();
    return clock.nowMs();
  };
  const ask = (deadlineAtMs = 60_000, signal?: AbortSignal) =>
    untilConnected(waits, clock, { deadlineAtMs, signal }, dial);
  return { clock, waits, world, ask };
}

describe('W19 a server whose connections are refused', () => {
  test('is tried after 0-100 ms, then 100 ms doubling, at most 500 ms apart, for 5 s', async () => {
    const { clock, waits, world, ask } = setUp();
    const asked = failureOf(ask());
    await clock.advanceAsync(4_999);
    const gaps = world.dialsAtMs.slice(1).map((atMs, i) => atMs - (world.dialsAtMs[i] as number));
    expect(gaps.slice(0, 4)).toEqual([50, 150, 300, 375]);
    expect(Math.max(...gaps)).toBeLessThanOrEqual(500);
    expect(world.dialsAtMs).toHaveLength(15);
    await clock.advanceAsync(101);
    expect((await asked).code).toBe('connect_failed');
    expect([waits.size, clock.pendingTimers]).toEqual([0, 0]);
  });

  test('waits a random time within the bounds, as the restarts of a server do', () => {
    const waits = new ReconnectBackoff(new FakeClock(), seededRandom(7));
    const drawn = (nth: number) => Array.from({ length: 200 }, () => waits.backoffMs(nth));
    const bounds = (nth: number) => [Math.floor(Math.min(...drawn(nth)) / 10), Math.ceil(Math.max(...drawn(nth)) / 10)];
    expect([bounds(1), bounds(2), bounds(3), bounds(9)]).toEqual([
      [0, 10],
      [10, 20],
      [20, 40],
      [25, 50],
    ]);
  });

  test.each([60, 1_000, 4_000])('for %d ms only delays its caller', async (awayMs) => {
    const { clock, world, ask } = setUp();
    const asked = ask();
    await clock.advanceAsync(awayMs);
    world.isOpen = true;
    await clock.advanceAsync(500);
    expect(await asked).toBeLessThanOrEqual(awayMs + 500);
  });

  test('is dialled by one of 64 callers at a time, and all are served when it is back', async () => {
    const { clock, waits, world, ask } = setUp();
    const asked = Array.from({ length: 64 }, () => ask());
    await clock.advanceAsync(1_000);
    // Their own 64 dials, and one for each step of the backoff.
    expect(world.dialsAtMs.length).toBe(64 + 4);
    world.isOpen = true;
    await clock.advanceAsync(500);
    const servedAtMs = await Promise.all(asked);
    expect(Math.max(...servedAtMs)).toBeLessThanOrEqual(1_500);
    expect(world.dialsAtMs.length).toBe(64 + 4 + 64);
    await clock.advanceAsync(100);
    expect([waits.size, clock.pendingTimers]).toEqual([0, 0]);
  });

  test('lets the other requests continue once one has connected, before that one is answered', async () => {
    const clock = new FakeClock();
    const waits = new ReconnectBackoff(clock, () => 0.5);
    const told: string[] = [];
    const refused = { error: unconnected(), sinceMs: 0, deadlineAtMs: 60_000, signal: undefined };
    for (const name of ['a', 'b', 'c']) waits.refused(key, refused, () => told.push(`${name} ${clock.nowMs()}`));
    await clock.advanceAsync(149);
    expect(told).toEqual(['a 50']);
    await clock.advanceAsync(1);
    expect([told, waits.size]).toEqual([['a 50', 'b 150', 'c 150'], 0]);
  });

  test.each(['is out of time', 'was cancelled'])(
    'is not dialled by all callers when the caller that dialled %s',
    async (how) => {
      const clock = new FakeClock();
      const waits = new ReconnectBackoff(clock, () => 0.5);
      const told: string[] = [];
      const leaving = new AbortController();
      const refused = { error: unconnected(), sinceMs: 0, deadlineAtMs: 60_000, signal: undefined };
      const first = { ...refused, deadlineAtMs: 101, signal: leaving.signal };
      waits.refused(key, first, () => told.push(`first ${clock.nowMs()}`));
      for (const name of ['a', 'b', 'c']) waits.refused(key, refused, () => told.push(`${name} ${clock.nowMs()}`));
      await clock.advanceAsync(50);
      // The dial of the first caller took a moment, and was refused.
      await clock.advanceAsync(5);
      if (how === 'was cancelled') leaving.abort();
      waits.refused(key, how === 'is out of time' ? { ...first, deadlineAtMs: 105 } : first, (end) =>
        told.push(String(end?.code)),
      );
      const code = how === 'was cancelled' ? 'cancelled' : 'connect_failed';
      expect(told).toEqual(['first 50', code]);
      await clock.advanceAsync(200);
      expect(told).toEqual(['first 50', code, 'a 205']);
    },
  );

  test('is forgotten when the last waiting request has no time left', async () => {
    const clock = new FakeClock();
    const waits = new ReconnectBackoff(clock, () => 0.5);
    const refused = { error: unconnected(), sinceMs: 0, deadlineAtMs: 60_000, signal: undefined };
    waits.refused(key, refused, () => {});
    await clock.advanceAsync(50);
    waits.refused(key, { ...refused, deadlineAtMs: 60 }, () => {});
    expect([waits.size, clock.pendingTimers]).toEqual([0, 0]);
  });

  test('is tried at once, by one waiting request, when it answers another request', () => {
    const clock = new FakeClock();
    const waits = new ReconnectBackoff(clock, () => 0.5);
    const told: string[] = [];
    const refused = { error: unconnected(), sinceMs: 0, deadlineAtMs: 60_000, signal: undefined };
    for (const name of ['a', 'b', 'c']) waits.refused(key, refused, () => told.push(name));
    waits.answered({});
    expect(told).toEqual([]);
    waits.answered(key);
    expect(told).toEqual(['a']);
    waits.answered(key);
    expect([told, waits.size]).toEqual([['a', 'b', 'c'], 0]);
  });
});

describe('W19 the wait ends', () => {
  test('at once when its caller leaves, with nothing sent', async () => {
    const { clock, waits, world, ask } = setUp();
    const leaving = new AbortController();
    const asked = failureOf(ask(60_000, leaving.signal));
    await clock.advanceAsync(10);
    leaving.abort();
    expect((await asked).toJSON()).toMatchObject({ code: 'cancelled', execution: 'not_executed' });
    expect([world.dialsAtMs, waits.size, clock.pendingTimers]).toEqual([[0], 0, 0]);
  });

  test('before the deadline of its caller, with the original failure', async () => {
    const { clock, ask } = setUp();
    const asked = failureOf(ask(1_000));
    await clock.advanceAsync(950);
    expect(isUnconnected(await asked)).toBe(true);
  });

  test('before it begins if there is no time for it', async () => {
    const { clock, world, ask } = setUp();
    expect((await failureOf(ask(50))).code).toBe('connect_failed');
    expect([world.dialsAtMs, clock.pendingTimers]).toEqual([[0], 0]);
  });
});

test('W19 after another failure there is no wait', async () => {
  const { clock, waits } = setUp();
  for (const error of [
    new HostError('transport', 'reset', { execution: 'uncertain' }),
    new HostError('connect_failed', 'no such command', {}),
    new HostError('timeout', 'late', { execution: 'not_executed' }),
  ]) {
    const limits = { deadlineAtMs: 60_000, signal: undefined };
    expect(await failureOf(untilConnected(waits, clock, limits, () => Promise.reject(error)))).toBe(error);
  }
});

test('AC-H21 when a server is stopped, all its requests end in the same tick, and those of other servers continue to wait', () => {
  const { clock, waits } = setUp();
  const other = {};
  const told: string[] = [];
  const wait = (server: object, name: string) => {
    const refused = { error: unconnected(), sinceMs: 0, deadlineAtMs: 60_000, signal: undefined };
    waits.refused(server, refused, (end) => told.push(`${name} ${end?.code}`));
  };
  wait(key, 'a1');
  wait(key, 'a2');
  wait(other, 'b');
  waits.backOff(key, 5, 60_000, undefined, (end) => told.push(`a3 ${end?.code}`));
  waits.end(key, new HostError('server_stopped', 'stopped', { execution: 'not_executed' }));
  expect(told).toEqual(['a1 server_stopped', 'a2 server_stopped', 'a3 server_stopped']);
  clock.advance(200);
  expect(told.slice(3)).toEqual(['b undefined']);
  clock.advance(200);
  expect([waits.size, clock.pendingTimers]).toEqual([0, 0]);
});

describe('when one of several requests leaves', () => {
  /** Three requests to one server whose connections were refused. */
  function waiting() {
    const clock = new FakeClock();
    const waits = new ReconnectBackoff(clock, () => 0.5);
    const told: string[] = [];
    const aborts: AbortController[] = [];
    const wait = (name: string) => {
      const abort = new AbortController();
      aborts.push(abort);
      const refused = { error: unconnected(), sinceMs: 0, deadlineAtMs: 60_000, signal: abort.signal };
      waits.refused(key, refused, (end) => told.push(`${name} ${end?.code ?? 'tries'} at ${clock.nowMs()}`));
    };
    for (const name of ['a', 'b', 'c']) wait(name);
    return { clock, waits, told, aborts, wait };
  }

  test('the others still get their turn', () => {
    const { clock, waits, told, aborts } = waiting();
    aborts[0]?.abort();
    expect([told, waits.size]).toEqual([['a cancelled at 0'], 1]);
    clock.advance(50);
    expect(told.slice(1)).toEqual(['b tries at 50']);
    // While one of them dials, another one leaves: the last one continues when the dial has lasted long enough.
    aborts[2]?.abort();
    clock.advance(100);
    expect(told.slice(2)).toEqual(['c cancelled at 50']);
    expect([waits.size, clock.pendingTimers]).toEqual([0, 0]);
  });

  test('the server is forgotten when the last one has left', () => {
    const { clock, waits, aborts } = waiting();
    for (const abort of aborts) abort.abort();
    expect([waits.size, clock.pendingTimers]).toEqual([0, 0]);
  });

  test('the backoff continues for one that is still dialing', () => {
    const { clock, waits, told, aborts, wait } = waiting();
    clock.advance(50);
    aborts[1]?.abort();
    aborts[2]?.abort();
    expect(waits.size).toBe(1);
    // The dial is refused: this is the second refusal, not the first.
    wait('a');
    clock.advance(149);
    expect(told.slice(3)).toEqual([]);
    clock.advance(1);
    expect(told.slice(3)).toEqual(['a tries at 200']);
  });
});

test.each([
  ['is named if it is known', 'a'],
  ['has an empty name if it is not known', ''],
])('in the error of a cancelled wait, the server %s', (_name, server) => {
  const { waits } = setUp();
  const details = server ? { server } : {};
  const error = new HostError('connect_failed', 'no connection', { ...details, execution: 'not_executed' });
  const told: unknown[] = [];
  const wait = (signal: AbortSignal) =>
    waits.refused(key, { error, sinceMs: 0, deadlineAtMs: 60_000, signal }, (end) => told.push(end?.details.server));
  const leaving = new AbortController();
  wait(leaving.signal);
  leaving.abort();
  wait(AbortSignal.abort());
  expect(told).toEqual([server, server]);
});

describe('the wait before an operation is sent again', () => {
  const stopped = new HostError('server_stopped', 'stopped', { execution: 'not_executed' });

  test('is the backoff, but at most half of the time that is left', () => {
    const { clock, waits } = setUp();
    const told: string[] = [];
    waits.backOff(key, 2, 60_000, undefined, () => told.push(`long ${clock.nowMs()}`));
    waits.backOff(key, 2, 40, undefined, () => told.push(`short ${clock.nowMs()}`));
    clock.advance(1_000);
    expect(told).toEqual(['short 20', 'long 150']);
  });

  test('ends for the others too when the server is stopped after one of them was sent', () => {
    const { clock, waits } = setUp();
    const told: string[] = [];
    waits.backOff(key, 1, 60_000, undefined, (end) => told.push(`a ${end?.code}`));
    waits.backOff(key, 9, 60_000, undefined, (end) => told.push(`b ${end?.code}`));
    clock.advance(50);
    expect(told).toEqual(['a undefined']);
    waits.end(key, stopped);
    expect(told).toEqual(['a undefined', 'b server_stopped']);
    expect(clock.pendingTimers).toBe(0);
  });

  test.each(['it is sent', 'the server is stopped'])(
    'leaves no listener on the signal of its caller when %s',
    (how) => {
      const { clock, waits } = setUp();
      const { signal } = new AbortController();
      waits.backOff(key, 1, 60_000, signal, () => {});
      expect(getEventListeners(signal, 'abort')).toHaveLength(1);
      if (how === 'it is sent') clock.advance(50);
      else waits.end(key, stopped);
      expect(getEventListeners(signal, 'abort')).toHaveLength(0);
    },
  );

  test('ends once, at once, when its caller cancels before or during it', () => {
    const { clock, waits } = setUp();
    const told: string[] = [];
    const leaving = new AbortController();
    waits.backOff(key, 9, 60_000, leaving.signal, (end) => told.push(`during ${end?.code}`));
    leaving.abort();
    waits.backOff(key, 9, 60_000, AbortSignal.abort(), (end) => told.push(`before ${end?.code}`));
    clock.advance(0);
    expect(told).toEqual(['during undefined', 'before undefined']);
    clock.advance(1_000);
    expect([told.length, clock.pendingTimers]).toEqual([2, 0]);
  });
});

test('a server that is stopped is forgotten in the same tick, with the timer of its next attempt', () => {
  const { clock, waits } = setUp();
  const refused = { error: unconnected(), sinceMs: 0, deadlineAtMs: 60_000, signal: undefined };
  waits.refused(key, refused, () => {});
  waits.end(key, new HostError('server_stopped', 'stopped', { execution: 'not_executed' }));
  expect([waits.size, clock.pendingTimers]).toEqual([0, 0]);
});
