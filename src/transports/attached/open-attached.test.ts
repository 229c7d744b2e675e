import { expect, test } from 'vitest';
import { FakeTransport } from '../../../test/fakes/attached-transport.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { openAttached } from './open-attached.js';

function opener(take: () => unknown, hasFactory = true) {
  const clock = new FakeClock();
  const problems: unknown[] = [];
  const deps = { clock, cleanText: (text: string) => text, onProblem: (error: unknown) => void problems.push(error) };
  const abort = new AbortController();
  const spec = { name: 'x', transport: 'attached', hasFactory, take } as const;
  const open = () => openAttached(spec, deps, { deadlineAtMs: clock.nowMs() + 1_000, signal: abort.signal });
  return { open, clock, abort, problems };
}

test('E23 a factory may be async, and is called for every start', async () => {
  let made = 0;
  const { open, clock } = opener(async () => {
    made++;
    return new FakeTransport();
  });
  await Promise.all([open(), open()]);
  expect([made, clock.pendingTimers]).toEqual([2, 0]);
});

test.each([
  ['throws', () => fail()],
  ['rejects', async () => fail()],
])('E23 a factory that %s is a failed start, with its cause', async (_title, take) => {
  const { open, clock } = opener(take);
  await expect(open()).rejects.toMatchObject({
    code: 'connect_failed',
    message: "the factory of server 'x' failed: no database",
    details: { reason: 'factory_failed', execution: 'not_executed' },
    cause: { message: 'no database' },
  });
  expect(clock.pendingTimers).toBe(0);
});

test('E23 a factory that returns an object already in use is a failed start, and the object is not touched', async () => {
  const object = new FakeTransport();
  const { open } = opener(() => object);
  await open();
  await expect(open()).rejects.toMatchObject({ code: 'invalid_spec', details: { reason: 'not_attachable' } });
  expect(object.closes).toBe(0);
});

test('E23 a factory that never resolves is abandoned at the deadline; an object that comes late is closed', async () => {
  const late: Array<(object: unknown) => void> = [];
  const { open, clock, abort } = opener(() => new Promise((resolve) => late.push(resolve)));
  const timedOut = expect(open()).rejects.toMatchObject({ code: 'timeout', details: { reason: 'start_timeout' } });
  await clock.advanceAsync(1_000);
  await timedOut;
  const cancelled = expect(open()).rejects.toMatchObject({ code: 'cancelled' });
  abort.abort();
  await cancelled;
  await expect(open()).rejects.toMatchObject({ code: 'cancelled' });
  const objects = [new FakeTransport(), new FakeTransport()];
  for (const [i, object] of objects.entries()) late[i]?.(object);
  await clock.advanceAsync(0);
  expect([objects.map(({ starts, closes }) => [starts, closes]), clock.pendingTimers]).toEqual([
    [
      [0, 1],
      [0, 1],
    ],
    0,
  ]);
});

test('a late object that another connection uses is not touched; a failed close of a late object is reported', async () => {
  const used = new FakeTransport();
  await opener(() => used).open();
  const stuck = new FakeTransport({
    close: async () => {
      throw new Error('stuck');
    },
  });
  const late: Array<(object: unknown) => void> = [];
  const { open, clock, problems } = opener(() => new Promise((resolve) => late.push(resolve)));
  const starts = [open(), open()].map((start) => expect(start).rejects.toMatchObject({ code: 'timeout' }));
  await clock.advanceAsync(1_000);
  await Promise.all(starts);
  late[0]?.(used);
  late[1]?.(stuck);
  await clock.advanceAsync(0);
  expect([used.closes, problems]).toMatchObject([0, [{ details: { reason: 'close_failed' } }]]);
});

function fail(): never {
  throw new Error('no database');
}
