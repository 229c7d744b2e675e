/**
 * One worker floods, three behave, all as real connections to a real host. Judged by the order in which the server was called;
 * how fast it was is only printed.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { RemoteTools } from '../../../src/broker/worker/index.js';
import { eventually } from '../../eventually.js';
import { countFor } from '../../tier.js';
import { BrokerPlace, type BrokerReady, hashOf, newKey } from './broker-place.js';

const file = (name: string) => fileURLToPath(new URL(name, import.meta.url));
const calm = ['ann', 'bob', 'cid'];
const names = [...calm, 'flood'];
const keys = new Map(names.map((name) => [name, newKey()]));
const sleepMs = 20;
/** Of the server; so many run at a time. */
const concurrency = 8;
/** Of one worker at the host; more are not even claimed. */
const callsPerWorker = 64;
const floodLanes = 1_000;

const place = new BrokerPlace();
let ready: BrokerReady;
let workers: { readonly name: string; readonly tools: RemoteTools }[];
let flood: ChildProcess | undefined;

beforeAll(async () => {
  place.configure({
    mcpServers: {
      sleepy: {
        ...{ command: 'perl', args: [file('../../fakes/sleepy-server.pl')], pins: 'off', concurrency },
        env: {
          LEDGER: path.join(place.folder, 'sleepy.ledger'),
          TOOLS: JSON.stringify([{ name: 'work', inputSchema: { type: 'object' } }]),
        },
      },
    },
    roles: { all: { allow: ['sleepy/*'] } },
    keys: Object.fromEntries([...keys].map(([name, key]) => [name, { hash: hashOf(key), mailbox: name, role: 'all' }])),
    broker: { listen: { port: 0 }, limits: { messagesPerSecond: 100_000, burst: 100_000, callsPerWorker } },
  });
  ready = await place.upWithBroker();
  workers = await Promise.all(
    calm.map(async (name) => ({ name, tools: await place.worker(ready.broker, keys.get(name) as string) })),
  );
});
afterAll(async () => {
  await endFlood();
  await place.remove();
});

async function beginFlood(): Promise<void> {
  flood = spawn(process.execPath, [file('./flood-worker.mjs'), ready.broker, 'sleepy'], {
    env: { ...process.env, KEY: keys.get('flood'), LANES: String(floodLanes), SLEEP_MS: String(sleepMs) },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  // Until it has as many there as may run of one, and more behind them.
  await eventually('a flood', () => starts().filter((name) => name === 'flood').length > 100, 30_000);
}

async function endFlood(): Promise<void> {
  if (!flood) return;
  flood.stdin?.end();
  if (flood.exitCode === null) await once(flood, 'exit');
  flood = undefined;
}

/** Whose call began, in order. */
const starts = (): string[] =>
  place.ran('sleepy').flatMap((line) => (line.startsWith('start ') ? [line.slice(6).split('-')[0] as string] : []));

let number = 0;
const callOnce = (tools: RemoteTools, name: string) =>
  tools.execute('sleepy', 'work', { nonce: `${name}-${number++}`, sleepMs }, { deadlineMs: 60_000 });

/** Each of the calm makes so many calls, so many at a time; how long each of them took for all. */
const together = (count: number, lanes: number): Promise<number[]> =>
  Promise.all(
    workers.map(async ({ tools, name }) => {
      const beganMs = performance.now();
      let left = count;
      const lane = async () => {
        while (left-- > 0) await callOnce(tools, name);
      };
      await Promise.all(Array.from({ length: lanes }, lane));
      return performance.now() - beganMs;
    }),
  );

test('K8 one worker floods: each of the others has its turn, and is served as if it were alone', {
  timeout: 120_000,
}, async () => {
  const calls = countFor(10, 60);
  await together(10, 1);
  const soloMs = await together(calls, 1);
  await beginFlood();
  // With one call at a time, below their share of the server.
  const floodedMs = await together(calls, 1);
  const ratios = soloMs.map((ms, at) => Math.round((ms / (floodedMs[at] as number)) * 100));
  console.log(`K8 one at a time under a flood: ${ratios.join(', ')} % of the solo throughput`);

  // With more waiting than their share: each has a quarter of the server while all of them ask.
  const before = starts().length;
  await together(150, 30);
  await endFlood();
  const order = starts().slice(before);
  // Before the first and after the last of them, not everybody asks.
  const busy = order.slice(
    Math.max(...calm.map((name) => order.indexOf(name))),
    Math.min(...calm.map((name) => order.lastIndexOf(name))),
  );
  const shares = names.map((name) => busy.filter((each) => each === name).length / busy.length);
  const longest = longestRun(busy);
  console.log(
    `K8 shares of ${busy.length} calls: ${shares.map((share, at) => `${names[at]} ${Math.round(share * 100)} %`).join(', ')}; ` +
      `at most ${longest} of the flood between two of a calm one`,
  );
  expect(busy.length).toBeGreaterThan(200);
  expect(longest).toBeLessThanOrEqual(callsPerWorker);
  for (const share of shares.slice(0, calm.length)) expect(share).toBeGreaterThanOrEqual(0.9 / names.length);
});

/** Of the flood between two calls of one calm worker. */
function longestRun(order: readonly string[]): number {
  const since = new Map(calm.map((name) => [name, 0]));
  let longest = 0;
  for (const name of order) {
    if (name !== 'flood') since.set(name, 0);
    else for (const [each, count] of since) since.set(each, count + 1);
    longest = Math.max(longest, ...since.values());
  }
  return longest;
}
