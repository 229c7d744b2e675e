/** The memory of a host is bounded while nats-server is away, and for rows that other hosts wrote. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { KvCallLog } from '../../../src/broker/nats/kv-call-log.js';
import { KvStore } from '../../../src/broker/nats/kv-store.js';
import { connectNats, type NatsConnection, TurnBatch } from '../../../src/broker/nats/nats-client.js';
import { FakeClock } from '../../../src/kernel/fake-clock.js';
import { eventually } from '../../eventually.js';
import { type NatsServerFake, startNatsServer } from '../../fakes/nats-server.js';

const clock = new FakeClock();
const connections: NatsConnection[] = [];
let server: NatsServerFake;
beforeEach(async () => {
  server = await startNatsServer();
});
afterEach(async () => {
  await Promise.all(connections.splice(0).map((each) => each.close()));
  await server.stop();
});

async function open(owner: string) {
  const connection = await connectNats({ url: server.url, key: undefined, name: owner, reconnects: true });
  connections.push(connection);
  const options = { connection, clock, owner, replicas: 1, onProblem: () => {}, batch: new TurnBatch() };
  const store = await KvStore.open(options);
  const isGone = async () => false;
  return { store, log: new KvCallLog(store, isGone) };
}

const call = (key: string, isCallersKey = false) => ({
  ...{
    id: { worker: 'w1', epoch: 'e1', key },
    digest: 'd',
    isCallersKey,
    deadlineMs: 30_000,
    state: 'running' as const,
  },
});
const outcome = (isCallersKey = false) => ({
  ...{ state: 'done' as const, reply: Buffer.alloc(10_000, 'x'), isCallersKey, deadlineMs: 30_000 },
});

test('while nats-server is away, each operation gives up within 10 s; the write of an outcome waits until the deadline of its call', async () => {
  const { store, log } = await open('host-1');
  await log.receive(call('k1'));
  await server.kill();
  await eventually('the lost connection', () => store.id.checking !== undefined);
  const settled: string[] = [];
  const note = (name: string, done: Promise<unknown>) =>
    done.then(
      () => settled.push(`${name} done`),
      ({ code, details }) => settled.push(`${name} ${code} ${details.execution}`),
    );
  const all = Promise.all([
    note('receive', log.receive(call('k2'))),
    note('find', log.find(call('k1').id)),
    note('finish', log.finish(call('k1').id, 'host-1', outcome())),
  ]);
  await clock.advanceAsync(10_000);
  expect(settled.sort()).toEqual(['find transport uncertain', 'receive transport uncertain']);
  await clock.advanceAsync(20_000);
  await all;
  expect(settled).toContain('finish transport uncertain');
});

test("a reply that another host wrote counts until it is acknowledged or expires; a reply to a caller's key does not count", async () => {
  const [first, second] = [await open('host-1'), await open('host-2')];
  for (const [key, isCallersKey] of [
    ['acked', false],
    ['left', false],
    ['own', true],
  ] as const) {
    const { id } = call(key);
    await first.log.receive(call(key, isCallersKey));
    await first.log.finish(id, 'host-1', outcome(isCallersKey));
    expect((await second.log.find(id))?.reply).toHaveLength(10_000);
  }
  expect(second.log.usage()).toMatchObject({ finished: 2, replyBytes: 20_000 });
  second.log.acknowledge(call('acked').id);
  await eventually('the removed reply', async () => !(await first.log.find(call('acked').id))?.reply);
  expect(second.log.usage()).toMatchObject({ finished: 1, replyBytes: 10_000 });
  await clock.advanceAsync(30 * 60_000);
  expect(second.log.usage()).toMatchObject({ finished: 0, replyBytes: 0 });
});
