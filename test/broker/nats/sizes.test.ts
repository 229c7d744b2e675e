/** Large replies on NATS do not count any more once they are acknowledged. */
import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import { expect, test } from 'vitest';
import { connectNats } from '../../../src/broker/nats/nats-client.js';
import { connectWorker } from '../../../src/broker/worker/connect-worker.js';
import { eventually } from '../../eventually.js';
import { countFor } from '../../tier.js';
import { keys, NatsStage, request } from './nats-rig.js';

const MiB = 1024 * 1024;

test('results of 3.9 MB, many times the bound: none is refused or dropped, and the store stays below 256 MiB', async () => {
  const stage = await NatsStage.start();
  try {
    const host = await stage.host();
    host.upstreams.onCall = () => `{"content":[],"text":"${'x'.repeat(3_900_000)}"}`;
    const worker = await connectWorker({ open: stage.opener('w1') });
    const count = countFor(60, 500);
    let [done, largest, next] = [0, 0, 0];
    await Promise.all(
      Array.from({ length: 8 }, async () => {
        while (next++ < count) {
          const { bytes } = await worker.execute('srv', 'run', { n: next }, { deadlineMs: 120_000 });
          if (bytes.length > 3_900_000) done++;
          largest = Math.max(largest, stage.server.storeBytes());
        }
      }),
    );
    expect(done).toBe(count);
    await eventually('all replies are acknowledged', () => host.nats.log.usage().replyBytes === 0);
    largest = Math.max(largest, stage.server.storeBytes());
    expect(largest).toBeLessThan(256 * MiB);
    // What nats-server charges to the account. Beyond `max_file` it refuses every write.
    const { url } = stage.server;
    const client = await connectNats({ url, key: stage.hostPair.seed, name: 'account', reconnects: false });
    expect((await (await jetstreamManager(client)).getAccountInfo()).storage).toBeLessThan(MiB);
    await client.close();
    await worker.close();
  } finally {
    await stage.stop();
  }
}, 300_000);

test('AC-BR7 replies that are not acknowledged: the worker is refused before its next call runs, and served again when it acknowledges them', async () => {
  const stage = await NatsStage.start();
  try {
    const host = await stage.host();
    host.upstreams.onCall = () => `{"content":[],"text":"${'x'.repeat(3_900_000)}"}`;
    const { connection, replies } = await stage.connect('w1');
    const { log } = host.nats;
    // 64 MiB are 17 replies. The next one waits in memory until others are acknowledged.
    const all = keys(18);
    for (const key of all) {
      await connection.call(request(key));
      await eventually('the call is over or waits', () => replies.has(key) || log.refusal('w1', false));
    }
    await expect(connection.call(request('refused'))).rejects.toMatchObject({
      code: 'overloaded',
      details: { execution: 'not_executed', retryAfterMs: 1_000 },
    });
    expect(host.ran()).toHaveLength(18);
    expect(replies.size).toBe(17);
    expect(log.usage()).toMatchObject({ open: 1, finished: 17 });
    connection.acknowledge([...replies.keys()]);
    await eventually('the other reply', () => replies.size === all.length);
    await connection.call(request('after'));
    await eventually('the reply', () => replies.has('after'));
    connection.acknowledge([...replies.keys()]);
    await eventually('all are acknowledged', () => log.usage().replyBytes === 0);
  } finally {
    await stage.stop();
  }
}, 60_000);

test('AC-BR7 replies of other hosts fill the stream: a call is refused before it runs, until there is room', async () => {
  const stage = await NatsStage.start();
  const { url } = stage.server;
  const other = await connectNats({ url, key: stage.hostPair.seed, name: 'other', reconnects: false });
  try {
    const { nats } = await stage.host();
    const { connection } = await stage.connect('w1');
    for (const key of keys(55))
      await jetstream(other).publish(`hostler.body.w2.e_w2.${key}`, Buffer.alloc(3_990_000, 1));
    await eventually('it is seen', () => nats.log.refusal('w1', false));
    const error = await connection.call(request('k')).catch((thrown) => thrown);
    expect(error).toMatchObject({ code: 'insufficient_storage', details: { execution: 'not_executed' } });
    expect(error.message).toBe('the NATS server has no room for replies of calls');
    // The oldest expires 15 minutes after it was written.
    expect(error.details.retryAfterMs).toBeGreaterThan(13 * 60_000);
    expect(error.details.retryAfterMs).toBeLessThanOrEqual(15 * 60_000);
    await (await jetstreamManager(other)).streams.purge('HOSTLER_BODIES');
    await eventually('it is seen', () => nats.log.refusal('w1', false) === undefined);
    await connection.call(request('k'));
  } finally {
    await other.close();
    await stage.stop();
  }
}, 60_000);
