/** Large results that their worker has acknowledged do not count: no worker is refused because of them, and the store does not grow. */
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, test } from 'vitest';
import { countFor } from '../../tier.js';
import { BrokerPlace, type BrokerReady, hashOf, newKey } from './broker-place.js';

const place = new BrokerPlace();
afterAll(() => place.remove());

const MiB = 1024 * 1024;
const resultBytes = 3.9 * MiB;

test('results of 3.9 MB beyond the bound of a worker are all delivered, and the store stays small', {
  timeout: 900_000,
}, async () => {
  const key = newKey();
  place.configure({
    mcpServers: {
      large: {
        ...{ command: process.execPath, args: [fileURLToPath(new URL('./large-server.mjs', import.meta.url))] },
        pins: 'off',
      },
    },
    roles: { all: { allow: ['large/*'] } },
    keys: { ann: { hash: hashOf(key), worker: 'ann', role: 'all' } },
    broker: { listen: { port: 0 } },
  });
  const { broker } = (await place.up().ready()) as BrokerReady;
  const tools = await place.worker(broker, key);
  const count = countFor(40, 500);
  let largest = 0;
  let refused = 0;
  const lane = async (from: number) => {
    for (let i = from; i < count; i += 2) {
      const { bytes } = await tools
        .execute('large', 'work', { bytes: resultBytes }, { deadlineMs: 60_000 })
        .catch((error) => {
          refused++;
          throw error;
        });
      expect(bytes.length).toBeGreaterThan(resultBytes);
      largest = Math.max(largest, storeBytes());
    }
  };
  await Promise.all([lane(0), lane(1)]);
  console.log(`${count} results of 3.9 MB: ${refused} refused, store at most ${Math.round(largest / MiB)} MiB`);
  expect([refused, largest < 256 * MiB]).toEqual([0, true]);
});

const storeBytes = (): number =>
  Number(
    execFileSync('du', ['-sb', path.join(place.dataDir, 'broker')])
      .toString()
      .split('\t')[0],
  );
