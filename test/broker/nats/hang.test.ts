/** A nats-server that hangs or restarts while hosts work. */
import { createServer, type Socket, connect as toPort } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { connectWorker } from '../../../src/broker/worker/connect-worker.js';
import { eventually } from '../../eventually.js';
import { keys, NatsStage, type RigHost, request } from './nats-rig.js';

let stage: NatsStage;
let host: RigHost;
beforeEach(async () => {
  stage = await NatsStage.start();
  host = await stage.host();
}, 30_000);
afterEach(async () => {
  stage.server.resume();
  await stage.stop();
});

test('a host with running calls stops within 10 s when nats-server hangs', async () => {
  host.upstreams.onCall = ({ options: { signal } }) =>
    new Promise((_resolve, reject) => signal?.addEventListener('abort', () => reject(new Error('stopped'))));
  const { connection } = await stage.connect('w1');
  for (const key of keys(5)) await connection.call(request(key));
  stage.server.pause();
  const startMs = performance.now();
  await host.close();
  expect(performance.now() - startMs).toBeLessThan(10_000);
});

test('AC-BR4 nats-server is killed under load and comes back: every call has an outcome, and none runs twice', async () => {
  const worker = await connectWorker({ open: stage.opener('w1') });
  const outcomes: string[] = [];
  const load = Promise.all(
    Array.from({ length: 8 }, async (_, lane) => {
      for (const key of keys(40, `k${lane}_`))
        outcomes.push(
          await worker.execute('srv', 'run', { key }).then(
            () => 'ok',
            (error) => error.code,
          ),
        );
    }),
  );
  for (let times = 0; times < 3; times++) {
    const before = outcomes.length;
    await eventually('some calls', () => outcomes.length >= before + 30);
    await stage.server.kill();
    await stage.server.start();
  }
  await load;
  expect(outcomes).toHaveLength(320);
  expect(new Set(outcomes)).toEqual(new Set(['ok']));
  const ran = host.ran();
  expect(new Set(ran).size).toBe(ran.length);
  await worker.close();
}, 60_000);

test('a host that starts a moment before nats-server waits for it', async () => {
  await stage.server.kill();
  const starting = stage.host();
  await new Promise((resolve) => setTimeout(resolve, 500));
  await stage.server.start();
  expect((await starting).nats.isConnected()).toBe(true);
});

test('a host that loses nats-server while it creates its stores begins its start again', async () => {
  const lost: string[] = [];
  const wanted = ['$JS.API.STREAM.CREATE.KV_hostler_keys', '$KV.hostler_calls.store'];
  const relay = createServer((from: Socket) => {
    const to = toPort(stage.server.port, '127.0.0.1');
    for (const [one, other] of [[from, to] as const, [to, from] as const]) {
      one.on('error', () => other.destroy()).on('close', () => other.destroy());
      one.on('data', (chunk) => {
        const what = one === from ? wanted.find((each) => chunk.includes(each)) : undefined;
        if (what === undefined) return void other.write(chunk);
        lost.push(wanted.splice(wanted.indexOf(what), 1)[0] ?? '');
        one.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => relay.listen(0, '127.0.0.1', resolve));
  const { port } = relay.address() as { port: number };
  const second = await stage.host({ url: `nats://127.0.0.1:${port}` });
  expect(lost).toHaveLength(2);
  expect(second.nats.isConnected()).toBe(true);
  await second.close();
  relay.close();
});
