/**
 * Runs alone in a PID namespace: nine calm workers and one worker that floods, which is a separate process, at one host. Prints one
 * JSON line. Arguments: rounds, a seed that is not used, folder, duration of one measurement in ms, `unbounded` for no limit of bytes.
 *
 * Each round has four measurements: two without the flood, then two with it. In the first of each two the calm workers are paced: they
 * begin a call at fixed intervals. In the second they are eager: they begin the next call at once.
 */
import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { connect } from '../../dist/broker/worker/index.js';

const [rounds, , folder, forMs, rate] = process.argv.slice(2).map((word) => (/^\d+$/.test(word) ? Number(word) : word));
const here = (file) => fileURLToPath(new URL(file, import.meta.url));
const nap = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const calm = Array.from({ length: 9 }, (_, at) => `calm${at}`);
const callMs = 5;
const beatMs = 50;
/** Calls that the server runs at once, fewer than the flood has ready. */
const concurrency = 8;
/** Calls of the flood at the same time: the maximum for one worker. */
const floodLanes = 256;

// --- a host with a broker, its workers, and the flood

const keyOf = new Map([...calm, 'flood'].map((name) => [name, `hk_${randomBytes(32).toString('base64url')}`]));
const hash = (text) => `sha256:${createHash('sha256').update(text).digest('hex')}`;
const ledger = path.join(folder, 'ledger');
const config = path.join(folder, 'hostler.json');
writeFileSync(
  config,
  JSON.stringify({
    mcpServers: {
      sleepy: {
        ...{ command: 'perl', args: [here('../fakes/sleepy-server.pl')], pins: 'off', concurrency },
        env: { LEDGER: ledger, TOOLS: JSON.stringify([{ name: 'work', inputSchema: { type: 'object' } }]) },
      },
    },
    roles: { all: { allow: ['sleepy/*'] } },
    keys: Object.fromEntries([...keyOf].map(([name, key]) => [name, { hash: hash(key), worker: name, role: 'all' }])),
    broker: { listen: { port: 0 }, ...(rate === 'unbounded' ? { limits: { bytesPerSecond: 1024 ** 3 } } : {}) },
    log: { level: 'error' },
  }),
  { mode: 0o600 },
);
const dataDir = path.join(folder, 'host');
const up = spawn(
  process.execPath,
  [here('../../dist/cli/main.js'), 'up', '--config', config, '--data-dir', dataDir, '--port', '0', '--json'],
  { stdio: ['ignore', 'pipe', 'ignore'] },
);
let said = '';
up.stdout.on('data', (chunk) => (said += chunk));
while (!said.includes('\n')) {
  await nap(20);
  if (up.exitCode !== null) throw new Error('the host did not start');
}
const url = JSON.parse(said).broker;
const workers = await Promise.all(
  calm.map(async (name) => ({ name, tools: await connect({ broker: url, key: keyOf.get(name), connectMs: 60_000 }) })),
);

let flood;
async function beginFlood() {
  // In reality the worker is on another machine, so its own CPU use must not slow the others down.
  flood = spawn('nice', ['-n', '10', process.execPath, here('../broker/e2e/flood-worker.mjs'), url, 'sleepy'], {
    env: { ...process.env, KEY: keyOf.get('flood'), LANES: String(floodLanes), SLEEP_MS: String(callMs) },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  await once(flood.stdout, 'data');
  await nap(1_500);
}
async function endFlood() {
  flood.stdin.end();
  if (flood.exitCode === null) await once(flood, 'exit');
  // Waits until the remaining calls of the flood have run or were refused.
  for (let before = -1; before !== began().flood; await nap(300)) before = began().flood;
}
/** Number of calls that reached the server, by kind of worker. */
function began() {
  const counts = { calm: 0, flood: 0 };
  for (const [, who] of readFileSync(ledger, 'utf8').matchAll(/^start (calm|flood)/gm)) counts[who]++;
  return counts;
}
/** CPU time of the host, in ms. */
const cpuMs = () => {
  const [, , , , , , , , , , , user, system] = readFileSync(`/proc/${up.pid}/stat`, 'utf8').split(' ').slice(1);
  return (Number(user) + Number(system)) * 10;
};

// --- one measurement

let number = 0;
let failures = 0;
async function measure(isPaced, forMs) {
  const tookMs = [];
  const [beganCount, beganCpuMs] = [began(), cpuMs()];
  const rates = await Promise.all(
    workers.map(async ({ name, tools }, at) => {
      // Staggered, so that the workers do not start at the same moment.
      await nap((at * beatMs) / workers.length);
      const beganMs = performance.now();
      let done = 0;
      for (
        let dueMs = beganMs;
        performance.now() < beganMs + forMs;
        dueMs = Math.max(dueMs + beatMs, performance.now() - beatMs)
      ) {
        if (isPaced && dueMs > performance.now()) await nap(dueMs - performance.now());
        const callBeganMs = performance.now();
        const args = { nonce: `${name}-${number++}`, sleepMs: callMs };
        await tools.execute('sleepy', 'work', args, { deadlineMs: 60_000 }).then(
          () => done++,
          () => failures++,
        );
        tookMs.push(performance.now() - callBeganMs);
      }
      return (done * 1_000) / (performance.now() - beganMs);
    }),
  );
  tookMs.sort((a, b) => a - b);
  const at = (part) => Math.round(tookMs[Math.floor(tookMs.length * part)] * 10) / 10;
  return {
    rates,
    p50Ms: at(0.5),
    p99Ms: at(0.99),
    floodPerSecond: Math.round(((began().flood - beganCount.flood) * 1_000) / forMs),
    hostCpu: Math.round(((cpuMs() - beganCpuMs) / forMs) * 100) / 100,
  };
}

// --- rounds

const kinds = ['paced', 'eager'];
const seen = Object.fromEntries(kinds.map((kind) => [kind, { solo: [], flooded: [] }]));
await measure(false, 1_500);
for (let round = 0; round < rounds; round++) {
  for (const kind of kinds) seen[kind].solo.push(await measure(kind === 'paced', forMs));
  await beginFlood();
  for (const kind of kinds) seen[kind].flooded.push(await measure(kind === 'paced', forMs));
  await endFlood();
}
for (const { tools } of workers) await tools.close();
up.kill('SIGTERM');
const [code] = up.exitCode === null ? await once(up, 'exit') : [up.exitCode];

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const summed = (measured) => ({
  perSecond: Math.round(median(measured.map(({ rates }) => rates.reduce((sum, each) => sum + each))) * 10) / 10,
  ...Object.fromEntries(
    ['p50Ms', 'p99Ms', 'floodPerSecond', 'hostCpu'].map((name) => [name, median(measured.map((each) => each[name]))]),
  ),
});
const figures = Object.fromEntries(
  kinds.map((kind) => {
    const { solo, flooded } = seen[kind];
    // Compared per worker within a round, then the median is used, because other load of this machine differs between rounds.
    const keptIn = (round, at) => Math.round((flooded[round].rates[at] / solo[round].rates[at]) * 1_000) / 10;
    const kept = calm.map((_, at) => median(solo.map((_half, round) => keptIn(round, at))));
    return [
      kind,
      {
        keptPercent: kept,
        least: Math.min(...kept),
        leastOfRounds: flooded.map((_, round) => Math.min(...calm.map((_each, at) => keptIn(round, at)))),
        solo: summed(solo),
        flooded: summed(flooded),
      },
    ];
  }),
);
console.log(JSON.stringify({ rounds, forMs, failures, ...figures, exit: code }));
process.exit(0);
