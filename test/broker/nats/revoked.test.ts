/** A revoked worker on NATS, also while nats-server still has its key. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Identities } from '../../../src/broker/identities.js';
import { newUserPair } from '../../../src/broker/nats/nats-client.js';
import { systemClock } from '../../../src/kernel/clock.js';
import { eventually } from '../../eventually.js';
import { configOf, epochOf, keys, keysOf, NatsStage, type RigHost, request } from './nats-rig.js';

let stage: NatsStage;
let host: RigHost;
beforeEach(async () => {
  stage = await NatsStage.start();
  host = await stage.host({ runningPerWorker: 1 });
}, 30_000);
afterEach(() => stage.stop());

const nextEpoch = (name: string) => (name === 'w1' ? 'next' : epochOf(name));
/** Applies edited keys as serve-workers does. */
const rekey = async (workers: Parameters<typeof keysOf>[0]) => {
  for (const { name, keptEpoch } of host.identities.replace(keysOf(workers)).revoked)
    await host.service.workerRevoked(name, keptEpoch === undefined ? [] : [keptEpoch]);
};

test('AC-BR13 queued calls of a revoked worker never run, and the next worker of its name receives nothing of them', async () => {
  const release: (() => void)[] = [];
  host.upstreams.onCall = ({ args }) =>
    new Promise((resolve) => {
      release.push(() => resolve(`{"content":[],"ran":${args}}`));
    });
  const old = await stage.connect('w1', 'same-session');
  for (const key of keys(3)) await old.connection.call(request(key));
  await eventually('one call runs', () => host.ran().length === 1);
  await rekey([{ name: 'w1', epoch: 'next' }, { name: 'w2' }]);
  for (const each of release) each();
  await eventually('no call is open', () => host.service.status().running + host.service.status().waiting === 0);
  expect(host.ran()).toEqual(['{"key":"k0"}']);
  for (const reply of old.replies.values()) expect(reply).toContain('"execution":"not_executed"');

  // nats-server has the old key still: the host refuses it by its epoch.
  await expect(old.connection.call(request('k9'))).rejects.toMatchObject({ code: 'unauthenticated' });
  const pair = await newUserPair();
  stage.pairs.set('w1', pair);
  await stage.reload(stage.pairs, nextEpoch);
  expect(await old.connection.closed).toMatchObject({ code: expect.stringMatching(/unauthenticated|transport/) });
  const next = await stage.connect('w1', 'same-session');
  host.upstreams.onCall = ({ args }) => `{"content":[],"ran":${args}}`;
  await next.connection.call(request('k1', { args: Buffer.from('{"mine":1}') }));
  expect(await eventually('the reply', () => next.replies.get('k1'))).toContain('"ran":{"mine":1}');
  expect([...next.replies.keys()]).toEqual(['k1']);
});

test('AC-BR12 the revoked worker does not receive replies to the next worker of its name, while nats-server has both keys', async () => {
  const old = await stage.connect('w1', 'same-session');
  const pair = await newUserPair();
  await rekey([{ name: 'w1', epoch: 'next' }, { name: 'w2' }]);
  const both = new Map(stage.pairs).set('w1', pair);
  // The old account is still there, by a mistake of the operator.
  const { server, hostPair, pairs } = stage;
  const text = configOf(server.port, server.storeDir, hostPair, both, nextEpoch);
  const account = configOf(
    server.port,
    server.storeDir,
    hostPair,
    new Map([...pairs].filter(([name]) => name === 'w1')),
  );
  await server.reload(withAccountOf(text, account));
  stage.pairs.set('w1', pair);
  const next = await stage.connect('w1', 'same-session');
  await next.connection.call(request('secret'));
  await eventually('the reply', () => next.replies.get('secret'));
  await expect(old.connection.call(request('secret'))).rejects.toMatchObject({ code: expect.any(String) });
  expect(old.replies.size).toBe(0);
});

/** `text` with the worker account of `other`. */
function withAccountOf(text: string, other: string): string {
  const account = /\n( {2}"HOSTLER_W_[\s\S]*)\n\}\n$/.exec(other)?.[1] ?? '';
  return text.replace(/\n\}\n$/, `\n${account}\n}\n`);
}

test('a worker is admitted while one of the hosts does not have its key yet, and refused when none has it', async () => {
  await stage.host({ identities: new Identities(keysOf([{ name: 'w2' }]), systemClock) });
  for (let times = 0; times < 10; times++) {
    const { connection } = await stage.connect('w1', `s${times}`);
    expect(connection.worker).toBe('w1');
  }
  await rekey([{ name: 'w2' }]);
  await expect(stage.connect('w1', 'late')).rejects.toMatchObject({ code: 'unauthenticated' });
});
