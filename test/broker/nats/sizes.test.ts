/** Large replies on NATS: those that were acknowledged cost nothing. */
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
    await eventually('all replies are acknowledged', () => host.nats.log.usage().replyBytes === 0);
    largest = Math.max(largest, stage.server.storeBytes());
    expect(largest).toBeLessThan(256 * MiB);
    await worker.close();
  } finally {
    await stage.stop();
  }
}, 300_000);

test('AC-BR7 replies that are not acknowledged: the worker is refused before its next call runs, and served again when it takes them', async () => {
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
