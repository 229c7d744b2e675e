/**
 * The contract of a log of calls, as a table of checks. Each check gets a new store and throws if the log is wrong.
 * Not here: the logs (call-log.test.ts).
 */
import { expect } from 'vitest';
import type { CallId, CallLog, CallOutcome, CallRow, NewCall } from '../../../src/broker/calls/call-log.js';
import { brokerLimits } from '../../../src/broker/protocol/limits.js';
import { readReplyBody } from '../../../src/broker/protocol/reply-body.js';
import type { HostError } from '../../../src/kernel/errors.js';
import type { FakeClock } from '../../../src/kernel/fake-clock.js';
import { eventually } from '../../eventually.js';

export interface StoreUnderTest {
  readonly clock: FakeClock;
  /** Several hosts share the store. Each host counts only the rows that it knows. */
  readonly isShared?: boolean;
  /** A new start cannot know whether its rows are an older copy. */
  readonly mayBeOlder?: boolean;
  /** Opens the log, as a start of a host does. */
  open(): Promise<CallLog>;
  /** Ends the host, cleanly or not. The store remains. */
  end(log: CallLog): Promise<void>;
  /** Replaces the store with an empty one at the same place. */
  wipe(): Promise<void>;
  close(): Promise<void>;
}

export type Check = (store: StoreUnderTest) => Promise<void>;

export const idOf = (key: string, worker = 'w1', epoch = 'e1'): CallId => ({ worker, epoch, key });
const MiB = 1024 * 1024;

export const newCall = (key: string, more: Partial<NewCall> = {}): NewCall => ({
  ...{ id: idOf(key), digest: 'd1', isCallersKey: false, deadlineMs: 60_000, state: 'running' },
  ...more,
});

export const outcome = (reply: string | Buffer, more: Partial<CallOutcome> = {}): CallOutcome => ({
  ...{ state: 'done', reply: Buffer.from(reply), isCallersKey: false, deadlineMs: 60_000 },
  ...more,
});

const shown = (row: CallRow | undefined | 'begun') => {
  if (row === undefined || row === 'begun') throw new Error(`no row but ${row}`);
  return { state: row.state, attempts: row.attempts, reply: row.reply?.toString() };
};

/** Receives a call and finishes it. */
export async function done(log: CallLog, key: string, reply: string | Buffer, more: Partial<NewCall> = {}) {
  const call = newCall(key, more);
  await log.receive(call);
  return log.finish(call.id, log.owner, outcome(reply, { isCallersKey: call.isCallersKey }));
}

/** Acknowledged rows are removed in batches, some time later on the clock of the log. */
const removed = (store: StoreUnderTest, log: CallLog, key: string) =>
  eventually(`${key} is removed`, async () => {
    store.clock.advance(1_000);
    return (await log.find(idOf(key))) === undefined;
  });

