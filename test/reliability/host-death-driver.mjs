/**
 * Runs alone in a PID namespace: hosts under load, one after the other on one state directory, each killed at a random moment,
 * every other one together with its death watch. Other processes look like their servers and are named in their journals, with a
 * wrong start time. Prints one JSON line.
 * Arguments: deaths, seed, folder, look-alikes.
 */
import { execFileSync, spawn } from 'node:child_process';
import { appendFileSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { randomInt, seededRandom } from '../../dist/testing.js';
import { processes } from './counts.mjs';

const [deaths, seed, folder, lookAlikes] = [
  Number(process.argv[2]),
  Number(process.argv[3]),
  process.argv[4],
  Number(process.argv[5]),
];
const random = seededRandom(seed);
const here = (file) => fileURLToPath(new URL(file, import.meta.url));
const script = here('../fakes/ledger-server.pl');
const state = path.join(folder, 'state');
const hits = path.join(folder, 'hits');
mkdirSync(path.join(folder, 'ledgers'));

const nap = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Undefined if the process has ended or is a zombie. */
function factsOf(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const [stat, parent, ...more] = text.slice(text.lastIndexOf(')') + 2).split(' ');
    return stat === 'Z' ? undefined : { pid, parent: Number(parent), startTicks: Number(more[17]) };
  } catch {
    return undefined;
  }
}

// --- processes that must not be signalled

/** Starts a process that waits for ever and records every signal that it can survive. */
function plant(at) {
  const waits = `trap 'echo ${at} >>${hits}' HUP INT TERM CONT; while :; do read -r _; done`;
  const { pid } = spawn('/bin/sh', ['-c', waits, script], {
    argv0: 'perl',
    detached: true,
    stdio: [nothing, 'ignore', 'ignore'],
    env: { LEDGER: path.join(folder, 'ledgers', 'plain'), HOSTLER_RUN: `anotherHostlerOfToday${at}.1` },
  });
  return pid;
}
const fifo = path.join(folder, 'fifo');
execFileSync('mkfifo', [fifo]);
// Open at both ends, so a reader waits for ever.
const nothing = openSync(fifo, 'r+');
const planted = new Map();
for (let at = 0; at < lookAlikes; at++) {
  const pid = plant(at);
  planted.set(pid, factsOf(pid)?.startTicks);
}

/** Writes some of their pids into journals of dead hosts, as if the pids had been reused. */
function misname() {
  const pids = [...planted.keys()];
  for (const name of readdirSync(state).filter((file) => file.endsWith('.children'))) {
    const lines = Array.from({ length: 10 }, (_, at) => {
      const pid = pids[randomInt(random, 0, pids.length - 1)];
      return JSON.stringify({ started: { pid, startTicks: planted.get(pid) - 1 - at, run: 100_000 + at } });
    });
    appendFileSync(path.join(state, name), `\n${lines.join('\n')}\n`);
    misnamed += lines.length;
  }
}
let misnamed = 0;

// --- processes of a host

const others = () => processes().filter((pid) => pid !== 1 && pid !== process.pid && !planted.has(pid));

/** By descent, so that no process can hide behind its name. */
function split(hostPid) {
  const known = new Map(others().map((pid) => [pid, factsOf(pid)]));
  const isOf = (pid) => pid === hostPid || (known.get(pid) !== undefined && isOf(known.get(pid).parent));
  const living = [...known.values()].filter((facts) => facts !== undefined);
  return { own: living.filter(({ pid }) => isOf(pid)), strays: living.filter(({ pid }) => !isOf(pid)) };
}

const commandOf = (pid) => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
};

const isUnder = (facts, pid, all) =>
  facts.pid === pid || all.some((up) => up.pid === facts.parent && isUnder(up, pid, all));

const isStillThere = ({ pid, startTicks }) => factsOf(pid)?.startTicks === startTicks;

/** Time since `beganMs` until the condition holds, up to a limit. */
async function msUntil(condition, beganMs, limitMs) {
  while (!condition() && performance.now() - beganMs < limitMs) await nap(5);
  return Math.round(performance.now() - beganMs);
}

// --- one life after the other

