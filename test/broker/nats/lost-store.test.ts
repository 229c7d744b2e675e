/** No call runs twice if the NATS server was wiped, or has an older copy of its store. */
import { jetstreamManager } from '@nats-io/jetstream';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { connectNats } from '../../../src/broker/nats/nats-client.js';
import { eventually } from '../../eventually.js';
import { NatsStage, type RigConnection, type RigHost, request } from './nats-rig.js';

let stage: NatsStage;
let host: RigHost;
let worker: RigConnection;
beforeEach(async () => {
  stage = await NatsStage.start();
  host = await stage.host();
  worker = await stage.connect('w1', 'first');
}, 30_000);
afterEach(() => stage.stop());

const replyTo = ({ replies }: RigConnection, key: string) => eventually(`the reply to ${key}`, () => replies.get(key));
const restart = async (change: () => void) => {
  await stage.server.kill();
  change();
  await stage.server.start();
};
/** Connects as the same worker process, which keeps the sequence that it has seen. */
const again = async () => {
  const opener = stage.opener('w1');
  return { opener, connect: () => stage.connect('w1', 'again', opener) };
};

test('a wiped store has another id, and a call that ran before is uncertain, not run again', async () => {
  const { storeId } = await worker.connection.call(request('k1'));
  await replyTo(worker, 'k1');
  await restart(() => stage.server.wipe());
  await eventually('the new id', () => host.nats.log.storeId !== storeId);
  const next = await stage.connect('w1', 'second');
  expect(next.connection.storeId).not.toBe(storeId);
  await next.connection.call(request('k1', { sentBefore: { storeId, hasReceipt: false } }));
  expect(await replyTo(next, 'k1')).toContain('outcome_uncertain');
  expect(host.ran()).toEqual(['{"key":"k1"}']);
  await next.connection.call(request('new'));
  expect(await replyTo(next, 'new')).toContain('"ran":{"key":"new"}');
});

test('a wiped store while no host was up: the next host takes another id', async () => {
  const { storeId } = await worker.connection.call(request('k1'));
  await replyTo(worker, 'k1');
  await host.close();
  await restart(() => stage.server.wipe());
  const second = await stage.host();
  expect(second.nats.log.storeId).not.toBe(storeId);
  const next = await stage.connect('w1', 'second');
  await next.connection.call(request('k1', { sentBefore: { storeId, hasReceipt: true } }));
  expect(await replyTo(next, 'k1')).toContain('outcome_uncertain');
  expect(second.ran()).toEqual([]);
});

test('an older copy of the store is noticed by the sequence that the host has seen', async () => {
  await worker.connection.call(request('k0'));
  await replyTo(worker, 'k0');
  await stage.server.kill();
  stage.server.backUp();
  await stage.server.start();
  const second = await stage.connect('w1', 'second');
  const { storeId } = await second.connection.call(request('k1'));
  await replyTo(second, 'k1');
  await restart(() => stage.server.restore());
  await eventually('the new id', () => host.nats.log.storeId !== storeId);
  const third = await stage.connect('w1', 'third');
  await third.connection.call(request('k1', { sentBefore: { storeId, hasReceipt: false } }));
  expect(await replyTo(third, 'k1')).toContain('outcome_uncertain');
  expect(host.ran()).toEqual(['{"key":"k0"}', '{"key":"k1"}']);
});

test('an older copy is noticed by the sequence that a worker has seen, when every host is new', async () => {
  const process = await again();
  const first = await process.connect();
  await stage.server.kill();
  stage.server.backUp();
  await stage.server.start();
  const second = await process.connect();
  const { storeId } = await second.connection.call(request('k1'));
  await replyTo(second, 'k1');
  await Promise.all([first.connection.close(), second.connection.close(), host.close()]);
  await restart(() => stage.server.restore());
  const next = await stage.host();
  expect(next.nats.log.storeId).toBe(storeId);
  const third = await process.connect();
  expect(third.connection.storeId).not.toBe(storeId);
  await third.connection.call(request('k1', { sentBefore: { storeId, hasReceipt: false } }));
  expect(await replyTo(third, 'k1')).toContain('outcome_uncertain');
  expect(next.ran()).toEqual([]);
});

test('a row of an older copy that has no outcome is uncertain: the call may have run since', async () => {
  let release = () => {};
  host.upstreams.onCall = ({ args }) =>
    args.includes('k1')
      ? new Promise((resolve) => {
          release = () => resolve('{"content":[]}');
        })
      : '{"content":[]}';
  const { storeId } = await worker.connection.call(request('k1'));
  await stage.server.kill();
  stage.server.backUp();
  await stage.server.start();
  const second = await stage.connect('w1', 'second');
  await second.connection.call(request('k2'));
  await replyTo(second, 'k2');
  await restart(() => stage.server.restore());
  await eventually('the new id', () => host.nats.log.storeId !== storeId);
  const other = await stage.host();
  const id = { worker: 'w1', epoch: 'e_w1', key: 'k1' };
  expect(await other.nats.log.find(id)).toMatchObject({ state: 'uncertain' });
  const third = await stage.connect('w1', 'third');
  release();
  await eventually('the call is over', () => host.service.status().running === 0);
  expect(await host.nats.log.find(id)).toMatchObject({ state: 'uncertain' });
  await third.connection.call(request('k1', { sentBefore: { storeId, hasReceipt: true } }));
  expect(await replyTo(third, 'k1')).toContain('older_store');
  expect([host.ran().length, other.ran().length]).toEqual([2, 0]);
});

