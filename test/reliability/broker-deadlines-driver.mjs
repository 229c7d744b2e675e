/**
 * Runs alone in a PID namespace: a worker calls, with random deadlines, a slow server of a host in another process. The ledger of
 * the server shows when calls began, the worker when they ended. Some calls are cancelled. Prints one JSON line. Arguments: calls,
 * seed, folder.
 *
 * All processes are on one machine, so their wall clocks can be compared.
 */
import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { connect } from '../../dist/broker/worker/index.js';
import { randomInt, seededRandom } from '../../dist/testing.js';

const [total, seed, folder] = [Number(process.argv[2]), Number(process.argv[3]), process.argv[4]];
const random = seededRandom(seed);
const here = (file) => fileURLToPath(new URL(file, import.meta.url));
const main = here('../../dist/cli/main.js');
const nap = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const wallMs = () => performance.timeOrigin + performance.now();
const ledger = path.join(folder, 'ledger');

// --- host, worker

const key = `hk_${randomBytes(32).toString('base64url')}`;
const hash = `sha256:${createHash('sha256').update(key).digest('hex')}`;
const write = (name, value) => {
  const file = path.join(folder, name);
  writeFileSync(file, typeof value === 'string' ? value : JSON.stringify(value), { mode: 0o600 });
  return file;
};
const started = [];
const delayFile = (name) => path.join(folder, `${name}.delay`);
async function start(...words) {
  const imports = ['--import', here('./loop-delay.mjs'), '--import', here('./hand-over.mjs')];
  const child = spawn(process.execPath, [...imports, main, ...words, '--json'], {
    env: { ...process.env, LOOP_DELAY: delayFile(words[0]), HANDED_OVER: path.join(folder, `${words[0]}.handed`) },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const it = { child, said: '', stderr: '' };
  child.stdout.on('data', (chunk) => (it.said += chunk));
  child.stderr.on('data', (chunk) => (it.stderr = (it.stderr + chunk).slice(-4_000)));
  it.gone = new Promise((resolve) => child.once('exit', (code, signal) => resolve(code ?? signal)));
  started.unshift(it);
  while (!it.said.includes('\n')) {
    await nap(20);
    if (child.exitCode !== null) throw new Error(it.stderr);
  }
  return JSON.parse(it.said);
}
const tools = JSON.stringify([{ name: 'work', inputSchema: { type: 'object' } }]);
const hostConfig = write('host.json', {
  keys: { worker: { hash, worker: 'worker', role: 'all' } },
  roles: { all: { allow: ['sleepy/*'] } },
  log: { level: 'error' },
  mcpServers: {
    sleepy: {
      command: 'perl',
      args: [here('../fakes/sleepy-server.pl')],
      env: { LEDGER: ledger, TOOLS: tools },
      // Some calls wait for their turn: a deadline may pass before one begins.
      concurrency: 8,
      breaker: { threshold: 1_000 },
      pins: 'off',
    },
  },
  broker: { listen: { port: 0 } },
});
const { broker } = await start('up', '--config', hostConfig, '--port', '0', '--data-dir', path.join(folder, 'host'));
const worker = await connect({ broker, key, connectMs: 60_000 });
await worker.execute('sleepy', 'work', { nonce: 'first', sleepMs: 0 });

// --- calls

const loopDelay = monitorEventLoopDelay({ resolution: 1 });
loopDelay.enable();
const calls = new Map();
const codes = {};
async function callOnce(number) {
  const nonce = `n${number}`;
  const isGivenUp = random() < 0.15;
  // A call that is cancelled has a long deadline: only the cancel ends it.
  const deadlineMs = isGivenUp ? 60_000 : randomInt(random, 20, 1_200);
  const giveUp = new AbortController();
  const beganMs = performance.now();
  const record = { deadlineAtMs: wallMs() + deadlineMs, told: 0 };
  calls.set(nonce, record);
  if (isGivenUp) setTimeout(() => giveUp.abort(), randomInt(random, 50, 400));
  const args = { nonce, sleepMs: isGivenUp ? 30_000 : randomInt(random, 0, 400) };
  record.sleepMs = args.sleepMs;
  try {
    const { bytes } = await worker.execute('sleepy', 'work', args, { deadlineMs, signal: giveUp.signal });
    record.outcome = 'answered';
    if (JSON.parse(bytes.toString()).content[0].text !== nonce) record.isWrong = true;
  } catch (error) {
    record.outcome = error.details?.execution === 'not_executed' ? 'not_executed' : 'uncertain';
    codes[error.code ?? error.name] = (codes[error.code ?? error.name] ?? 0) + 1;
  }
  record.told++;
  record.overMs = performance.now() - beganMs - deadlineMs;
  record.endedAtMs = wallMs();
}
let next = 0;
await Promise.all(
  Array.from({ length: 12 }, async () => {
    while (next < total) await callOnce(next++);
  }),
);
loopDelay.disable();
// Waits for cancels: each call without a caller is cancelled or ends by itself.
const isSettled = () => {
  const lines = readFileSync(ledger, 'utf8').split('\n').filter(Boolean);
  const over = new Set(lines.filter((line) => !line.startsWith('start ')).map((line) => line.split(' ')[1]));
  return lines.every((line) => over.has(line.split(' ')[1]));
};
const settledByMs = performance.now() + 20_000;
while (!isSettled() && performance.now() < settledByMs) await nap(20);
const stoppedAtMs = wallMs();
const { inFlight } = worker.status();
await worker.close();
const exits = [];
for (const { child, gone } of started) {
  child.kill('SIGTERM');
  exits.push(await gone);
}

// --- what the server saw

const seen = { start: new Map(), end: new Map(), cancelled: new Map() };
let startedTwice = 0;
for (const line of readFileSync(ledger, 'utf8').split('\n').filter(Boolean)) {
  const [what, nonce, atMs] = line.split(' ');
  if (what === 'start' && seen.start.has(nonce)) startedTwice++;
  // A closing host cancels the remaining calls; these cancels are not counted.
  if (Number(atMs) > stoppedAtMs) continue;
  seen[what].set(nonce, Number(atMs));
}
/** Times at which the host passed calls to the server. */
const handed = new Map(
  readFileSync(path.join(folder, 'up.handed'), 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => line.split(' '))
    .map(([nonce, atMs]) => [nonce, Number(atMs)]),
);
const all = [...calls];
const figuresOf = (list) => {
  const sorted = [...list].sort((a, b) => a - b);
  const at = (part) =>
    Math.round((sorted[Math.min(Math.floor(sorted.length * part), sorted.length - 1)] ?? 0) * 10) / 10;
  return { count: sorted.length, p50: at(0.5), p99: at(0.99), max: at(1) };
};
/** Time past the deadline, by the wall clocks of two processes. */
const lateBy = (began) =>
  all.flatMap(([nonce, { deadlineAtMs }]) => {
    const atMs = began.get(nonce);
    return atMs === undefined || atMs <= deadlineAtMs ? [] : [atMs - deadlineAtMs];
  });
/** Largest delay with which timers of the server fired. */
const serverDelayMs = Math.max(
  0,
  ...all.flatMap(([nonce, { sleepMs }]) =>
    seen.end.has(nonce) ? [seen.end.get(nonce) - seen.start.get(nonce) - sleepMs] : [],
  ),
);
/** The longest stall of each process on the path, during which messages wait. */
const stoodStillMs = {
  worker: loopDelay.max / 1e6,
  host: Number(readFileSync(delayFile('up'), 'utf8')),
  server: serverDelayMs,
};
/** Calls that began and that their caller gave up: the server must get the cancellation, unless the call had ended. */
const unwanted = all.filter(
  ([nonce, { outcome, endedAtMs }]) =>
    outcome !== 'answered' && seen.start.has(nonce) && !(seen.end.get(nonce) <= endedAtMs),
);
const ranOn = unwanted.filter(([nonce]) => !seen.cancelled.has(nonce) && !seen.end.has(nonce));
const endedAnyway = unwanted.filter(([nonce]) => seen.end.has(nonce));
const cancelMs = unwanted.flatMap(([nonce, { endedAtMs }]) =>
  seen.cancelled.has(nonce) ? [seen.cancelled.get(nonce) - endedAtMs] : [],
);
console.log(
  JSON.stringify({
    calls: all.length,
    ...{ answered: all.filter(([, { outcome }]) => outcome === 'answered').length, codes, inFlight },
    notTold: all.filter(([, { told }]) => told !== 1).length,
    wrong: all.filter(([, { isWrong }]) => isWrong).length,
    started: all.filter(([nonce]) => seen.start.has(nonce)).length,
    startedTwice,
    // Delays until the host sent the call, and until the server read it.
    handedLateMs: figuresOf(lateBy(handed)),
    startedLateMs: figuresOf(lateBy(seen.start)),
    handedOver: all.filter(([nonce]) => handed.has(nonce)).length,
    startedThoughPromisedNot: all.filter(([nonce, { outcome }]) => outcome === 'not_executed' && seen.start.has(nonce))
      .length,
    overDeadlineMs: figuresOf(all.map(([, { overMs }]) => overMs)),
    unwanted: unwanted.length,
    neverCancelled: ranOn.length,
    endedBeforeTheCancelCame: endedAnyway.length,
    cancelMs: figuresOf(cancelMs),
    stoodStillMs: Object.fromEntries(Object.entries(stoodStillMs).map(([who, ms]) => [who, Math.round(ms)])),
    exits,
    errors: started.map(({ stderr }) => stderr).filter((text) => / error | warn /.test(text)),
  }),
);
process.exit(0);
