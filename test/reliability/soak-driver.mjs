/**
 * Runs alone in a PID namespace: `hostler up` in a separate process with ten servers, 500 calls a second through its gateway, and
 * everyday events: servers die, lists change, the configuration is edited, and clients of both eras connect and leave, half of them
 * silently. Prints one JSON line. Arguments: minutes, seed, folder.
 *
 * Load generator and servers use as little CPU as possible, because all processes share two cores.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream, mkdirSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { randomInt, seededRandom } from '../../dist/testing.js';
import { processes } from './counts.mjs';
import { left, SoakClient } from './soak-clients.mjs';
import { countBy, Histogram, isExplained, levelsOf, slopeOf } from './soak-figures.mjs';
import { soakServers } from './soak-servers.mjs';

const [minutes, seed, folder] = [Number(process.argv[2]), Number(process.argv[3]), process.argv[4]];
const random = seededRandom(seed);
const [callsPerSecond, tickMs] = [Number(process.env.RATE ?? 500), 10];
const [killEveryMs, editEveryMs, listEveryMs, sampleEveryMs] = [10_000, 20_000, 2_000, 5_000];
/** Longest downtime of a killed HTTP server. */
const downMsMax = 1_000;
/** Concurrent clients, and the time that each stays: about four connect and leave per second. */
const clientCount = 40;
const [staysMsMin, staysMsMax] = [4_000, 16_000];
/** Beyond this number of running calls, further calls are not made but counted. This happens only if something hangs. */
const pendingMax = 5_000;
/** Longer than any call may take: the default of `timeouts.call` is 60 s. */
const settlesMsMax = 75_000;
const errorsMax = 200_000;
const lastsMs = minutes * 60_000;
/** Memory is judged after this time. */
const warmMs = Math.min(5 * 60_000, lastsMs / 2);

const here = (file) => fileURLToPath(new URL(file, import.meta.url));
const nap = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const pick = (list) => list[randomInt(random, 0, list.length - 1)];
const startedOn = new Date();
const loadBefore = os.loadavg()[0];

// --- Hostler and its servers

const servers = soakServers(folder, listEveryMs);
await Promise.all(servers.map((server) => server.start()));
const dataDir = path.join(folder, 'data');
mkdirSync(dataDir, { mode: 0o700 });
const config = path.join(folder, 'hostler.json');
/** Settings that an edit changes besides servers. They do not affect calls. */
const beside = { log: { level: 'warn' }, groups: {}, budgets: {} };
let edits = 0;
/** Saves as editors do: alternately in place and by renaming a new file. */
function writeConfig() {
  const mcpServers = Object.fromEntries(servers.map(({ name, entry }) => [name, entry]));
  const file = edits % 2 === 0 ? config : `${config}.new`;
  writeFileSync(file, JSON.stringify({ mcpServers, ...beside }, undefined, 2));
  if (file !== config) renameSync(file, config);
}
writeConfig();
const up = ['up', '--json', '--port', '0', '--config', config, '--data-dir', dataDir];
const loopDelayFile = path.join(folder, 'loop-delay');
const hostler = spawn(
  process.execPath,
  ['--import', here('./loop-delay.mjs'), here('../../dist/cli/main.cjs'), ...up],
  {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, LOOP_DELAY: loopDelayFile, LOOP_DELAY_RESOLUTION_MS: '20' },
  },
);
const hostlerGone = once(hostler, 'exit');
const log = path.join(folder, 'hostler.log');
hostler.stderr.pipe(createWriteStream(log));
const [line] = await once(hostler.stdout, 'data');
hostler.stdout.resume();
const { url, key, pid } = JSON.parse(line);
let isOver = false;
const problems = [];
hostlerGone.then(([code, signal]) => {
  if (!isOver) problems.push(`hostler ended: ${code ?? signal}`);
});

// --- samples of the Hostler process

