/**
 * `npm run bench -- broker`: a call from a worker through the broker to a server over stdio, kept on disk on its way, beside a raw
 * WebSocket echo and a raw request of NATS in the same run; and how many receipts the embedded broker gives.
 * Everybody is a process of its own. Rounds are interleaved; ratios are taken within a round, and their median counts.
 * Options: --rounds N (5), --seconds N per measurement (1), --save writes docs/reports/broker.md.
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
import { headBytes } from '../dist/broker/nats/nats-streams.js';
import { messageBytesMax } from '../dist/broker/ports.js';
import { newKey } from '../dist/config/keys.js';
import { echoStdio } from './contestants.mjs';
import { freePort } from './gateway-run.mjs';
import { file, median, rounds, saveAs, say, seconds } from './report.mjs';

const concurrencies = [1, 16, 64];
const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-bench-'));
const main = file('../dist/cli/main.js');
const children = [];
const bars = [];
const bar = (what, value, holds, limit) => {
  bars.push(holds);
  say(`- ${holds ? 'holds' : 'MISSED'}: ${what}: ${value.toFixed(2)} (${limit})`);
};

/** Resolves with the first line it prints. */
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
/** nats-server greets as soon as it serves. */
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

// --- who is there

const keys = Array.from({ length: 16 }, newKey);
const entries = Object.fromEntries(
  keys.map((key, at) => [
    `w${at}`,
    { hash: `sha256:${createHash('sha256').update(key).digest('hex')}`, mailbox: `w${at}`, role: 'all' },
  ]),
);
const config = {
  mcpServers: { echo: { ...echoStdio, pins: 'off', concurrency: 256 } },
  roles: { all: { allow: ['*/*'] } },
  log: { level: 'error' },
};
const limits = {
  ...{ messagesPerSecond: 1_000_000, burst: 1_000_000, mailboxMessages: 10_000_000, mailboxBytes: 16 * 1024 ** 3 },
  ...{ calls: 256, callsPerWorker: 256 },
};
const upArgs = (name, value) => [
  ...[main, 'up', '--config', write(`${name}.json`, value), '--data-dir', path.join(folder, name)],
  ...['--port', '0', '--json'],
];
const embedded = await start(
  process.execPath,
  upArgs('embedded', { ...config, keys: entries, broker: { listen: { port: 0 }, limits } }),
);
const alone = await start(process.execPath, [
  ...[main, 'broker', '--data-dir', path.join(folder, 'alone'), '--json'],
  ...['--config', write('alone.json', { keys: entries, broker: { listen: { port: 0 }, limits } })],
]);
const natsPort = await freePort();
const natsServer = spawn(
  'nats-server',
  [
    '-c',
    write(
      'nats.conf',
      `listen: "127.0.0.1:${natsPort}"\nmax_payload: ${messageBytesMax + headBytes}\njetstream { store_dir: "${folder}/nats", max_mem: 64M, max_file: 32G }\n`,
    ),
  ],
  { stdio: 'ignore' },
);
children.push(natsServer);
await greeted(natsPort);
const natsUrl = `nats://127.0.0.1:${natsPort}`;
// A key is asked for by permissions of the server, which the bench does without.
const nkey = `U${'A'.repeat(55)}`;
await start(
  process.execPath,
  upArgs('nats-host', {
    ...config,
    keys: { w: { nkey, mailbox: 'w', role: 'all' } },
    broker: { url: natsUrl, durability: 'process', limits: { calls: 256, callsPerWorker: 256 } },
  }),
);
const echo = await start(process.execPath, [file('./broker-run.mjs'), 'ws-server', '0', '0', '']);
await start(process.execPath, [file('./broker-run.mjs'), 'nats-responder', '0', '0', natsUrl]);

const contestants = {
  'raw WebSocket echo': (c) => run('ws-echo', c, echo.url),
  'call, embedded broker': (c) => run('call', c, embedded.broker, keys[0]),
  'raw NATS request': (c) => run('nats', c, natsUrl),
  'call, NATS': (c) => run('call', c, `${natsUrl}/w`, 'user:password'),
};

try {
  say('# The broker, measured');
  say('');
  say(
    `${new Date().toISOString().slice(0, 10)}, Node ${process.version}, ${os.cpus().length} cores, load ${os.loadavg()[0].toFixed(1)} before the run,`,
  );
  say(
    `median of ${rounds} interleaved rounds of ${seconds} s. A 60-byte call, worker to broker to host to an echo server over stdio and back. The`,
  );
  say(
    'embedded broker syncs before every receipt; nats-server 2.9 keeps what it acknowledges over kills, not over a loss of power.',
  );
  const samples = Object.fromEntries(
    Object.keys(contestants).map((name) => [name, Object.fromEntries(concurrencies.map((c) => [c, []]))]),
  );
  const acks = { 1: [], 64: [] };
  for (let round = 0; round < rounds; round++) {
    const names = round % 2 ? Object.keys(contestants).reverse() : Object.keys(contestants);
    for (const c of concurrencies) for (const name of names) samples[name][c].push(await contestants[name](c));
    for (const window of [1, 64]) acks[window].push(await run('acks', window, alone.url, keys.join(',')));
  }
  const rate = (list) => median(list.map(({ perSecond }) => perSecond));
  const p50 = (list) => median(list.map(({ p50Ms }) => p50Ms));
  say(`\n| | ${concurrencies.map((c) => `a second at ${c} | p50 ms`).join(' | ')} |`);
  say(`| --- | ${concurrencies.map(() => '---: | ---:').join(' | ')} |`);
  for (const [name, row] of Object.entries(samples))
    say(
      `| ${name} | ${concurrencies.map((c) => `${Math.round(rate(row[c]))} | ${p50(row[c]).toFixed(2)}`).join(' | ')} |`,
    );
  say('\n| receipts of the embedded broker | a second | p50 ms | p99 ms |');
  say('| --- | ---: | ---: | ---: |');
  for (const window of [1, 64]) {
    const p99 = median(acks[window].map(({ p99Ms }) => p99Ms));
    say(
      `| 16 clients, window ${window} | ${Math.round(rate(acks[window]))} | ${p50(acks[window]).toFixed(2)} | ${p99.toFixed(2)} |`,
    );
  }
  say('\n### Bars\n');
  bar('receipts a second, 16 clients', rate(acks[1]), rate(acks[1]) >= 5_000, 'at least 5,000');
  bar('receipts a second, pipelined', rate(acks[64]), rate(acks[64]) >= 20_000, 'at least 20,000');
  const ratios = samples['call, NATS'][64].map(
    ({ perSecond }, round) => perSecond / samples['raw NATS request'][64][round].perSecond,
  );
  bar('calls through NATS, of raw requests at 64', median(ratios), median(ratios) >= 0.5, 'at least 0.5');
  say(`  rounds: ${ratios.map((each) => each.toFixed(2)).join(', ')}`);
} finally {
  for (const child of children.reverse()) {
    const gone = once(child, 'exit');
    child.stdin?.end();
    child.kill('SIGTERM');
    await gone;
  }
  rmSync(folder, { recursive: true, force: true });
}
saveAs('broker');
process.exit(bars.every(Boolean) ? 0 : 1);