test('nats-server restarts: calls continue with the same store id, and each runs once', async () => {
  const { storeId } = await worker.connection.call(request('k1'));
  await replyTo(worker, 'k1');
  await restart(() => {});
  const next = await stage.connect('w1', 'second');
  expect((await next.connection.call(request('k2'))).storeId).toBe(storeId);
  await replyTo(next, 'k2');
  expect(await next.connection.call(request('k1', { sentBefore: { storeId, hasReceipt: false } }))).toMatchObject({
    storeId,
  });
  expect(await replyTo(next, 'k1')).toContain('"ran":{"key":"k1"}');
  expect(host.ran()).toEqual(['{"key":"k1"}', '{"key":"k2"}']);
});

test('a bucket or stream that is deleted under the hosts is made again, and the deleted rows are not run again', async () => {
  const { url } = stage.server;
  const other = await connectNats({ url, key: stage.hostPair.seed, name: 'other', reconnects: false });
  const { streams } = await jetstreamManager(other);
  const { storeId } = await worker.connection.call(request('k1'));
  await replyTo(worker, 'k1');
  await streams.delete('KV_hostler_calls');
  const sent = (key: string, more = {}) => worker.connection.call(request(key, more)).catch((error) => error.details);
  expect(await sent('k1', { sentBefore: { storeId, hasReceipt: true } })).toMatchObject({ reason: 'store_changed' });
  await sent('k1', { sentBefore: { storeId, hasReceipt: true } });
  await eventually('the answer of the new store', () => worker.replies.get('k1')?.includes('outcome_uncertain'));
  await streams.delete('KV_hostler_keys');
  expect(await sent('own', { isCallersKey: true })).toMatchObject({ reason: 'store_changed', execution: 'uncertain' });
  await sent('own', { isCallersKey: true });
  expect(await replyTo(worker, 'own')).toContain('"ran"');
  await streams.delete('HOSTLER_BODIES');
  host.upstreams.onCall = () => `{"content":[],"text":"${'x'.repeat(100_000)}"}`;
  await sent('large');
  expect(await replyTo(worker, 'large')).toContain('xxx');
  expect(host.ran()).toHaveLength(3);
  await other.close();
});

test('the stream of large replies is deleted and made again: no worker gets or removes the reply of another', async () => {
  const { url } = stage.server;
  const other = await connectNats({ url, key: stage.hostPair.seed, name: 'other', reconnects: false });
  const { streams } = await jetstreamManager(other);
  host.upstreams.onCall = ({ args }) => `{"content":[],"ran":${args},"text":"${'x'.repeat(100_000)}"}`;
  const { storeId } = await worker.connection.call(request('k1'));
  await replyTo(worker, 'k1');
  await streams.delete('HOSTLER_BODIES');
  const second = await stage.connect('w2', 'second');
  const large = async (key: string) => {
    await second.connection.call(request(key));
    return replyTo(second, key);
  };
  await large('k2');
  const next = await stage.connect('w1', 'next');
  await next.connection.call(request('k1', { sentBefore: { storeId, hasReceipt: true } }));
  expect((await replyTo(next, 'k1')).slice(0, 300)).toContain('outcome_uncertain');
  next.connection.acknowledge(['k1']);
  await eventually('the acknowledgement', () => host.nats.log.usage().finished === 1);
  await large('k3');
  const { reply } = (await host.nats.log.find({ worker: 'w2', epoch: 'e_w2', key: 'k2' })) ?? {};
  expect(reply?.toString().slice(0, 300)).toContain('"ran":{"key":"k2"}');
  await other.close();
});

test.each(['before', 'after'])(
  'B11 the bucket of keys is deleted %s the next host starts: a key that ran is not run again',
  async (when) => {
    const { url } = stage.server;
    const other = await connectNats({ url, key: stage.hostPair.seed, name: 'other', reconnects: false });
    const { streams } = await jetstreamManager(other);
    const { storeId } = await worker.connection.call(request('own', { isCallersKey: true }));
    await replyTo(worker, 'own');
    const started = when === 'after' ? await stage.host() : undefined;
    await host.close();
    await streams.delete('KV_hostler_keys');
    const second = started ?? (await stage.host());
    const next = await stage.connect('w1', 'second');
    const again = request('own', { isCallersKey: true, sentBefore: { storeId, hasReceipt: false } });
    // The sending that finds the bucket missing may be refused.
    await eventually('the outcome', async () => {
      await next.connection.call(again).catch((error) => expect(error.details.reason).toBe('store_changed'));
      return next.replies.get('own');
    });
    expect(next.replies.get('own')).toContain('outcome_uncertain');
    expect(second.nats.log.storeId).not.toBe(storeId);
    expect([...host.ran(), ...second.ran()]).toHaveLength(1);
    await other.close();
  },
);

test('B11 the bucket of keys is deleted: a host does not run a key again that it has run, even if it is sent as a new call', async () => {
  const { url } = stage.server;
  const other = await connectNats({ url, key: stage.hostPair.seed, name: 'other', reconnects: false });
  const { streams } = await jetstreamManager(other);
  const sent = (key: string, tool: string) =>
    worker.connection.call(request(key, { isCallersKey: true, tool })).catch((error) => error.details);
  for (const [key, tool] of [
    ['own', 'run'],
    ['twice', 'again'],
  ] as const) {
    await sent(key, tool);
    await replyTo(worker, key);
    worker.replies.clear();
  }
  await streams.delete('KV_hostler_keys');
  for (const [key, tool, outcome] of [
    ['own', 'run', 'outcome_uncertain'],
    ['twice', 'again', '"ran"'],
  ] as const) {
    await eventually('the outcome', async () => {
      const { reason } = await sent(key, tool);
      expect([undefined, 'store_changed']).toContain(reason);
      return worker.replies.get(key);
    });
    expect(worker.replies.get(key)).toContain(outcome);
  }
  expect(host.ran()).toEqual(['own', 'twice', 'twice'].map((key) => JSON.stringify({ key })));
  await other.close();
});
