/**
 * F2: whatever a server answers, no call ever gets an answer that was not written for that call. An answer that is nested too deeply
 * to be read ends its own call, and no other.
 */
import { expect, test } from 'vitest';
import type { HostError } from '../../src/kernel/errors.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { randomInt, seededRandom } from '../../src/kernel/random.js';
import { Peer } from '../../src/wire/peer.js';
import { ScriptedChannel } from '../fakes/scripted-channel.js';
import { countFor } from '../tier.js';

const answersTotal = countFor(200_000, 1_000_000);

const deep = '['.repeat(200) + ']'.repeat(200);

/** A frame that answers `id`, or only looks like an answer. `for` in the payload is the id of the call that it belongs to; -1: none. */
const forgeries: ReadonlyArray<(id: number) => string> = [
  (id) => `{"jsonrpc":"2.0","id":"${id}","result":{"for":-1}}`,
  (id) => `{"jsonrpc":"2.0","id":${id},"result":{"for":-1},"error":{"code":1,"message":"both"}}`,
  (id) => `{"jsonrpc":"2.0","id":${id + 1_000_000},"id":${id},"result":{"for":-1}}`,
  (id) => `{"jsonrpc":"2.0","Id":${id + 1_000_000},"id":${id},"result":{"for":-1}}`,
  (id) => `{"jsonrpc":"2.0","id":${id},"method":"x","result":{"for":-1}}`,
  (id) => `{"jsonrpc":"2.0","id":[${id}],"result":{"for":-1}}`,
  (id) => `{"jsonrpc":"2.0","id":${id}.5,"result":{"for":-1}}`,
  (id) => `{"jsonrpc":"2.0","id":-${id},"result":{"for":-1}}`,
  () => '{"jsonrpc":"2.0","id":0,"result":{"for":-1}}',
  () => '{"jsonrpc":"2.0","id":9007199254740993,"result":{"for":-1}}',
  () => '{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"for nobody"}}',
  (id) => `{"jsonrpc":"2.0","__proto__":{"id":${id}},"result":{"for":-1}}`,
  (id) => `{"jsonrpc":"2.0","id":${id},"result":{"for":-1}`,
  (id) => `{"jsonrpc":"2.0","id":${id},"result":${deep},"id":${id}}`,
  (id) => `{"jsonrpc":"2.0","id":"${id}","result":${deep}}`,
  (id) => `{"jsonrpc":"2.0","id":${id},"method":"x","result":${deep}}`,
  (id) => `{"jsonrpc":"1.0","id":${id},"result":{"for":-1}}`,
];

test(`F2 semantic fuzz: 0 of ${answersTotal} answers reach the wrong call`, { timeout: 120_000 }, async () => {
  const seed = Number(process.env.SEED ?? 2);
  const random = seededRandom(seed);
  const channel = new ScriptedChannel();
  const peer = new Peer('fuzzed', channel, new FakeClock());
  const open: number[] = [];
  const settled: number[] = [];
  const wrong: string[] = [];
  let nextId = 1;
  let delivered = 0;
  let forged = 0;
  let real = 0;
  const unreadable = new Set<number>();
  const refused: number[] = [];

  for (let sent = 0; sent < answersTotal; sent++) {
    while (open.length < 32) {
      const id = nextId++;
      open.push(id);
      peer.request('tools/call', undefined, { deadlineAtMs: 1 }).then(
        ({ bytes }) => {
          delivered++;
          if (!bytes.includes(`"for":${id}}`)) wrong.push(`${id} got ${bytes}`);
        },
        (error: HostError) => {
          refused.push(id);
          if (error.details.reason !== 'too_deep' || !unreadable.has(id)) wrong.push(`${id} got ${error}`);
        },
      );
      channel.sent.length = 0;
    }
    const at = randomInt(random, 0, open.length - 1);
    const id = open[at] as number;
    const roll = random();
    if (roll < 0.5) {
      const spelled = random() < 0.1 ? `${id}.0` : `${id}`;
      channel.say(`{"jsonrpc":"2.0","id":${spelled},"result":{"for":${id}}}`);
      open.splice(at, 1);
      settled.push(id);
      if (settled.length > 100) settled.shift();
      real++;
    } else if (roll < 0.51) {
      unreadable.add(id);
      channel.say(`{"jsonrpc":"2.0","id":${id},"result":${deep}}`);
      open.splice(at, 1);
    } else if (roll < 0.6 && settled.length > 0) {
      channel.say(`{"jsonrpc":"2.0","id":${settled[randomInt(random, 0, settled.length - 1)]},"result":{"for":-1}}`);
      forged++;
    } else {
      channel.say((forgeries[randomInt(random, 0, forgeries.length - 1)] as (id: number) => string)(id));
      forged++;
    }
    if (sent % 10_000 === 0) await Promise.resolve();
  }
  await new Promise((resolve) => setImmediate(resolve));
  console.log(`F2 seed ${seed}: ${real} real answers, ${forged} forged or spoiled, ${delivered} delivered`);
  expect(wrong).toEqual([]);
  expect([delivered, refused.length]).toEqual([real, unreadable.size]);
  expect(peer.pending.unanswered).toBe(open.length);
});
