/** The bound of the replies that a worker has not acknowledged, on NATS, when many calls end at the same time. */
import { expect, test } from 'vitest';
import { brokerLimits } from '../../../src/broker/protocol/limits.js';
import { eventually } from '../../eventually.js';
import { gate } from '../../fakes/service-rig.js';
import { keys, NatsStage, request } from './nats-rig.js';

test('AC-BR7 calls that end at the same time: the replies of a worker that acknowledges none have no more bytes than its bound', async () => {
  const stage = await NatsStage.start();
  try {
    const host = await stage.host();
    const open = gate<void>();
    const text = `{"content":[],"text":"${'x'.repeat(3_900_000)}"}`;
    host.upstreams.onCall = () => open.promise.then(() => text);
    const { connection, replies } = await stage.connect('w1');
    const all = keys(24);
    await Promise.all(all.map((key) => connection.call(request(key))));
    let most = 0;
    const look = () => {
      most = Math.max(most, host.nats.log.usage().replyBytes);
      return replies.size;
    };
    open.resolve();
    await eventually('the replies for which there is room', () => look() >= 16);
    for (let round = 0; round < 3; round++) {
      connection.acknowledge([...replies.keys()].slice(round, round + 1));
      await eventually('another one', () => look() >= 17 + round);
    }
    expect(most).toBeLessThanOrEqual(brokerLimits.replyBytesPerWorker);
    expect(replies.size).toBeLessThan(all.length);
    connection.acknowledge([...replies.keys()]);
    await eventually('the others', () => look() === all.length);
  } finally {
    await stage.stop();
  }
}, 60_000);
