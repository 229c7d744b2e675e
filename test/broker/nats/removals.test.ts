/** Which rows an acknowledgement removes from the store that several hosts share, and that it removes no others. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { KvCallLog } from '../../../src/broker/nats/kv-call-log.js';
import { KvStore } from '../../../src/broker/nats/kv-store.js';
import { callsBucket } from '../../../src/broker/nats/names.js';
import { connectNats, type NatsConnection, TurnBatch } from '../../../src/broker/nats/nats-client.js';
import { brokerLimits } from '../../../src/broker/protocol/limits.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { done, idOf, newCall, outcome } from '../../contract/broker/call-log-checks.js';
import { eventually } from '../../eventually.js';
import { type NatsServerFake, startNatsServer } from '../../fakes/nats-server.js';

let server: NatsServerFake;
let clock: FakeClock;
let closers: (() => Promise<unknown>)[];
beforeEach(async () => {
  server = await startNatsServer();
  clock = new FakeClock();
  closers = [];
}, 30_000);
afterEach(async () => {
  for (const close of closers) await close();
  await server.stop();
});

async function open(owner: string): Promise<{ log: KvCallLog; store: KvStore; connection: NatsConnection }> {
  const connection = await connectNats({ url: server.url, key: undefined, name: owner, reconnects: true });
  const options = { connection, clock, owner, replicas: 1, onProblem: () => {}, batch: new TurnBatch() };
  const store = await KvStore.open(options);
  const log = new KvCallLog(store, async () => true);
  closers.push(async () => {
    await log.close();
    await connection.close();
  });
  return { log, store, connection };
}

/** The row of an acknowledged call is removed after this time at the latest. */
const passDeadlines = async () => {
  for (let ms = 0; ms < brokerLimits.deadlineMs + 90_000; ms += 10_000) await clock.advanceAsync(10_000);
};

test('an outcome that a host wrote in place of a host that is gone is removed when it is acknowledged', async () => {
  const [first, second] = [await open('first'), await open('second')];
  const large = Buffer.alloc(100_000, 'x');
  await first.log.receive(newCall('k1', { deadlineMs: brokerLimits.deadlineMs }));
  await second.log.finish(idOf('k1'), 'first', outcome(large, { state: 'uncertain' }));
  const { row = { body: undefined, write: '' } } = (await second.store.read(callsBucket, 'w1.e1.k1')) ?? {};
  expect(await second.store.readBody(row)).toHaveLength(100_000);
  second.log.acknowledge(idOf('k1'));
  await eventually('the body is removed', async () => (await second.store.readBody(row)) === undefined);
  await passDeadlines();
  await eventually('the row is removed', async () => {
    // The host may learn of the removed body only now.
    await clock.advanceAsync(1_000);
    return (await second.log.find(idOf('k1'))) === undefined;
  });
});

test('the acknowledged reply of a worker at its bound is removed, although it was not counted', async () => {
  const [first, second] = [await open('first'), await open('second')];
  await done(first.log, 'k1', '{"n":1}', { deadlineMs: brokerLimits.deadlineMs });
  for (let at = 0; at < brokerLimits.callsPerWorker; at++) await second.log.receive(newCall(`open${at}`));
  expect(await second.log.find(idOf('k1'))).toMatchObject({ state: 'done' });
  expect(second.log.usage()).toMatchObject({ finished: 0 });
  second.log.acknowledge(idOf('k1'));
  expect(second.log.usage()).toMatchObject({ finished: 0, open: brokerLimits.callsPerWorker });
  await passDeadlines();
  await eventually('the row is removed', async () => (await second.log.find(idOf('k1'))) === undefined);
});

test.each(['before', 'after'])(
  'an acknowledgement %s the store is wiped removes no row of the next store',
  async (when) => {
    const { log } = await open('first');
    const keys = ['k1', 'k2', 'k3', 'k4'];
    for (const key of keys) await done(log, key, '{"n":1}');
    const { storeId } = log;
    if (when === 'before') for (const key of keys) log.acknowledge(idOf(key));
    await server.kill();
    server.wipe();
    await server.start();
    await eventually('the next store', async () => {
      await clock.advanceAsync(1_000);
      return log.storeId !== storeId;
    });
    const { storeId: next } = log;
    const later = ['n1', 'n2', 'n3', 'n4', 'n5', 'n6'];
    for (const key of later) await log.receive(newCall(key, { deadlineMs: brokerLimits.deadlineMs }));
    if (when === 'after') for (const key of keys) log.acknowledge(idOf(key));
    // The first host removes rows of its own later, when they expire.
    for (let ms = 0; ms < 150_000; ms += 10_000) await clock.advanceAsync(10_000);
    const other = await open('second');
    expect(other.log.storeId).toBe(next);
    const found = await Promise.all(later.map(async (key) => (await other.log.find(idOf(key)))?.state));
    expect(found).toEqual(later.map(() => 'running'));
  },
);

test('a call that waits at its host does not begin in an older copy of the store: another host may have run it since', async () => {
  const [first, second] = [await open('first'), await open('second')];
  const { row } = await first.log.receive(newCall('k1', { state: 'received' }));
  const stores = [first.store, second.store];
  const restart = async (change: () => void) => {
    await server.kill();
    await eventually('both lost it', () => stores.every(({ id }) => id.checking !== undefined));
    change();
    await server.start();
    await eventually('both are back', async () => {
      await clock.advanceAsync(1_000);
      return stores.every(({ id }) => id.checking === undefined);
    });
  };
  await restart(() => server.backUp());
  expect(await second.log.begin(idOf('k1'), row.version)).toBe('begun');
  await second.log.finish(idOf('k1'), 'second', outcome('{"n":1}'));
  const { storeId } = first.log;
  await restart(() => server.restore());
  expect(first.log.storeId).not.toBe(storeId);
  expect(await first.log.begin(idOf('k1'), row.version)).toMatchObject({ state: 'uncertain' });
});
