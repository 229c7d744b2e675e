/**
 * Runs alone in a PID namespace: two networks whose connection is cut in every way. The ledger of the server records executed
 * calls. Prints one JSON line.
 * Arguments: partitions, seed, folder, the far side of the cable (host: workers reach it over TLS; nats: nats-server, which host and workers
 * reach), and the length of one long partition in seconds, or 0.
 */
import { execFileSync, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { newUserPair } from '../../dist/broker/nats/nats-client.js';
import { natsServerConfig } from '../../dist/broker/nats/server-config.js';
import { connect } from '../../dist/broker/worker/index.js';
import { randomInt, seededRandom } from '../../dist/testing.js';
import { processes } from './counts.mjs';
import { certificate, far, inOwnNetwork, joinNetworks, waysOfCutting } from './two-networks.mjs';

const [partitions, seed, folder, place, longSeconds] = [
  Number(process.argv[2]),
  Number(process.argv[3]),
  process.argv[4],
  process.argv[5],
  Number(process.argv[6]),
];
inOwnNetwork(() => ({ NODE_EXTRA_CA_CERTS: certificate(folder).cert }));
const random = seededRandom(seed);
const here = (file) => fileURLToPath(new URL(file, import.meta.url));
const main = here('../../dist/cli/main.js');
const nap = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const networks = await joinNetworks();
const ledger = path.join(folder, 'ledger');
const isNats = place === 'nats';
const port = isNats ? 4222 : 8384;
const url = (name) => (isNats ? `nats://${far}:${port}/${name}` : `wss://${far}:${port}/broker`);

// --- keys and configuration

const names = ['worker-0', 'worker-1'];
const write = (name, value) => {
  const file = path.join(folder, name);
  writeFileSync(file, typeof value === 'string' ? value : JSON.stringify(value), { mode: 0o600 });
  return file;
};
const keyOf = new Map();
const keys = {};
for (const name of names) {
  const { seed: nkeySeed, publicKey } = await newUserPair();
  const key = isNats ? nkeySeed : `hk_${randomBytes(32).toString('base64url')}`;
  const hash = `sha256:${createHash('sha256').update(key).digest('hex')}`;
  keyOf.set(name, key);
  keys[name] = { ...(isNats ? { nkey: publicKey } : { hash }), worker: name, epoch: 'e', role: 'all' };
}
const host = await newUserPair();
const tls = { cert: path.join(folder, 'cert.pem'), key: path.join(folder, 'key.pem') };
const overNats = { url: `nats://${far}:${port}`, insecure: true, keyFile: write('host.key', host.seed) };
const config = write('hostler.json', {
  ...{ keys, roles: { all: { allow: ['books/*'] } }, log: { level: 'error' } },
  mcpServers: {
    books: {
      command: 'perl',
      args: [here('../fakes/ledger-server.pl')],
      env: { LEDGER: ledger, TOOLS: JSON.stringify([{ name: 'work', inputSchema: { type: 'object' } }]) },
      pins: 'off',
    },
  },
  broker: isNats ? { ...overNats, durability: 'process' } : { listen: { host: far, port, tls } },
});
const started = [];
function start(words) {
  const [command, ...args] = words;
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const it = { child, said: '', stderr: '' };
  child.stdout.on('data', (chunk) => (it.said += chunk));
  child.stderr.on('data', (chunk) => (it.stderr = (it.stderr + chunk).slice(-4_000)));
  it.gone = new Promise((resolve) => child.once('exit', (code, signal) => resolve(code ?? signal)));
  started.unshift(it);
  return it;
}
const up = [
  ...[process.execPath, main, 'up', '--config', config, '--port', '0', '--json'],
  ...['--data-dir', path.join(folder, 'host')],
];
if (isNats) {
  const workers = names.map((worker) => ({ worker, epoch: 'e', publicKey: keys[worker].nkey }));
  const text = natsServerConfig({
    ...{ listen: `${far}:${port}`, storeDir: path.join(folder, 'nats'), hosts: [host.publicKey], workers },
  });
  start([...networks.there, 'nats-server', '-c', write('nats.conf', text)]);
  await nap(500);
}
const served = start(isNats ? up : [...networks.there, ...up]);
while (!served.said.includes('\n')) {
  await nap(20);
  if (served.child.exitCode !== null) throw new Error(served.stderr);
}
const workers = await Promise.all(
  names.map((name) => connect({ broker: url(name), key: keyOf.get(name), connectMs: 60_000, insecure: isNats })),
);

// --- calls

const deadlineMs = 15_000;
const calls = new Map();
const count = { calls: 0, answered: 0, wrong: 0, unsettled: 0, lateMsMax: 0, answeredDuring: 0 };
const codes = {};
let isCut = false;
async function callOnce(remote, nonce, limitMs = deadlineMs) {
  const record = { outcome: undefined, told: 0 };
  calls.set(nonce, record);
  count.calls++;
  count.unsettled++;
  const beganMs = performance.now();
  try {
    const { bytes } = await remote.execute('books', 'work', { nonce }, { deadlineMs: limitMs });
    record.outcome = 'answered';
    count.answered++;
    if (isCut) count.answeredDuring++;
    if (JSON.parse(bytes.toString()).content[0].text !== nonce) count.wrong++;
  } catch (error) {
    record.outcome = error.details?.execution === 'not_executed' ? 'not_executed' : 'uncertain';
    codes[error.code ?? error.name] = (codes[error.code ?? error.name] ?? 0) + 1;
  }
  record.told++;
  count.unsettled--;
  count.lateMsMax = Math.max(count.lateMsMax, Math.round(performance.now() - beganMs - limitMs));
}
let isCalling = true;
const loops = workers.flatMap((remote, who) =>
  Array.from({ length: 3 }, async (_, lane) => {
    for (let number = 0; isCalling; number++) {
      await callOnce(remote, `${who}-${lane}-${number}`);
      await nap(randomInt(random, 0, 30));
    }
  }),
);

// --- partitions

const afterHealingMs = [];
const stuckMs = 60_000;
let probes = 0;
/** Time until each worker gets an answer to a call that began after the repair. */
async function goesOn() {
  const beganMs = performance.now();
  await Promise.all(
    workers.map(async (remote, who) => {
      for (;;) {
        const nonce = `probe-${probes++}`;
        await callOnce(remote, nonce);
        if (calls.get(nonce).outcome === 'answered') break;
        if (performance.now() - beganMs < stuckMs) continue;
        const { state, lastError } = remote.status();
        throw new Error(`worker ${who} did not come back (${state}): ${lastError?.message}; ${served.stderr}`);
      }
    }),
  );
  afterHealingMs.push(Math.round(performance.now() - beganMs));
}
const ways = [...waysOfCutting, 'flap'];
const done = Object.fromEntries(ways.map((way) => [way, 0]));
async function flap() {
  for (let i = randomInt(random, 3, 8); i > 0; i--) {
    await networks.cut(waysOfCutting[randomInt(random, 0, 2)]);
    await nap(200);
    await networks.heal();
    await nap(200);
  }
}
async function partition(way, ms) {
  isCut = true;
  if (way === 'flap') await flap();
  else {
    // First the last messages are lost in one direction, so that the new connection has outcomes to request.
    if (way === 'reset') {
      await networks.cut(random() < 0.5 ? 'in' : 'out');
      await nap(200);
    }
    await networks.cut(way);
    await nap(ms);
    await networks.heal();
  }
  isCut = false;
  done[way]++;
}
for (let i = 0; i < partitions; i++) {
  const way = i < ways.length ? ways[i] : ways[randomInt(random, 0, ways.length - 1)];
  await partition(way, randomInt(random, 100, 1_500));
  await goesOn();
}
if (longSeconds > 0) {
  // Long enough for both ends to close the connection. A call with a longer deadline is still answered.
  const limitMs = (longSeconds + 60) * 1_000;
  const cutLong = partition('both', longSeconds * 1_000);
  await nap(200);
  const patient = workers.map((remote, who) => callOnce(remote, `patient-${who}`, limitMs));
  await cutLong;
  await goesOn();
  await Promise.all(patient);
}

// --- calm again

isCalling = false;
await Promise.race([Promise.all(loops), nap(deadlineMs + 5_000)]);
const connections = workers.map((remote) => remote.status().connections);
for (const remote of workers) await remote.close();
const status = execFileSync(process.execPath, [main, 'status', '--json', '--data-dir', path.join(folder, 'host')]);
const { waiting, running } = JSON.parse(status.toString()).broker;
const exits = [];
for (const { child, gone } of started) {
  child.kill('SIGTERM');
  exits.push(await gone);
}
networks.close();
await nap(300);
const executed = new Map();
for (const nonce of readFileSync(ledger, 'utf8').split('\n').filter(Boolean))
  executed.set(nonce, (executed.get(nonce) ?? 0) + 1);
const recorded = [...calls];
const outcomes = (outcome) => recorded.filter(([, record]) => record.outcome === outcome);
afterHealingMs.sort((a, b) => a - b);
console.log(
  JSON.stringify({
    place,
    ...{ ...count, done, connections, codes },
    toldTwice: recorded.filter(([, { told }]) => told > 1).length,
    uncertain: outcomes('uncertain').length,
    executed: executed.size,
    duplicateExecutions: [...executed.values()].filter((times) => times > 1).length,
    answeredButNotExecuted: outcomes('answered').filter(([nonce]) => !executed.has(nonce)).length,
    promisedNotExecutedButExecuted: outcomes('not_executed').filter(([nonce]) => executed.has(nonce)).length,
    patient: recorded.filter(([nonce]) => nonce.startsWith('patient-')).map(([, { outcome }]) => outcome),
    afterHealingMs: { p50: afterHealingMs[afterHealingMs.length >> 1], max: afterHealingMs.at(-1) },
    ...{ left: waiting + running, exits },
    errors: started.map(({ stderr }) => stderr).filter((text) => /error|warn/.test(text)),
    processesLeft: processes().filter((pid) => pid !== 1 && pid !== process.pid && pid !== process.ppid).length,
  }),
);
process.exit(0);
