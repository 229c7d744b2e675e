/** Messages between workers and hosts over a real nats-server. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { eventually } from '../../eventually.js';
import { keys, NatsStage, type RigConnection, type RigHost, request } from './nats-rig.js';

let stage: NatsStage;
let host: RigHost;
let worker: RigConnection;
beforeAll(async () => {
  stage = await NatsStage.start();
  host = await stage.host();
  worker = await stage.connect('w1');
}, 30_000);
afterAll(() => stage.stop());

test('AC-BR1 a call is received, runs and is answered', async () => {
  expect(worker.connection.worker).toBe('w1');
  expect(worker.connection.role).toBe('operator');
  const receipt = await worker.connection.call(request('a'));
  expect(receipt).toEqual({ owner: host.nats.log.owner, storeId: host.nats.log.storeId });
  expect(await eventually('the reply', () => worker.replies.get('a'))).toContain('"ran":{"key":"a"}');
  worker.connection.acknowledge(['a']);
  await eventually('ack', () => host.nats.log.usage().finished === 0);
});

test('many calls at once each run once', async () => {
  const all = keys(200, 'm');
  await Promise.all(all.map((key) => worker.connection.call(request(key))));
  await eventually('all replies', () => all.every((key) => worker.replies.has(key)));
  worker.connection.acknowledge(all);
  expect(host.ran().filter((args) => args.includes('"m')).length).toBe(200);
  await eventually('ack', () => host.nats.log.usage().finished === 0);
});
