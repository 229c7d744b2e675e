/** Messages that no honest worker sends, over real sockets, while another worker is served. */
import { expect, test } from 'vitest';
import { seededRandom } from '../../../src/kernel/random.js';
import { eventually } from '../../eventually.js';
import { countFor } from '../../tier.js';
import { hostileMessage } from './hostile-messages.js';
import { keys, SocketPlace } from './socket-place.js';

const hostile = countFor(300, 3_000);
test(`D-53 ${hostile} hostile messages: each ends its own connection, none reaches the service, others are served`, {
  timeout: 180_000,
}, async () => {
  const place = await SocketPlace.open();
  const random = seededRandom(Number(process.env.SEED ?? 53));
  const other = await place.admitted('w2');
  for (let n = 0; n < hostile; n++) {
    const { what, bytes, isBinary } = hostileMessage(random, n);
    const raw = await place.admitted('w1');
    raw.socket.send(bytes, { binary: isBinary });
    const { code, text } = await raw.closed;
    expect([what, code]).toEqual([what, 4000]);
    expect(text).not.toContain(keys.w1);
    if (n % 50 !== 0) continue;
    const asked = other.messages.length;
    other.send({ v: 1, op: 'manifest', id: `m${n}` });
    await eventually('the other is served', () => other.messages.length > asked);
  }
  await place.close();
  const { calls, cancels, ackedKeys, asks } = place.service;
  expect([calls, cancels, ackedKeys, asks]).toEqual([[], [], [], []]);
  const said = JSON.stringify(place.events);
  expect(said.includes(keys.w1) || said.includes(keys.w2)).toBe(false);
});
