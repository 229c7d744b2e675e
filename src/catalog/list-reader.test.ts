import { expect, test } from 'vitest';
import { sleep } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { ServerThrottle } from '../policy/throttles.js';
import type { ListedItem } from '../session/lists.js';
import type { Session } from '../session/session.js';
import { ListReader } from './list-reader.js';

/** `costMs`: how long Hostler takes to process each list. */
function set(lists: (ListedItem[] | HostError)[], costMs: number[] = []) {
  const clock = new FakeClock();
  const learnt: string[] = [];
  const problems: unknown[] = [];
  let reads = 0;
  let begun = 0;
  let closes = 0;
  const session = {
    server: 'a',
    closedBy: undefined,
    list: async () => {
      reads++;
      // A read is reported before the server is asked.
      expect(begun).toBe(reads);
      const next = lists.shift() ?? [];
      if (next instanceof HostError) throw next;
      return { items: next };
    },
    close: async () => {
      closes++;
    },
  } as unknown as Session;
  const onProblem = (error: unknown) => problems.push(error);
  const throttle = new ServerThrottle(clock);
  const reader = new ListReader({
    ...{ clock, session, onProblem, throttle, method: 'tools/list' },
    begin: () => {
      begun++;
      return async ({ items }) => {
        const tookMs = costMs.shift();
        if (tookMs) await sleep(clock, tookMs);
        learnt.push(items.map(({ key }) => key).join());
      };
    },
  });
  const learner = {
    begin: (limits: { deadlineAtMs: number }) => reader.readFirst(limits),
    changed: () => reader.changed(),
  };
  return { clock, learner, reader, throttle, session, learnt, problems, reads: () => reads, closes: () => closes };
}

const tool = (key: string): ListedItem => ({ key, raw: Buffer.from('{}') });

test('the tools are known when the reader has begun', async () => {
  const { learner, learnt } = set([[tool('a'), tool('b')]]);
  await learner.begin({ deadlineAtMs: 1_000 });
  expect(learnt).toEqual(['a,b']);
});

test('a server that cannot list its tools is usable; a lost session is closed', async () => {
  const half = set([new HostError('protocol_error', 'fetch failed', { rpcCode: -32603 })]);
  await half.learner.begin({ deadlineAtMs: 1_000 });
  expect([half.problems.length, half.closes()]).toEqual([1, 0]);
  const lost = set([new HostError('transport', 'gone')]);
  await expect(lost.learner.begin({ deadlineAtMs: 1_000 })).rejects.toMatchObject({ code: 'transport' });
  expect(lost.closes()).toBe(1);
});

test('W11 a server that refuses its first list with 429 is throttled as a whole, and then connected to again', async () => {
  const { learner, throttle, closes } = set([new HostError('overloaded', 'too many', { httpStatus: 429 })]);
  await expect(learner.begin({ deadlineAtMs: 1_000 })).rejects.toMatchObject({
    code: 'overloaded',
    details: { retryAfterMs: 1_000 },
  });
  expect([throttle.leftMs('a'), closes()]).toEqual([1_000, 1]);
});

test('many announcements cause one read, and one more if others arrive during it', async () => {
  const { clock, learner, learnt, reads } = set([[tool('a')], [tool('b')], [tool('c')]]);
  await learner.begin({ deadlineAtMs: 1_000 });
  for (let i = 0; i < 50; i++) learner.changed();
  await clock.advanceAsync(100);
  expect([learnt.at(-1), reads()]).toEqual(['b', 2]);
  learner.changed();
  await clock.advanceAsync(100);
  expect([learnt.at(-1), reads()]).toEqual(['c', 3]);
});

test('a failed read keeps the known list, and the next announcement causes another read', async () => {
  const { clock, learner, learnt, problems } = set([[tool('a')], new HostError('timeout', 'late'), [tool('b')]]);
  await learner.begin({ deadlineAtMs: 1_000 });
  learner.changed();
  await clock.advanceAsync(100);
  expect([learnt, problems.length]).toEqual([['a'], 1]);
  learner.changed();
  await clock.advanceAsync(1_000);
  expect(learnt).toEqual(['a', 'b']);
});

