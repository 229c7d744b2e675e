/**
 * Runs alone in a PID namespace: workers in one network call tools of a host through a broker in another, over TLS, while the
 * cable between them is cut in every way. What ran is read from the ledger of the server. Prints one JSON line.
 * Arguments: partitions, seed, folder, where the host is (within: in the broker's process; apart: on the workers' side), and the
 * length of one long partition in seconds, or 0.
 */
import { execFileSync, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { WebSocket } from 'ws';
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
const port = 8384;
const url = `wss://${far}:${port}/broker`;

// --- who is there

const names = ['worker-0', 'worker-1', 'raw', 'host'];
const keyOf = new Map(names.map((name) => [name, `hk_${randomBytes(32).toString('base64url')}`]));
const hash = (text) => `sha256:${createHash('sha256').update(text).digest('hex')}`;
const keys = Object.fromEntries(
  names.map((name) => [
    name,
    { hash: hash(keyOf.get(name)), mailbox: name, ...(name === 'host' ? {} : { role: 'all' }) },
  ]),
);
const write = (name, value) => {
  const file = path.join(folder, name);
  writeFileSync(file, typeof value === 'string' ? value : JSON.stringify(value), { mode: 0o600 });
  return file;
};
const listen = { host: far, port, tls: { cert: path.join(folder, 'cert.pem'), key: path.join(folder, 'key.pem') } };
const shared = { keys, roles: { all: { allow: ['books/*'] } }, log: { level: 'error' } };
const servers = {
  books: {
    command: 'perl',
    args: [here('../fakes/ledger-server.pl')],
    env: { LEDGER: ledger, TOOLS: JSON.stringify([{ name: 'work', inputSchema: { type: 'object' } }]) },
    pins: 'off',
  },
};
const limits = { messagesPerSecond: 100_000, burst: 100_000 };
const brokerConfig = write('broker.json', {
  ...shared,
  ...(place === 'within' ? { mcpServers: servers } : {}),
  broker: { listen, limits },
});
const hostConfig = write('host.json', {
  ...{ ...shared, mcpServers: servers },
  broker: { url, keyFile: write('host.key', keyOf.get('host')) },
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
const dataDir = (name) => ['--data-dir', path.join(folder, name)];
const up = (config, ...more) => [process.execPath, main, 'up', '--config', config, '--port', '0', '--json', ...more];
const broker = start([
  ...networks.there,
  ...(place === 'within'
    ? up(brokerConfig, ...dataDir('broker'))
    : [process.execPath, main, 'broker', '--config', brokerConfig, '--json', ...dataDir('broker')]),
]);
while (!broker.said.includes('\n')) {
  await nap(20);
  if (broker.child.exitCode !== null) throw new Error(broker.stderr);
}
if (place === 'apart') start(up(hostConfig, ...dataDir('host')));

const workers = await Promise.all(
  ['worker-0', 'worker-1'].map((name) => connect({ broker: url, key: keyOf.get(name), connectMs: 60_000 })),
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

// --- a late ack: what a connection held is acknowledged over the next one, with the word of the old one

async function rawConnection() {
  const socket = new WebSocket(url, { perMessageDeflate: false });
  const frames = [];
  socket.on('error', () => undefined);
  socket.on('message', (data) => frames.push(JSON.parse(data.toString())));
  const open = new Promise((resolve, reject) => socket.once('open', resolve).once('close', reject));
  await open;
  const say = (frame) => socket.send(JSON.stringify(frame));
  const heard = async (isIt) => {
    for (let i = 0; i < 1_000; i++) {
      const found = frames.find(isIt);
      if (found) return found;
      await nap(10);
    }
    throw new Error('a frame that never came');
  };
  say({ kind: 'hello', v: 1, key: keyOf.get('raw') });
  say({ kind: 'subscribe' });
  await heard(({ kind }) => kind === 'subscribed');
  return { socket, say, heard };
}
const fenced = { acks: 0, refused: 0, comesAgain: 0 };
async function lateAck(before, after, number) {
  const id = `raw-${number}`;
  const one = await rawConnection();
  const body = { v: 1, op: 'call', callKey: id, deadlineMs, server: 'books', tool: 'work', arguments: { nonce: id } };
  one.say({ kind: 'deliver', id, type: 'request', to: 'host', ttlMs: deadlineMs, body });
  const held = await one.heard((frame) => frame.kind === 'message' && frame.id === id);
  await before();
  await after();
  const two = await rawConnection();
  const again = await two.heard((frame) => frame.kind === 'message' && frame.id === id);
  if (again.lease !== held.lease) fenced.comesAgain++;
  fenced.acks++;
  two.say({ kind: 'ack', seq: held.seq, lease: held.lease });
  const answer = await two.heard(({ kind }) => kind === 'error');
  if (answer.error.reason === 'lease_lost' || answer.error.details?.reason === 'lease_lost') fenced.refused++;
  two.say({ kind: 'ack', seq: again.seq, lease: again.lease });
  await nap(50);
  two.socket.terminate();
  one.socket.terminate();
}

// --- partitions

const afterHealingMs = [];
const stuckMs = 60_000;
let probes = 0;
/** How long until a call of each worker that begins after the healing is answered. */
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
        throw new Error(`worker ${who} did not come back (${state}): ${lastError?.message}; ${broker.stderr}`);
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
    // What was sent last is lost on one way first: whoever connects anew after it has something to hear again.
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
  const cutAndHeal = () => partition(way, randomInt(random, 100, 1_500));
  if (i % 3 === 0) await lateAck(cutAndHeal, goesOn, i);
  else {
    await cutAndHeal();
    await goesOn();
  }
}
if (longSeconds > 0) {
  // Long enough for both ends to give the connection up. Who has time gets an answer all the same.
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
const hostler = (...words) => JSON.parse(execFileSync(process.execPath, [main, ...words], { encoding: 'utf8' }));
const letters = hostler('dead-letters', '--json', ...dataDir('broker')).length;
await nap(1_500);
const exits = [];
for (const { child, gone } of started) {
  child.kill('SIGTERM');
  exits.push(await gone);
}
networks.close();
const { default: Database } = await import('libsql');
const left = new Database(path.join(folder, 'broker', 'broker', 'broker.db'))
  .prepare('SELECT dest, sender, id, kind, sent_at - expires_at AS lasts FROM mail')
  .all();
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
    fenced,
    afterHealingMs: { p50: afterHealingMs[afterHealingMs.length >> 1], max: afterHealingMs.at(-1) },
    ...{ letters, owed: left.length, left, exits },
    errors: started.map(({ stderr }) => stderr).filter((text) => /error|warn/.test(text)),
    processesLeft: processes().filter((pid) => pid !== 1 && pid !== process.pid && pid !== process.ppid).length,
  }),
);
process.exit(0);
