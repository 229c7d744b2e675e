/** One account per worker: many of them, and workers that are added while hosts run. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { newUserPair } from '../../../src/broker/nats/nats-client.js';
import { natsServerConfig } from '../../../src/broker/nats/server-config.js';
import { eventually } from '../../eventually.js';
import { countFor, timeLimitMs } from '../../tier.js';
import { keysOf, NatsStage, type RigConnection, request } from './nats-rig.js';

const MiB = 1024 * 1024;
const rssOf = (pid: number | undefined): number =>
  1024 * Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);

test('a thousand workers connect, and each call is answered to its worker', async () => {
  const count = countFor(100, 1_000);
  const workers = Array.from({ length: count }, (_, at) => `w${at}`);
  const stage = await NatsStage.start(workers);
  try {
    const host = await stage.host();
    const startMs = performance.now();
    const connected: RigConnection[] = [];
    // 20 at once: the keys are signed in this process.
    for (let at = 0; at < count; at += 20)
      connected.push(...(await Promise.all(workers.slice(at, at + 20).map((name) => stage.connect(name)))));
    const connectMs = performance.now() - startMs;
    await Promise.all(connected.map(({ connection }, at) => connection.call(request(`k${at}`))));
    await eventually('all replies', () => connected.every(({ replies }, at) => replies.has(`k${at}`)));
    expect(connected.every(({ replies }) => replies.size === 1)).toBe(true);
    expect(host.transport.connectedWorkers).toBe(count);
    const rss = rssOf(stage.server.pid());
    process.stdout.write(
      `${count} workers: nats-server ${Math.round(rss / MiB)} MiB, connected in ${Math.round(connectMs)} ms\n`,
    );
    expect(rss).toBeLessThan(256 * MiB);
    expect(connectMs).toBeLessThan(timeLimitMs(60_000));
  } finally {
    await stage.stop();
  }
}, 180_000);

test('a worker that is added while hosts run connects after a reload, and later once more; others stay connected', async () => {
  const stage = await NatsStage.start();
  try {
    const host = await stage.host();
    const old = await stage.connect('w1');
    stage.pairs.set('w3', await newUserPair());
    await expect(stage.connect('w3')).rejects.toMatchObject({ code: 'unauthenticated' });
    await stage.reload(stage.pairs);
    await expect(stage.connect('w3')).rejects.toMatchObject({
      code: 'unauthenticated',
      details: { reason: 'unknown_key' },
    });
    host.identities.replace(keysOf([{ name: 'w1' }, { name: 'w3' }]));
    const added = await stage.connect('w3');
    await added.connection.call(request('k1'));
    await eventually('the reply', () => added.replies.has('k1'));
    await old.connection.call(request('k2'));
    await eventually('the reply', () => old.replies.has('k2'));
    expect(host.events.filter(({ kind }) => kind === 'nats_lost')).toEqual([]);
    expect(host.events).toContainEqual({ kind: 'connected', worker: 'w3', session: 's_w3', isAgain: false });
    await added.connection.close();
    await eventually('it has left', () => host.events.some(({ kind }) => kind === 'disconnected'));
    await stage.connect('w3');
    await eventually('connected again', () => host.events.some((event) => 'isAgain' in event && event.isAgain));
  } finally {
    await stage.stop();
  }
});

test('two keys of one worker have one account, so that a key can be replaced while the worker stays connected', async () => {
  const [host, one, two] = await Promise.all([newUserPair(), newUserPair(), newUserPair()]);
  const plan = { listen: '127.0.0.1:4222', storeDir: '/var/lib/nats', hosts: [host.publicKey] };
  const worker = { worker: 'w1', epoch: 'e1' };
  const text = natsServerConfig({
    ...plan,
    workers: [
      { ...worker, publicKey: one.publicKey },
      { ...worker, publicKey: two.publicKey },
    ],
  });
  expect(text.match(/"HOSTLER_W_w1\.e1" \{/g)).toHaveLength(1);
  for (const { publicKey } of [host, one, two]) expect(text).toContain(publicKey);
  for (const { seed } of [host, one, two]) expect(text).not.toContain(seed);
  expect(() => natsServerConfig({ ...plan, storeDir: 'a"b', workers: [] })).toThrow('quote');
});

test('options: TLS, sync, size and the monitoring port', async () => {
  const { publicKey } = await newUserPair();
  const text = natsServerConfig({
    ...{
      listen: '0.0.0.0:4222',
      storeDir: '/data',
      hosts: [publicKey],
      workers: [],
      maxFileBytes: 5,
      syncsAlways: true,
    },
    ...{ monitor: '127.0.0.1:8222', tls: { certFile: '/c.pem', keyFile: '/k.pem' } },
  });
  for (const line of [
    'tls { cert_file: "/c.pem", key_file: "/k.pem" }',
    'sync_interval: always',
    'max_file: 5',
    'http: "127.0.0.1:8222"',
  ])
    expect(text).toContain(line);
});