test('W29 a list that fails and is announced all the time is read once a second', async () => {
  const { clock, learner, session, reads } = set([[tool('a')]]);
  await learner.begin({ deadlineAtMs: 1_000 });
  const list = session.list.bind(session);
  session.list = async (...args) => {
    await list(...args);
    learner.changed();
    throw new HostError('timeout', 'late');
  };
  for (let ms = 0; ms < 30_000; ms += 50) {
    learner.changed();
    await clock.advanceAsync(50);
  }
  expect(reads()).toBeGreaterThan(20);
  expect(reads()).toBeLessThanOrEqual(32);
});

/** Records the time at which `promise` resolves. */
function resolvedAt(clock: FakeClock, promise: Promise<void> | undefined): { ms?: number } {
  const at: { ms?: number } = {};
  void promise?.then(() => {
    at.ms = clock.nowMs();
  });
  return at;
}

/** Records the time until which calls are held. */
function heldUntil(clock: FakeClock, awaited: () => Promise<void> | undefined): { ms?: number } {
  const at: { ms?: number } = {};
  const wait = async () => {
    for (let next = awaited(); next; next = awaited()) await next;
    at.ms = clock.nowMs();
  };
  void wait();
  return at;
}

test('W28 two renewals during one read wait for the read that follows it', async () => {
  const { clock, reader, learnt } = set([[tool('old')], [tool('new')]], [50, 50]);
  void reader.read();
  await clock.advanceAsync(10);
  const known = [heldUntil(clock, reader.readAgain()), heldUntil(clock, reader.readAgain())];
  await clock.advanceAsync(1_000);
  expect([known, learnt]).toEqual([
    [{ ms: 100 }, { ms: 100 }],
    ['old', 'new'],
  ]);
});

test('W28 a renewal during the first read is followed by a read at once, however long the first one took', async () => {
  const { clock, learner, reader, learnt } = set([[tool('old')], [tool('new')]], [4_000, 50]);
  void learner.begin({ deadlineAtMs: 30_000 });
  await clock.advanceAsync(10);
  const known = heldUntil(clock, reader.readAgain());
  await clock.advanceAsync(4_100);
  expect([known, learnt]).toEqual([{ ms: 4_050 }, ['old', 'new']]);
});

test('W28 the tools of a throttled server are awaited until they were read', async () => {
  const { clock, reader, throttle, learnt } = set([[tool('new')]], [50]);
  throttle.failed('a', new HostError('overloaded', 'later', { httpStatus: 429, retryAfterMs: 20_000 }));
  const known = heldUntil(clock, reader.readAgain());
  await clock.advanceAsync(30_000);
  expect([known, learnt]).toEqual([{ ms: 20_050 }, ['new']]);
});

test('W28 a slow read holds calls back for 5 s', async () => {
  const { clock, reader } = set([[tool('old')], [tool('new')]], [20_000]);
  const known = heldUntil(clock, reader.readAgain());
  await clock.advanceAsync(30_000);
  expect(known).toEqual({ ms: 5_000 });
});

test('W28 the end of the session refuses the held calls, and later calls are not held', async () => {
  const { reader } = set([[tool('old')], [tool('new')]], [9_000]);
  void reader.read();
  const awaited = reader.readAgain();
  const held = expect(awaited()).rejects.toMatchObject({ code: 'transport', details: { execution: 'not_executed' } });
  reader.stop();
  await held;
  expect(awaited()).toBeUndefined();
});

const throttled = () => new HostError('overloaded', 'later', { httpStatus: 429, retryAfterMs: 20_000 });