export const checks: Readonly<Record<string, Check>> = {
  'a new key is inserted, and a known one returned': async (store) => {
    const log = await store.open();
    const first = await log.receive(newCall('k1', { state: 'received' }));
    expect(first).toMatchObject({
      isNew: true,
      row: { state: 'received', owner: log.owner, digest: 'd1', attempts: 0 },
    });
    const second = await log.receive(newCall('k1', { digest: 'd2' }));
    expect(second).toMatchObject({
      isNew: false,
      row: { state: 'received', digest: 'd1', version: first.row.version },
    });
    expect(await log.receive(newCall('k2'))).toMatchObject({ isNew: true, row: { state: 'running', attempts: 1 } });
  },

  'if two hosts receive one key at once, it is new for one of them': async (store) => {
    const log = await store.open();
    const both = await Promise.all([log.receive(newCall('k1')), log.receive(newCall('k1'))]);
    expect(both.map(({ isNew }) => isNew).sort()).toEqual([false, true]);
  },

  'another epoch or worker is another key': async (store) => {
    const log = await store.open();
    await done(log, 'k1', '{"old":1}');
    expect(await log.find(idOf('k1', 'w1', 'e2'))).toBeUndefined();
    expect(await log.find(idOf('k1', 'w2', 'e1'))).toBeUndefined();
    expect((await log.receive(newCall('k1', { id: idOf('k1', 'w1', 'e2') }))).isNew).toBe(true);
  },

  'a version is begun once': async (store) => {
    const log = await store.open();
    const { row } = await log.receive(newCall('k1', { state: 'received' }));
    const both = await Promise.all([log.begin(idOf('k1'), row.version), log.begin(idOf('k1'), row.version)]);
    expect(both.filter((each) => each === 'begun')).toHaveLength(1);
    expect(both.find((each) => each !== 'begun')).toMatchObject({ state: 'running', attempts: 1 });
    expect(await log.begin(idOf('k1'), row.version)).toMatchObject({ state: 'running', attempts: 1 });
  },

  'a row with an outcome is not begun, nor is a removed row': async (store) => {
    const log = await store.open();
    const row = await done(log, 'k1', '{"n":1}');
    expect(shown(await log.begin(idOf('k1'), row?.version ?? 0))).toMatchObject({ state: 'done', reply: '{"n":1}' });
    expect(await log.begin(idOf('none'), 1)).toBeUndefined();
  },

  'the first outcome stays': async (store) => {
    const log = await store.open();
    await log.receive(newCall('k1'));
    const [first, second] = await Promise.all([
      log.finish(idOf('k1'), log.owner, outcome('{"n":1}')),
      log.finish(idOf('k1'), log.owner, outcome('{"n":2}', { state: 'uncertain' })),
    ]);
    const stays = shown(await log.find(idOf('k1')));
    expect(['{"n":1}', '{"n":2}']).toContain(stays.reply);
    expect([shown(first).reply, shown(second).reply]).toEqual([stays.reply, stays.reply]);
    const third = await log.finish(idOf('k1'), log.owner, outcome('{"n":3}'));
    expect(shown(third)).toEqual(stays);
    expect(await log.finish(idOf('none'), log.owner, outcome('{}'))).toBeUndefined();
  },

  'a host that does not own a row cannot write its outcome': async (store) => {
    const before = await store.open();
    await before.receive(newCall('k1'));
    const { owner } = before;
    await store.end(before);
    const log = await store.open();
    const { row } = await log.receive(newCall('k1'));
    expect(row).toMatchObject({ state: 'running', owner, attempts: 1 });
    expect(await log.begin(idOf('k1'), row.version)).toBe('begun');
    expect(await log.finish(idOf('k1'), owner, outcome('{"n":1}'))).toMatchObject({
      state: 'running',
      owner: log.owner,
    });
    expect(shown(await log.finish(idOf('k1'), log.owner, outcome('{"n":2}')))).toMatchObject({ reply: '{"n":2}' });
    expect(shown(await log.find(idOf('k1')))).toEqual({ state: 'done', attempts: 2, reply: '{"n":2}' });
  },

  "B9 a reply to a caller's key without room goes to its caller, and is not stored": async (store) => {
    // The buckets of a NATS server have other sizes.
    if (store.isShared) return;
    const log = await store.open();
    const part = Buffer.alloc(brokerLimits.callersKeyBytes / 4, 32);
    for (const worker of ['w1', 'w2', 'w3', 'w4'])
      await done(log, 'full', part, { id: idOf('full', worker), isCallersKey: true });
    expect(log.refusal('w5', true)).toMatchObject({ details: { reason: 'all_keys' } });
    const call = newCall('late', { id: idOf('late', 'w5'), isCallersKey: true });
    await log.receive(call);
    const reply = '{"era":"legacy","result":{}}';
    expect(shown(await log.finish(call.id, log.owner, outcome(reply, { isCallersKey: true })))).toMatchObject({
      reply,
    });
    const kept = await log.find(call.id);
    expect(kept?.state).toBe('done');
    expect(readReplyBody(kept?.reply as Buffer)).toMatchObject({ error: { details: { reason: 'not_kept' } } });
  },

  'rows survive the host, and their owner counts as gone': async (store) => {
    const before = await store.open();
    await before.receive(newCall('k1', { state: 'received' }));
    await done(before, 'k2', '{"n":2}');
    await before.receive(newCall('k3', { state: 'refused', reply: Buffer.from('{"no":1}') }));
    expect(await before.isGone(before.owner)).toBe(false);
    await store.end(before);
    const log = await store.open();
    expect(log.owner).not.toBe(before.owner);
    expect([await log.isGone(before.owner), await log.isGone(log.owner)]).toEqual([true, false]);
    // The file may be an older copy, in which a call is received that has begun since then.
    const state = store.mayBeOlder ? 'running' : 'received';
    expect(shown(await log.find(idOf('k1')))).toMatchObject({ state });
    expect(shown(await log.find(idOf('k2')))).toMatchObject({ state: 'done', reply: '{"n":2}' });
    expect(shown(await log.find(idOf('k3')))).toMatchObject({ state: 'refused', reply: '{"no":1}' });
    if (!store.isShared) expect(log.usage()).toMatchObject({ open: 1, finished: 2 });
    const row = await log.finish(idOf('k1'), before.owner, outcome('{"u":1}', { state: 'uncertain' }));
    expect(shown(row)).toMatchObject({ state: 'uncertain', reply: '{"u":1}' });
  },

  'a store without the rows has another id': async (store) => {
    const before = await store.open();
    const { storeId } = before;
    await done(before, 'k1', '{"n":1}');
    await store.end(before);
    await store.wipe();
    const log = await store.open();
    expect(log.storeId).not.toBe(storeId);
    expect(await log.find(idOf('k1'))).toBeUndefined();
  },

  "an acknowledged reply is removed, but neither a caller's key nor an open call": async (store) => {
    const log = await store.open();
    await done(log, 'k1', '{"n":1}');
    await done(log, 'own', '{"n":2}', { isCallersKey: true });
    await log.receive(newCall('open'));
    for (const key of ['k1', 'own', 'open', 'none']) log.acknowledge(idOf(key));
    await removed(store, log, 'k1');
    expect(shown(await log.find(idOf('own')))).toMatchObject({ state: 'done', reply: '{"n":2}' });
    expect(shown(await log.find(idOf('open')))).toMatchObject({ state: 'running' });
    expect(log.usage()).toEqual({ open: 1, finished: 1, replyBytes: 0, callersKeys: 1 });
  },

  'a call that is sent again before its reply is acknowledged is known, also in the same turn': async (store) => {
    const log = await store.open();
    await done(log, 'k1', '{"n":1}');
    const again = log.receive(newCall('k1'));
    log.acknowledge(idOf('k1'));
    expect(await again).toMatchObject({ isNew: false, row: { state: 'done' } });
  },

  "a refused caller's key is removed when acknowledged, because it did not run": async (store) => {
    const log = await store.open();
    const isCallersKey = true;
    await log.receive(newCall('own', { isCallersKey }));
    await log.finish(idOf('own'), log.owner, outcome('{"no":1}', { isCallersKey, state: 'refused' }));
    log.acknowledge(idOf('own'));
    await removed(store, log, 'own');
    expect(log.usage()).toMatchObject({ finished: 0, callersKeys: 0 });
  },

  'a purge removes waiting and finished calls; running calls end without a reply': async (store) => {
    const log = await store.open();
    await log.receive(newCall('waits', { state: 'received' }));
    await log.receive(newCall('runs'));
    await done(log, 'ended', '{"n":1}');
    await done(log, 'own', '{"n":1}', { isCallersKey: true });
    await done(log, 'kept', '{"n":2}', { id: idOf('kept', 'w1', 'e2') });
    await done(log, 'other', '{"n":3}', { id: idOf('other', 'w2') });
    await log.purge('w1', ['e2']);
    for (const key of ['waits', 'ended', 'own']) expect(await log.find(idOf(key))).toBeUndefined();
    expect(shown(await log.find(idOf('kept', 'w1', 'e2')))).toMatchObject({ reply: '{"n":2}' });
    expect(shown(await log.find(idOf('other', 'w2')))).toMatchObject({ reply: '{"n":3}' });
    const row = await log.finish(idOf('runs'), log.owner, outcome('{"secret":1}'));
    expect(row?.reply).toBeUndefined();
    expect((await log.find(idOf('runs')))?.reply).toBeUndefined();
    await log.purge('w1');
    expect(await log.find(idOf('kept', 'w1', 'e2'))).toBeUndefined();
  },

  'a purged call that has run is not new when its worker is listed again': async (store) => {
    const log = await store.open();
    await done(log, 'k1', '{"n":1}');
    await done(log, 'own', '{"n":1}', { isCallersKey: true });
    await log.purge('w1');
    expect(log.usage()).toMatchObject({ finished: 0, replyBytes: 0 });
    expect(await log.receive(newCall('k1'))).toMatchObject({ isNew: false, row: { state: 'done', reply: undefined } });
    expect((await log.receive(newCall('own', { isCallersKey: true }))).isNew).toBe(false);
  },

  'a jump of the wall clock, or sleep of the machine, removes no row': async (store) => {
    const log = await store.open();
    await done(log, 'k1', '{"n":1}');
    await done(log, 'own', '{"n":1}', { isCallersKey: true });
    store.clock.jumpWall(2 * brokerLimits.callersKeyMs);
    store.clock.sleep(2 * brokerLimits.callersKeyMs);
    for (let minutes = 0; minutes < 3; minutes++) {
      await store.clock.advanceAsync(30_001);
      expect((await log.receive(newCall('k1'))).isNew).toBe(false);
      expect((await log.receive(newCall('own', { isCallersKey: true }))).isNew).toBe(false);
    }
  },

  'a call whose outcome could not be written does not count for ever': async (store) => {
    const log = await store.open();
    await log.receive(newCall('lost'));
    await store.clock.advanceAsync(60_000 + brokerLimits.unackedMs);
    await eventually('it is removed', async () => {
      await store.clock.advanceAsync(30_001);
      return log.refusal('w1', false) === undefined && log.usage().open === 0;
    });
  },

  'AC-BR7: a worker with 256 unacknowledged calls is refused, others are not': async (store) => {
    const log = await store.open();
    const keys = Array.from({ length: brokerLimits.callsPerWorker }, (_, at) => `k${at}`);
    expect(log.refusal('w1', false)).toBeUndefined();
    const received = keys.map((key) => log.receive(newCall(key)));
    // The refusal is immediate, not only after the rows are durable.
    const refusal = log.refusal('w1', false);
    expect(refusal).toMatchObject({ code: 'overloaded', details: { execution: 'not_executed' } });
    expect(refusal?.details.retryAfterMs).toBeGreaterThan(0);
    expect(log.refusal('w2', false)).toBeUndefined();
    await Promise.all(received);
    expect(log.refusal('w1', false)).toBeDefined();
    expect(log.usage()).toMatchObject({ open: 256, finished: 0 });
    await log.finish(idOf('k0'), log.owner, outcome('{}'));
    expect(log.refusal('w1', false)).toBeDefined();
    log.acknowledge(idOf('k0'));
    await removed(store, log, 'k0');
    expect(log.refusal('w1', false)).toBeUndefined();
  },

  'AC-BR7: a worker that acknowledges may retry in 1 s; otherwise when its unacknowledged replies expire': async (
    store,
  ) => {
    const log = await store.open();
    for (let at = 0; at < brokerLimits.callsPerWorker; at++) await done(log, `k${at}`, '{}');
    const retryAfterMs = () => log.refusal('w1', false)?.details.retryAfterMs;
    expect(retryAfterMs()).toBe(1_000);
    await store.clock.advanceAsync(60_000);
    const toldMs = retryAfterMs() ?? 0;
    // The calls arrived a minute ago, and expire ten minutes after their deadlines.
    expect(toldMs).toBeGreaterThan(brokerLimits.unackedMs - 1_000);
    expect(toldMs).toBeLessThanOrEqual(brokerLimits.unackedMs);
    await store.clock.advanceAsync(toldMs - 2_000);
    await eventually('a shorter time', () => (retryAfterMs() ?? Number.POSITIVE_INFINITY) <= 2_000);
    await eventually('room after that time', async () => {
      await store.clock.advanceAsync(1_000);
      return retryAfterMs() === undefined;
    });
  },

  "a reply to a caller's key beyond the bound of its worker goes to its caller and is not stored": async (store) => {
    const log = await store.open();
    const own = { isCallersKey: true };
    for (let at = 0; at < 6; at++) await done(log, `own${at}`, Buffer.alloc(4 * MiB - 1_000, 1), own);
    expect(log.refusal('w1', true)).toBeUndefined();
    expect((await done(log, 'more', Buffer.alloc(MiB, 1), own))?.reply).toHaveLength(MiB);
    const { error } = readReplyBody((await log.find(idOf('more')))?.reply as Buffer) as { error: HostError };
    expect(error).toMatchObject({ code: 'result_too_large', details: { reason: 'not_kept' } });
    const others = { ...own, id: idOf('theirs', 'w2') };
    await done(log, 'theirs', Buffer.alloc(MiB, 1), others);
    expect((await log.find(others.id))?.reply).toHaveLength(MiB);
  },

  'a reply without room waits until others are acknowledged': async (store) => {
    const log = await store.open();
    const keys = await fill(log);
    expect(log.refusal('w1', false)).toBeUndefined();
    await log.receive(newCall('late'));
    let written: CallRow | undefined;
    const finished = log.finish(idOf('late'), log.owner, outcome(Buffer.alloc(5 * MiB, 1))).then((row) => {
      written = row;
    });
    expect(shown(await log.find(idOf('late')))).toMatchObject({ state: 'running' });
    expect(written).toBeUndefined();
    for (const key of keys) log.acknowledge(idOf(key));
    await finished;
    expect(written).toMatchObject({ state: 'done' });
    expect(written?.reply).toHaveLength(5 * MiB);
  },

  'a reply without room until its deadline is recorded as uncertain': async (store) => {
    const log = await store.open();
    await fill(log);
    await log.receive(newCall('late'));
    const finished = log.finish(idOf('late'), log.owner, outcome(Buffer.alloc(5 * MiB, 1), { deadlineMs: 2_000 }));
    expect(shown(await log.find(idOf('late')))).toMatchObject({ state: 'running' });
    await store.clock.advanceAsync(2_001);
    const row = await finished;
    expect(row?.state).toBe('uncertain');
    const { error } = readReplyBody(row?.reply as Buffer) as { error: HostError };
    expect(error).toMatchObject({ code: 'outcome_uncertain', details: { execution: 'uncertain', reason: 'no_room' } });
  },
};

/** Adds replies of one worker until less than 4 MiB of its bound is left. */
async function fill(log: CallLog): Promise<string[]> {
  const keys = Array.from({ length: 15 }, (_, at) => `full${at}`);
  const body = Buffer.alloc(4 * MiB + 64 * 1024, 1);
  await Promise.all(keys.map((key) => done(log, key, body)));
  return keys;
}