function begin(number) {
  const child = spawn(process.execPath, [here('./mortal-host.mjs'), String(number), folder], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  child.stdin.on('error', () => {});
  const opened = new Promise((resolve) => child.stdout.once('data', () => resolve('open')));
  const gone = new Promise((resolve) => child.once('exit', (code) => resolve(code ?? 'killed')));
  return { pid: child.pid, child, opened, gone };
}

const count = {
  killed: 0,
  beforeOpen: 0,
  withServers: 0,
  withoutWatch: 0,
  boxedLeft: 0,
  watchedLeft: 0,
};
const boxedGoneMs = [];
const watchedGoneMs = [];
let serversAtDeath = 0;
let boxedAtDeath = 0;

/** Processes that were found when a host reported that it was open, by the name of the server. */
const left = new Map();
function nameOf({ pid }) {
  try {
    const environment = readFileSync(`/proc/${pid}/environ`, 'utf8');
    return /LEDGER=.*\/([^/\0]+)\0/.exec(environment)?.[1] ?? commandOf(pid).replaceAll('\0', ' ').slice(0, 80);
  } catch {
    return 'gone meanwhile';
  }
}

/** Processes of the previous host must have ended when the next host reports that it is open. */
async function open(host) {
  const first = await Promise.race([host.opened, host.gone]);
  if (first === 'open') for (const stray of split(host.pid).strays) left.set(stray.pid, nameOf(stray));
  else throw new Error(`the host ended by itself: ${first}`);
}

/** A sandbox that is still being set up is not yet tied to its parent: the death watch or the next start must end it. */
function boxedAmong(own) {
  const below = (box) => own.filter((facts) => isUnder(facts, box.pid, own));
  const boxes = own.filter(({ pid }) => commandOf(pid).split('\0')[0].endsWith('bwrap'));
  return boxes
    .map(below)
    .filter((inside) => inside.some(({ pid }) => commandOf(pid).split('\0')[0].endsWith('perl')))
    .flat();
}

async function die(host, isUnwatched) {
  process.kill(host.pid, 'SIGSTOP');
  const { own } = split(host.pid);
  const boxed = boxedAmong(own);
  const watch = own.find(({ pid }) => commandOf(pid).includes('hostler-watch'));
  if (own.length > 2) count.withServers++;
  serversAtDeath += Math.max(0, own.length - 2);
  boxedAtDeath += boxed.length;
  if (isUnwatched && watch) process.kill(watch.pid, 'SIGKILL');
  const killedAtMs = performance.now();
  process.kill(host.pid, 'SIGKILL');
  await host.gone;
  count.killed++;
  if (boxed.length > 0) {
    boxedGoneMs.push(await msUntil(() => !boxed.some(isStillThere), killedAtMs, 20_000));
    count.boxedLeft += boxed.filter(isStillThere).length;
  }
  if (isUnwatched) {
    count.withoutWatch++;
    if (existsSync(state)) misname();
  } else if (own.length > 2) {
    // Processes of a host without a death watch are found by the next start.
    const its = () => own.filter(isStillThere);
    watchedGoneMs.push(await msUntil(() => its().length === 0, killedAtMs, 20_000));
    count.watchedLeft += its().length;
  }
}

for (let number = 0; number < deaths; number++) {
  const host = begin(number);
  // The first two hosts die with sandboxed servers, one of them without its death watch, so that even a short run has both cases.
  if (number < 2) {
    await open(host);
    await msUntil(() => boxedAmong(split(host.pid).own).length > 0, performance.now(), 20_000);
    await nap(randomInt(random, 0, 700));
  } else if (random() < 0.2) {
    await nap(randomInt(random, 0, 300));
    count.beforeOpen++;
  } else {
    await open(host);
    await nap(randomInt(random, 0, 700));
  }
  await die(host, number < 2 ? number === 1 : random() < 0.5);
}

// --- the last host stops normally

const last = begin(deaths);
await open(last);
await nap(500);
last.child.stdin.end();
const lastExit = await last.gone;
const processesLeft = split(undefined).strays.length;
const lines = (file) => (existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean) : []);
const foreignHarmed = [...planted].filter(([pid, startTicks]) => factsOf(pid)?.startTicks !== startTicks).length;
for (const pid of planted.keys()) process.kill(pid, 'SIGKILL');

const executed = readdirSync(path.join(folder, 'ledgers')).flatMap((name) => lines(path.join(folder, 'ledgers', name)));
const executedOnce = new Set(executed);
const outcomes = lines(path.join(folder, 'outcomes')).map((line) => line.split(' '));
const told = (wanted) => outcomes.filter(([outcome]) => outcome === wanted).map(([, nonce]) => nonce);
const worst = (figures) => [...figures].sort((a, b) => a - b).at(-1) ?? 0;
const median = (figures) => [...figures].sort((a, b) => a - b)[figures.length >> 1] ?? 0;
console.log(
  JSON.stringify({
    ...count,
    leftAtOpen: [...left.values()],
    serversAtDeath,
    boxedAtDeath,
    lookAlikes,
    misnamed,
    foreignHarmed,
    foreignSignalled: lines(hits).length,
    boxedGoneMs: { median: median(boxedGoneMs), max: worst(boxedGoneMs) },
    watchedGoneMs: { median: median(watchedGoneMs), max: worst(watchedGoneMs) },
    executed: executed.length,
    answered: told('answered').length,
    uncertain: told('uncertain').length,
    notExecuted: told('not_executed').length,
    wrongAnswers: told('wrong').length,
    toldTwice: outcomes.length - new Set(outcomes.map(([, nonce]) => nonce)).size,
    duplicateExecutions: executed.length - executedOnce.size,
    answeredButNotExecuted: told('answered').filter((nonce) => !executedOnce.has(nonce)).length,
    promisedNotExecutedButExecuted: told('not_executed').filter((nonce) => executedOnce.has(nonce)).length,
    problems: lines(path.join(folder, 'problems')),
    lastExit,
    processesLeft,
    journalsLeft: readdirSync(state).filter((name) => name.includes('.children')).length,
  }),
);
process.exit(0);