test('W28 if the read itself is throttled, calls are held until the tools have been read after the throttle', async () => {
  const { clock, reader, learnt, problems } = set([throttled(), throttled(), [tool('new')]], [50]);
  const awaited = reader.readAgain();
  const woken = resolvedAt(clock, awaited());
  const held = heldUntil(clock, awaited);
  await clock.advanceAsync(19_999);
  // Calls that wait are woken when the throttle begins: they are refused.
  expect([woken, held, learnt]).toEqual([{ ms: 0 }, {}, []]);
  await clock.advanceAsync(30_000);
  expect([held, learnt, problems.length]).toEqual([{ ms: 40_050 }, ['new'], 1]);
});

test('W28 a throttle that another request causes during the read holds calls back in the same way', async () => {
  const { clock, reader, throttle, session, learnt } = set([new HostError('transport', 'reset'), [tool('new')]]);
  const list = session.list.bind(session);
  session.list = async (...args) => {
    if (clock.nowMs() === 0) await sleep(clock, 6_000);
    return list(...args);
  };
  const held = heldUntil(clock, reader.readAgain());
  throttle.failed('a', throttled());
  await clock.advanceAsync(30_000);
  expect([held, learnt]).toEqual([{ ms: 20_000 }, ['new']]);
});

test('W28 if a server answers every list with 429, calls are sent after the third', async () => {
  const { clock, reader, reads } = set([throttled(), throttled(), throttled(), throttled()]);
  const held = heldUntil(clock, reader.readAgain());
  await clock.advanceAsync(40_000);
  expect([held, reads()]).toEqual([{ ms: 40_000 }, 3]);
  expect(clock.pendingTimers).toBe(1);
});

test('W28 a second renewal gives up the read that hangs in the old session, and holds calls for 5 s again', async () => {
  const { clock, reader, session, learnt, problems } = set([]);
  let asked = 0;
  session.list = (_method, { signal }) => {
    asked++;
    return new Promise((resolve, reject) => {
      if (asked === 3) resolve({ items: [tool('new')], pages: 1, ttlMs: 0, cacheScope: 'private' });
      signal?.addEventListener('abort', () => reject(new HostError('cancelled', 'given up')));
    });
  };
  expect(heldUntil(clock, reader.readAgain())).toEqual({});
  await clock.advanceAsync(5_500);
  // The first read still hangs, and calls are not held for it any more.
  const second = heldUntil(clock, reader.readAgain());
  await clock.advanceAsync(4_999);
  expect([second, asked]).toEqual([{}, 2]);
  const third = heldUntil(clock, reader.readAgain());
  await clock.advanceAsync(0);
  expect([third.ms, asked, learnt, problems.length]).toEqual([10_499, 3, ['new'], 0]);
});

test('W29 a read that failed is repeated until it succeeds, and its failure is reported once', async () => {
  const away = () => new HostError('transport', 'bad gateway', { httpStatus: 502 });
  const { clock, learner, learnt, problems, reads } = set([[tool('a')], away(), away(), away(), [tool('b')]]);
  await learner.begin({ deadlineAtMs: 1_000 });
  learner.changed();
  await clock.advanceAsync(100);
  for (const [i, ms] of [1_000, 2_000, 4_000].entries()) {
    await clock.advanceAsync(ms - 1);
    expect(reads()).toBe(2 + i);
    await clock.advanceAsync(1);
    expect(reads()).toBe(3 + i);
  }
  expect([learnt, problems.length]).toEqual([['a', 'b'], 1]);
  await clock.advanceAsync(600_000);
  expect(reads()).toBe(5);
});