function statusOf(id) {
  const number = (name) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(readFileSync(`/proc/${id}/status`, 'utf8'))[1]);
  return { rssMB: (number('VmRSS') * 1_024) / 1e6, threads: number('Threads') };
}
const cpuSeconds = (id) => {
  const fields = readFileSync(`/proc/${id}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
};
const childrenOf = (id) => readFileSync(`/proc/${id}/task/${id}/children`, 'utf8').split(' ').filter(Boolean).length;
const sizeOf = (name) => statSync(path.join(dataDir, name), { throwIfNoEntry: false })?.size ?? 0;
const stateBytes = () =>
  readdirSync(dataDir)
    .filter((name) => name.startsWith('state.db'))
    .reduce((sum, name) => sum + sizeOf(name), 0);

/** Every server is called once before the measurement, because first starts are not part of the soak. */
const first = new SoakClient({ url, key, era: 'modern' });
await first.open(false);
for (const { name } of servers) {
  const code = await first.call(name, 'first');
  if (code !== 'ok') problems.push(`first call of ${name}: ${code}`);
}
await first.leave(false);

const loopDelay = monitorEventLoopDelay({ resolution: 20 });
loopDelay.enable();
const beganMs = performance.now();
const elapsedMs = () => performance.now() - beganMs;
const series = [];
function sample() {
  const { rssMB } = statusOf(pid);
  series.push({
    atS: Math.round(elapsedMs() / 1_000),
    rssMB: rounded(rssMB),
    fds: readdirSync(`/proc/${pid}/fd`).length,
    children: childrenOf(pid),
    stateKB: Math.round(stateBytes() / 1_024),
    calls: made,
  });
}

// --- clients and their calls

const clients = [];
const counts = { came: 0, silently: 0, politely: 0, streams: 0, changesHeard: 0, lists: 0, streamsEnded: 0 };
const openFailures = {};
const errors = [];
const took = new Histogram();
const pending = new Set();
const leaving = new Set();
let [made, ok, abandoned, shed] = [0, 0, 0, 0];

function failed(server, code, sinceMs) {
  if (errors.length < errorsMax) errors.push({ server, code, beganMs: sinceMs, endedMs: performance.now() });
}

async function comeAndGo(at) {
  // Alternates, so that each combination of era and way of leaving has the same share.
  for (let turn = at; elapsedMs() < lastsMs; turn++) {
    const era = turn % 2 === 0 ? 'legacy' : 'modern';
    const isSilent = turn % 4 < 2;
    const hasStream = random() < 0.5;
    const server = random() < 0.25 ? pick(servers).name : undefined;
    const client = new SoakClient({ url, key, era, server, onChanged, onStreamEnded: () => counts.streamsEnded++ });
    counts.came++;
    if (hasStream) counts.streams++;
    const problem = await client.open(hasStream);
    if (problem !== undefined) openFailures[problem] = (openFailures[problem] ?? 0) + 1;
    clients[at] = client;
    await nap(Math.min(randomInt(random, staysMsMin, staysMsMax), Math.max(0, lastsMs - elapsedMs())));
    counts[isSilent ? 'silently' : 'politely']++;
    const gone = client.leave(isSilent).finally(() => leaving.delete(gone));
    leaving.add(gone);
  }
}

/** One in four notified clients requests the list again. */
function onChanged(client) {
  counts.changesHeard++;
  if (counts.changesHeard % 4 !== 0 || !client.isOpen) return;
  counts.lists++;
  const sinceMs = performance.now();
  const settled = client.list().then((code) => {
    pending.delete(settled);
    if (code !== 'ok' && code !== left) failed('tools/list', code, sinceMs);
  });
  pending.add(settled);
}

function call(client) {
  const server = client.server ?? pick(servers).name;
  const sinceMs = performance.now();
  const settled = client.call(server, `t${made++}`).then((code) => {
    pending.delete(settled);
    if (code === 'ok') {
      ok++;
      took.add(performance.now() - sinceMs);
    } else if (code === left) abandoned++;
    else failed(server, code, sinceMs);
  });
  pending.add(settled);
}

/**
 * Open loop: the clock decides when calls are made, also after this process was delayed. Calls that are due while no client is
 * connected are made later.
 */
let turn = 0;
function tick() {
  const due = Math.min((elapsedMs() * callsPerSecond) / 1_000, (lastsMs * callsPerSecond) / 1_000);
  for (let tries = 0; made + shed < due && tries < due; tries++) {
    const client = clients[turn++ % clientCount];
    if (!client?.isOpen) {
      if (clients.every((each) => !each?.isOpen)) return;
      continue;
    }
    if (pending.size >= pendingMax) shed++;
    else call(client);
  }
}

// --- events

let kills = 0;
async function killInTurn() {
  for (let next = killEveryMs; next < lastsMs; next += killEveryMs) {
    await nap(next - elapsedMs());
    const rested = servers.filter(
      ({ isUp, disturbances }) => isUp && disturbances.every(({ backMs }) => backMs < Infinity),
    );
    if (rested.length === 0) continue;
    kills++;
    pick(rested)
      .kill(randomInt(random, 0, downMsMax))
      .catch((error) => problems.push(String(error)));
  }
}

const besideEdits = [
  () => (beside.log = { level: beside.log.level === 'warn' ? 'error' : 'warn' }),
  () => (beside.groups = { some: [pick(servers).name] }),
  () => (beside.budgets = { principals: { stranger: { calls: edits, window: '1m' } } }),
];
async function editInTurn() {
  for (let next = editEveryMs / 2; next < lastsMs; next += editEveryMs) {
    await nap(next - elapsedMs());
    edits++;
    if (edits % 2 === 0) pick(besideEdits)();
    else {
      pick(servers)
        .edit()
        .catch((error) => problems.push(String(error)));
    }
    writeConfig();
  }
}

// --- the run

const rounded = (figure, digits = 1) => Math.round(figure * 10 ** digits) / 10 ** digits;
const ticks = setInterval(tick, tickMs);
const samples = setInterval(sample, sampleEveryMs);
await Promise.all([...Array.from({ length: clientCount }, (_, at) => comeAndGo(at)), killInTurn(), editInTurn()]);
clearInterval(ticks);
clearInterval(samples);
loopDelay.disable();
const cores = cpuSeconds(pid) / (elapsedMs() / 1_000);
const loadAfter = os.loadavg()[0];
// Waits until all running calls have settled.
const untilMs = performance.now() + settlesMsMax;
while (pending.size + leaving.size > 0 && performance.now() < untilMs) await nap(100);
const unsettled = pending.size;
sample();

isOver = true;
hostler.kill('SIGTERM');
const [exitCode] = await hostlerGone;
await Promise.all(servers.map((server) => server.end()));
await nap(50);

const disturbances = servers.flatMap((server) => server.disturbances);
const notBack = disturbances.filter(({ backMs }) => backMs === Infinity);
const unexplained = errors.filter((error) => !isExplained(error, disturbances));
const judged = series.filter(({ atS }) => atS * 1_000 >= warmMs);
const codeOf = ({ server, code }) => `${server} ${code}`;
console.log(
  JSON.stringify({
    ...{
      minutes,
      seed,
      date: startedOn.toISOString().slice(0, 10),
      load: [loadBefore, loadAfter].map((each) => rounded(each)),
    },
    ...{ calls: made, ok, abandoned, shed, unsettled, failed: errors.length },
    callsPerSecond: rounded((made * 1_000) / lastsMs),
    tookMs: { p50: rounded(took.at(0.5)), p99: rounded(took.at(0.99)), max: rounded(took.max) },
    ...{ kills, edits, serverEdits: disturbances.filter(({ kind }) => kind === 'edit').length, clients: counts },
    ...{ cores: rounded(cores, 2), exitCode },
    // Longest event-loop delays. If they are seconds, the machine was too busy for meaningful figures.
    loopDelayMsMax: {
      driver: Math.round(loopDelay.max / 1e6),
      hostler: Math.round(Number(readFileSync(loopDelayFile, 'utf8'))),
    },
    failedCodes: countBy(errors, ({ code }) => code),
    unexplained: unexplained.length,
    unexplainedCodes: countBy(unexplained, codeOf),
    samples: unexplained.slice(0, 10).map((each) => ({
      ...{ server: each.server, code: each.code, atS: rounded((each.beganMs - beganMs) / 1_000) },
      tookMs: Math.round(each.endedMs - each.beganMs),
    })),
    openFailures,
    notBack: notBack.map(({ kind, server, fromMs }) => ({ kind, server, atS: rounded((fromMs - beganMs) / 1_000) })),
    warmS: warmMs / 1_000,
    rssMBPerMinute: rounded(slopeOf(judged.map(({ atS, rssMB }) => [atS / 60, rssMB])), 3),
    rssMB: levelsOf(judged.map(({ rssMB }) => rssMB)),
    fds: levelsOf(judged.map(({ fds }) => fds)),
    children: levelsOf(judged.map(({ children }) => children)),
    stateKB: levelsOf(judged.map(({ stateKB }) => stateKB)),
    logKB: Math.round(statSync(log).size / 1_024),
    processesLeft: processes().filter((id) => id !== process.pid && id !== 1).length,
    problems,
    series: series.map(({ atS, rssMB, fds, children, stateKB }) => [atS, rssMB, fds, children, stateKB]),
  }),
);
process.exit(0);
