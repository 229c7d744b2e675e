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

test('replies that are not taken: the worker is refused before its next call runs, and served again when it takes them', async () => {
  const stage = await NatsStage.start();
  try {
    const host = await stage.host();
    host.upstreams.onCall = () => `{"content":[],"text":"${'x'.repeat(3_900_000)}"}`;
    const { connection, replies } = await stage.connect('w1');
    const sent: string[] = [];
    let refusal: { code: string; details: { retryAfterMs?: number } } | undefined;
    for (const key of keys(24)) {
      refusal = await connection.call(request(key)).then(
        () => undefined,
        (error) => error,
      );
      if (refusal) break;
      sent.push(key);
      if (sent.length <= 17) await eventually('the reply', () => replies.has(key) || host.nats.log.usage().open > 0);
    }
    expect(refusal).toMatchObject({ code: 'overloaded', details: { execution: 'not_executed' } });
    expect(refusal?.details.retryAfterMs).toBeGreaterThanOrEqual(1_000);
    const ran = host.ran().length;
    connection.taken([...replies.keys()]);
    await eventually('room', () => host.nats.log.refusal('w1', 'e_w1', false) === undefined);
    await eventually('replies that waited for room', () => replies.size === ran);
    connection.taken([...replies.keys()]);
    await connection.call(request('after'));
    await eventually('the reply', () => replies.has('after'));
    expect(replies.size).toBe(sent.length + 1);
  } finally {
    await stage.stop();
  }
}, 60_000);
