/** One host serves as many calls of one worker as the configuration allows, and a thousand workers. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { eventually } from '../../eventually.js';
import { countFor } from '../../tier.js';
import { BrokerPlace, type BrokerReady, hashOf, newKey } from './broker-place.js';
import { RawWorker } from './raw-worker.js';

let place: BrokerPlace;
beforeEach(() => {
  place = new BrokerPlace();
});
afterEach(() => place.remove());

const MiB = 1024 * 1024;

test('with the largest `callsPerWorker`, 192 calls of one worker run at once, and the others wait', {
  timeout: 90_000,
}, async () => {
  const key = newKey();
  const perl = fileURLToPath(new URL('../../fakes/sleepy-server.pl', import.meta.url));
  const tool = JSON.stringify([{ name: 'work', inputSchema: { type: 'object' } }]);
  place.configure({
    mcpServers: {
      sleepy: {
        ...{ command: 'perl', args: [perl], pins: 'off', concurrency: 1_000, queueLength: 1_000 },
        env: { LEDGER: place.sleepyLedger, TOOLS: tool },
      },
    },
    roles: { all: { allow: ['sleepy/*'] } },
    keys: { ann: { hash: hashOf(key), worker: 'ann', role: 'all' } },
    broker: { listen: { port: 0 }, limits: { callsPerWorker: 192 } },
  });
  const { broker } = await place.upWithBroker();
  const tools = await place.worker(broker, key);
  const stopped = new AbortController();
  const options = { deadlineMs: 60_000, signal: stopped.signal };
  const calls = Array.from({ length: 200 }, (_, at) =>
    tools.execute('sleepy', 'work', { nonce: `n${at}`, sleepMs: at === 0 ? 3_000 : 60_000 }, options).then(
      () => 'done',
      ({ code }) => code as string,
    ),
  );
  const started = () => place.ran('sleepy').filter((line) => line.startsWith('start ')).length;
  await eventually('192 calls run', () => started() === 192);
  expect(await calls[0]).toBe('done');
  await eventually('one more', () => started() === 193);
  stopped.abort();
  expect(new Set(await Promise.all(calls))).toEqual(new Set(['done', 'cancelled']));
  expect(started()).toBe(193);
});

test('a thousand workers are connected with less than 200 MB, and each gets its own reply', {
  timeout: 300_000,
}, async () => {
  const count = countFor(100, 1_000);
  const workers = Array.from({ length: count }, (_, at) => ({ name: `w${at}`, key: newKey() }));
  place.configure({
    mcpServers: { books: place.ledgerEntry('books') },
    roles: { all: { allow: ['books/*'] } },
    keys: Object.fromEntries(workers.map(({ name, key }) => [name, { hash: hashOf(key), worker: name, role: 'all' }])),
    broker: { listen: { port: 0 } },
  });
  const up = place.up();
  const { broker } = (await up.ready()) as BrokerReady;
  const connected: RawWorker[] = [];
  // An address may have 128 connections that are not upgraded.
  for (let at = 0; at < count; at += 50)
    connected.push(...(await Promise.all(workers.slice(at, at + 50).map(({ key }) => RawWorker.joined(broker, key)))));
  for (const [at, worker] of connected.entries()) worker.call(`call-${at}`, { deadlineMs: 60_000 });
  await Promise.all(connected.map((worker, at) => worker.heard('reply', `call-${at}`)));
  const replies = connected.map(({ messages }) => messages.flatMap(({ op, key }) => (op === 'reply' ? [key] : [])));
  expect(replies).toEqual(connected.map((_, at) => [`call-${at}`]));
  expect(place.ran('books')).toHaveLength(count);
  const status = readFileSync(`/proc/${up.child.pid}/status`, 'utf8');
  const rssBytes = 1_024 * Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]);
  console.log(`${count} workers on one host: ${Math.round(rssBytes / MiB)} MiB`);
  expect(rssBytes).toBeLessThan(200_000_000);
  for (const worker of connected) worker.end();
});
