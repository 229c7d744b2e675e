/**
 * `npm run bench -- broker`: measures calls of a worker to a stdio server, each recorded on disk. The same run measures a raw
 * WebSocket echo, a raw NATS request, the bare NATS KV writes of a call, and receipts of the embedded log.
 * Each party is a separate process. Rounds are interleaved; ratios are computed within a round, and the median ratio is reported.
 * Options: --rounds N (5), --seconds N per measurement (1).
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { newUserPair } from '../dist/broker/nats/nats-client.js';
import { natsServerConfig } from '../dist/broker/nats/server-config.js';
import { newKey } from '../dist/config/keys.js';
import { echoStdio } from './contestants.mjs';
import { freePort } from './gateway-run.mjs';
import { file, median, rounds, say, seconds } from './report.mjs';

const concurrencies = [1, 16, 64];
const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-bench-'));
const main = file('../dist/cli/main.js');
const children = [];
const bars = [];
const bar = (what, value, holds, limit) => {
  bars.push(holds);
  say(`- ${holds ? 'holds' : 'MISSED'}: ${what}: ${value.toFixed(2)} (${limit})`);
};

/** Starts a process and resolves with the first line that it prints. */
async function start(command, args) {
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'] });
  children.push(child);
  let said = '';
  child.stderr.on('data', (chunk) => {
    said = (said + chunk).slice(-2_000);
  });
  const [line] = await Promise.race([
    once(child.stdout, 'data'),
    once(child, 'exit').then(() => Promise.reject(new Error(`${args.join(' ')} ended: ${said}`))),
  ]);
  return JSON.parse(line);
}

async function run(kind, concurrency, address, key = '') {
  const args = [file('./broker-run.mjs'), kind, String(concurrency), String(seconds), address, key];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', (chunk) => {
    text += chunk;
  });
  await once(child, 'close');
  return JSON.parse(text);
}

const write = (name, value) => {
  const place = path.join(folder, name);
  writeFileSync(place, typeof value === 'string' ? value : JSON.stringify(value), { mode: 0o600 });
  return place;
};
/** nats-server sends INFO as soon as it serves. */
async function greeted(port) {
  for (let tries = 0; tries < 500; tries++) {
    const socket = connect(port, '127.0.0.1');
    const isThere = await new Promise((resolve) => {
      socket.once('data', () => resolve(true));
      socket.once('error', () => resolve(false));
      socket.once('close', () => resolve(false));
    });
    socket.destroy();
    if (isThere) return;
    await sleep(20);
  }
  throw new Error('nats-server did not start');
}

// --- hosts and servers

const keys = Array.from({ length: 16 }, newKey);
const entries = Object.fromEntries(
  keys.map((key, at) => [
    `w${at}`,
    { hash: `sha256:${createHash('sha256').update(key).digest('hex')}`, worker: `w${at}`, role: 'all' },
  ]),
);
const config = {
  mcpServers: {
    echo: { ...echoStdio, pins: 'off', concurrency: 256 },
    slow: { ...echoStdio, args: [...echoStdio.args, '20'], pins: 'off', concurrency: 4 },
  },
  roles: { all: { allow: ['*/*'] } },
  log: { level: 'error' },
};
const limits = { callsPerWorker: 192, bytesPerSecond: 1024 ** 3 };
const upArgs = (name, value) => [
  ...[main, 'up', '--config', write(`${name}.json`, value), '--data-dir', path.join(folder, name)],
  ...['--port', '0', '--json'],
];

/** Starts a nats-server with this number of hosts. */
async function natsPlace(name, hosts) {
  const port = await freePort();
  const [host, worker] = [await newUserPair(), await newUserPair()];
  const natsConfig = natsServerConfig({
    ...{ listen: `127.0.0.1:${port}`, storeDir: path.join(folder, `nats-${name}`), maxFileBytes: 8 * 1024 ** 3 },
    hosts: [host.publicKey],
    workers: [{ worker: 'w', epoch: 'e', publicKey: worker.publicKey }],
  });
  children.push(spawn('nats-server', ['-c', write(`nats-${name}.conf`, natsConfig)], { stdio: 'ignore' }));
  await greeted(port);
  const url = `nats://127.0.0.1:${port}`;
  for (let at = 0; at < hosts; at++)
    await start(
      process.execPath,
      upArgs(`host-${name}-${at}`, {
        ...config,
        keys: { w: { nkey: worker.publicKey, worker: 'w', epoch: 'e', role: 'all' } },
        broker: { url, keyFile: write(`host-${name}.key`, host.seed), durability: 'process', limits },
      }),
    );
  return { url, hostSeed: host.seed, workerSeed: worker.seed };
}

const embedded = await start(
  process.execPath,
  upArgs('embedded', { ...config, keys: entries, broker: { listen: { port: 0 }, limits } }),
);
const receiptsHost = await start(process.execPath, [
  ...[file('./broker-run.mjs'), 'receipts-host', '0', '0', write('keys.json', entries), path.join(folder, 'receipts')],
]);
const one = await natsPlace('one', 1);
const three = await natsPlace('three', 3);
const echo = await start(process.execPath, [file('./broker-run.mjs'), 'ws-server', '0', '0', '']);
await start(process.execPath, [file('./broker-run.mjs'), 'nats-responder', '0', '0', one.url, one.hostSeed]);

