/** Large replies on NATS: those that were taken cost nothing. */
import { expect, test } from 'vitest';
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
    await eventually('all replies are taken', () => host.nats.log.usage().replyBytes === 0);
    largest = Math.max(largest, stage.server.storeBytes());
    expect(largest).toBeLessThan(256 * MiB);
    await worker.close();
  } finally {
    await stage.stop();
  }
}, 300_000);

test('replies past the bound of a worker wait in memory until it takes earlier ones; none is lost', async () => {
  const stage = await NatsStage.start();
  try {
    const host = await stage.host();
    host.upstreams.onCall = () => `{"content":[],"text":"${'x'.repeat(3_900_000)}"}`;
    const { connection, replies } = await stage.connect('w1');
    const all = keys(20);
    for (const key of all) {
      await connection.call(request(key));
      await eventually('the call is over or waits', () => replies.has(key) || host.nats.log.usage().finished >= 16);
    }
    // 64 MiB are 17 replies.
    await eventually('17 replies', () => replies.size === 17);
    expect(host.nats.log.usage()).toMatchObject({ open: 3, finished: 17 });
    connection.taken([...replies.keys()]);
    await eventually('the other replies', () => replies.size === all.length);
    connection.taken(all);
    await eventually('all are taken', () => host.nats.log.usage().replyBytes === 0);
  } finally {
    await stage.stop();
  }
}, 60_000);