test.each([
  ['a list that is too large', 'protocol_error', { reason: 'items' }, false],
  ['an oversized answer', 'result_too_large', {}, false],
  ['invalid params', 'protocol_error', { rpcCode: -32602 }, false],
  ['an internal error', 'protocol_error', { rpcCode: -32603 }, true],
  ['a page of a proxy', 'protocol_error', { reason: 'content_type' }, true],
  ['a 404 of a proxy', 'protocol_error', { httpStatus: 404 }, true],
  ['a timeout', 'timeout', {}, true],
] as const)(
  'W29 the first tools, and later ones, are read again only after a failure that may be temporary: %s',
  async (_what, code, details, isAgain) => {
    const failure = () => new HostError(code, 'no', details);
    const later = set([[tool('a')], failure(), [tool('b')]]);
    await later.learner.begin({ deadlineAtMs: 1_000 });
    later.learner.changed();
    await later.clock.advanceAsync(600_000);
    expect(later.learnt).toEqual(isAgain ? ['a', 'b'] : ['a']);
    if (code !== 'protocol_error') return;
    const first = set([failure(), [tool('b')]]);
    await first.learner.begin({ deadlineAtMs: 1_000 });
    await first.clock.advanceAsync(600_000);
    expect(first.learnt).toEqual(isAgain ? ['b'] : []);
  },
);

test.each([
  ['ten times the duration of the last read', 30, 300],
  ['at least the time in which changes settle', 5, 100],
  ['a minute, at most', 20_000, 60_000],
])('X18 however often changes are announced, the next read waits %s', async (_what, tookMs, restMs) => {
  const { clock, learner, reads, learnt } = set([[tool('a')], [tool('b')], [tool('c')]], [tookMs, tookMs]);
  const begun = learner.begin({ deadlineAtMs: 100_000 });
  await clock.advanceAsync(tookMs);
  await begun;
  for (const round of [1, 2]) {
    for (let i = 0; i < 50; i++) learner.changed();
    await clock.advanceAsync(restMs - 1);
    expect(reads()).toBe(round);
    learner.changed();
    await clock.advanceAsync(1);
    expect(reads()).toBe(round + 1);
    await clock.advanceAsync(tookMs);
  }
  expect(learnt).toEqual(['a', 'b', 'c']);
});

test('W28 a list that was not answered is read again after the backoff, without the pause of a long read', async () => {
  const { clock, learner, session } = set([[tool('a')]]);
  await learner.begin({ deadlineAtMs: 1_000 });
  let tries = 0;
  session.list = async () => {
    tries++;
    await sleep(clock, 30_000);
    throw new HostError('timeout', 'no answer');
  };
  learner.changed();
  await clock.advanceAsync(100 + 30_000 + 1_000);
  expect(tries).toBe(2);
});

test('X18 a failed read counts towards the pause like any other', async () => {
  const { clock, learner, session, reads } = set([[tool('a')], [tool('b')], [tool('c')]]);
  await learner.begin({ deadlineAtMs: 1_000 });
  session.list = async () => {
    await sleep(clock, 50);
    throw new HostError('protocol_error', 'too large');
  };
  learner.changed();
  await clock.advanceAsync(150);
  session.list = async () => ({ items: [tool('late')], pages: 1, ttlMs: 0, cacheScope: 'private' });
  let isRead = false;
  const { list } = session;
  session.list = (...args) => {
    isRead = true;
    return list(...args);
  };
  learner.changed();
  await clock.advanceAsync(499);
  expect(isRead).toBe(false);
  await clock.advanceAsync(1);
  expect([isRead, reads()]).toEqual([true, 1]);
});

test('W28 the end of the session gives up a list that is being read, without a report', async () => {
  const { clock, reader, session, problems, reads } = set([]);
  const list = session.list.bind(session);
  let given: string | undefined;
  session.list = (method, options) => {
    options.signal?.addEventListener('abort', () => {
      given = 'up';
    });
    return list(method, options).then(() => {
      if (given) throw new HostError('cancelled', 'given up');
      return sleep(clock, 60_000).then(() => list(method, options));
    });
  };
  void reader.read();
  reader.stop();
  expect(given).toBe('up');
  await clock.advanceAsync(120_000);
  expect([problems, reads()]).toEqual([[], 1]);
});