const contestants = {
  'raw WebSocket echo': (c) => run('ws-echo', c, echo.url),
  'call, embedded': (c) => run('call', c, embedded.broker, keys[0]),
  'raw NATS request': (c) => run('nats', c, one.url, one.hostSeed),
  'create + update, NATS KV': (c) => run('claim', c, one.url, one.hostSeed),
  'call, NATS': (c) => run('call', c, `${one.url}/w`, one.workerSeed),
};

try {
  say('# The broker, measured');
  say('');
  say(
    `${new Date().toISOString().slice(0, 10)}, Node ${process.version}, ${os.cpus().length} cores, load ${os.loadavg()[0].toFixed(1)} before the run,`,
  );
  say(
    `median of ${rounds} interleaved rounds of ${seconds} s. A 60-byte call, worker to host to an echo server over stdio and back. The`,
  );
  say(
    'embedded log syncs before every receipt; nats-server 2.9 keeps acknowledged writes over kills, not over a power failure.',
  );
  say('"At 16" means 16 operations in flight. An operation is what the first column names.');
  const samples = Object.fromEntries(
    Object.keys(contestants).map((name) => [name, Object.fromEntries(concurrencies.map((c) => [c, []]))]),
  );
  const receipts = { 1: [], 16: [] };
  const slow = { one: [], three: [] };
  for (let round = 0; round < rounds; round++) {
    const names = round % 2 ? Object.keys(contestants).reverse() : Object.keys(contestants);
    for (const c of concurrencies) for (const name of names) samples[name][c].push(await contestants[name](c));
    for (const window of [1, 16])
      receipts[window].push(await run('receipts', window, receiptsHost.url, keys.join(',')));
    for (const [name, place] of Object.entries({ one, three }))
      slow[name].push(await run('slow-call', 64, `${place.url}/w`, place.workerSeed));
  }
  const rate = (list) => median(list.map(({ perSecond }) => perSecond));
  const p50 = (list) => median(list.map(({ p50Ms }) => p50Ms));
  say(`\n| | ${concurrencies.map((c) => `operations/s at ${c} | p50 ms`).join(' | ')} |`);
  say(`| --- | ${concurrencies.map(() => '---: | ---:').join(' | ')} |`);
  for (const [name, row] of Object.entries(samples))
    say(
      `| ${name} | ${concurrencies.map((c) => `${Math.round(rate(row[c]))} | ${p50(row[c]).toFixed(2)}`).join(' | ')} |`,
    );
  say('\n| receipts of the embedded log, each call run, answered and acknowledged | receipts/s | p50 ms | p99 ms |');
  say('| --- | ---: | ---: | ---: |');
  for (const window of [1, 16]) {
    const p99 = median(receipts[window].map(({ p99Ms }) => p99Ms));
    const [perSecond, p50Ms] = [rate(receipts[window]), p50(receipts[window])];
    say(
      `| 16 clients, ${window} in flight each | ${Math.round(perSecond)} | ${p50Ms.toFixed(2)} | ${p99.toFixed(2)} |`,
    );
  }
  say('\n### Bars\n');
  const least = (what, value, limit) => bar(what, value, value >= limit, `at least ${limit}`);
  least('receipts/s, 16 clients, 1 in flight each', rate(receipts[1]), 8_000);
  least('receipts/s, 16 clients, 16 in flight each', rate(receipts[16]), 25_000);
  least('embedded calls/s at 16', rate(samples['call, embedded'][16]), 3_000);
  const aloneMs = p50(samples['call, embedded'][1]);
  bar('embedded call alone, p50 in ms', aloneMs, aloneMs <= 1.5, 'at most 1.5');
  for (const [other, limit] of [
    ['raw NATS request', 0.2],
    ['create + update, NATS KV', 0.5],
  ]) {
    const ratios = samples['call, NATS'][64].map(({ perSecond }, at) => perSecond / samples[other][64][at].perSecond);
    least(`calls/s on NATS at 64, relative to ${other}`, median(ratios), limit);
    say(`  rounds: ${ratios.map((each) => each.toFixed(2)).join(', ')}`);
  }
  const scaled = slow.three.map(({ perSecond }, at) => perSecond / slow.one[at].perSecond);
  least('calls/s of a 20 ms tool with concurrency 4 on NATS: three hosts relative to one host', median(scaled), 1.8);
  say(`  rounds: ${scaled.map((each) => each.toFixed(2)).join(', ')}`);
} finally {
  for (const child of children.reverse()) {
    const gone = once(child, 'exit');
    child.stdin?.end();
    child.kill('SIGTERM');
    await gone;
  }
  rmSync(folder, { recursive: true, force: true });
}
process.exit(bars.every(Boolean) ? 0 : 1);
