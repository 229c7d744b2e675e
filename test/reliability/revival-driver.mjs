/**
 * Runs alone in a PID namespace: a host whose servers are killed one at a time. Compares the time until each is back with the delay
 * that its supervisor chose. Prints one JSON line. Arguments: kills, seed, folder. Uses the built package.
 *
 * Kills are spread out, so that the start gate (ten per second) delays no restart: only the restart delays are measured. Some
 * servers are killed only after they are proven, so that first restarts of proven servers occur often enough.
 */
import childProcess from 'node:child_process';
import { syncBuiltinESMExports } from 'node:module';
import path from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { randomInt, seededRandom } from '../../dist/testing.js';

const [kills, seed, folder] = [Number(process.argv[2]), Number(process.argv[3]), process.argv[4]];
const random = seededRandom(seed);
const script = fileURLToPath(new URL('../fakes/ledger-server.pl', import.meta.url));
const cherished = ['c0', 'c1', 'c2'];
const restless = ['r0', 'r1', 'r2', 'r3', 'r4'];
/** Servers with a longer delay are reloaded; otherwise the run would take hours. */
const restMsMax = 2_000;

const nap = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// --- time of each spawn, taken at the system call

const servers = new Map([...cherished, ...restless].map((name) => [name, { name, failures: 0, isProven: false }]));
const spawn = childProcess.spawn;
childProcess.spawn = (file, args, options) => {
  const atMs = performance.now();
  const child = spawn(file, args, options);
  const server = servers.get(options?.env?.SERVER);
  if (server) Object.assign(server, { pid: child.pid, spawnedAtMs: atMs });
  return child;
};
syncBuiltinESMExports();
const { createHost } = await import('../../dist/index.js');

// --- expected delay of each restart, from a separate ledger

const restarts = [];
/** The delay without jitter: 100 ms, doubling to 5 s. The first restart of a proven server takes at most 100 ms. */
function intervalOf({ failures, isProven }) {
  if (isProven && failures === 1) return [0, 100];
  const full = Math.min(100 * 2 ** (failures - 1), 5_000);
  return [full / 2, full];
}

function onEvent(event) {
  const server = servers.get(event.server);
  const { kind, atMs } = event;
  if (kind === 'proven') Object.assign(server, { isProven: true, failures: 0 });
  if (kind === 'state' && event.to === 'closing') {
    server.lostAtMs = atMs;
    server.failures++;
  }
  if (kind === 'restart') {
    server.restart = {
      interval: intervalOf(server),
      isFirst: server.isProven && server.failures === 1,
      lostAtMs: server.lostAtMs,
      toldAtMs: atMs,
      leftMs: event.delayMs,
    };
    server.isProven = false;
  }
  if (kind === 'state' && event.to === 'ready') {
    if (server.restart) restarts.push({ ...server.restart, spawnedAtMs: server.spawnedAtMs, readyAtMs: atMs });
    server.restart = undefined;
    server.isReady = true;
  } else if (kind === 'state') {
    server.isReady = false;
  }
  if (kind === 'parked' || (kind === 'restart' && event.delayMs > restMsMax)) {
    // Only restarts without a reload are measured.
    Object.assign(server, { restart: undefined, failures: 0, isProven: false });
    reloads++;
    host.reload(event.server).catch((error) => problems.push(String(error)));
  }
}

// --- start time of a server alone: the same command, until its last answer of the handshake

const line = (id, method) => `${JSON.stringify({ jsonrpc: '2.0', id, method, params: {} })}\n`;
async function ownStartMs() {
  const beganMs = performance.now();
  const child = spawn('perl', [script], {
    env: { LEDGER: path.join(folder, 'by-hand') },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  for (const [id, method] of ['initialize', 'tools/list'].entries()) {
    child.stdin.write(line(id, method));
    await new Promise((resolve) => child.stdout.once('data', resolve));
  }
  const tookMs = performance.now() - beganMs;
  child.stdin.end();
  await new Promise((resolve) => child.once('exit', resolve));
  return tookMs;
}

// --- the run

const problems = [];
let reloads = 0;
let calls = 0;
let stop = false;
const entry = (name) => ({
  command: 'perl',
  args: [script],
  env: { LEDGER: path.join(folder, name), SERVER: name },
  restart: { max: 1_000 },
  lazy: false,
});
const mcpServers = Object.fromEntries([...servers.keys()].map((name) => [name, entry(name)]));
const host = await createHost(
  { mcpServers },
  { stateDir: path.join(folder, 'state'), onProblem: (e) => problems.push(String(e)) },
);
host.on('any', onEvent);
await Promise.all([...servers.keys()].map((name) => host.start(name)));
// After this pause the start gate no longer counts these starts.
await nap(1_100);
const loopDelay = monitorEventLoopDelay({ resolution: 1 });
loopDelay.enable();
const caller = async (name) => {
  while (!stop) {
    await host.call(name, 'count', { nonce: `${name}-${calls++}` }, { deadlineMs: 30_000 }).catch(() => nap(5));
    await nap(2);
  }
};
const callers = [...servers.keys()].map(caller);

const ownMs = [];
let killed = 0;
while (killed < kills) {
  await nap(randomInt(random, 120, 260));
  const provenNow = cherished.map((name) => servers.get(name)).filter((server) => server.isReady && server.isProven);
  const anyNow = restless.map((name) => servers.get(name)).filter((server) => server.isReady);
  const [victim] =
    provenNow.length > 0 ? provenNow : anyNow.slice(randomInt(random, 0, Math.max(0, anyNow.length - 1)));
  if (!victim) continue;
  process.kill(victim.pid, 'SIGKILL');
  victim.isReady = false;
  killed++;
  if (killed % 2 === 0) ownMs.push(await ownStartMs());
}
// Waits for the last servers.
const untilMs = performance.now() + 10_000;
while ([...servers.values()].some((server) => server.restart) && performance.now() < untilMs) await nap(10);
loopDelay.disable();
stop = true;
await Promise.all(callers);
await host.close();

const sorted = (figures) => [...figures].sort((a, b) => a - b);
const p99 = (figures) => sorted(figures)[Math.ceil(figures.length * 0.99) - 1] ?? 0;
const rounded = (ms) => Math.round(ms * 100) / 100;
/** Closing took longer than the delay, so only an upper bound of the delay is known. */
const isHidden = ({ leftMs }) => leftMs === 0;
const chosenMs = ({ lostAtMs, toldAtMs, leftMs }) => toldAtMs + leftMs - lostAtMs;
const dueAtMs = (restart) =>
  isHidden(restart) ? restart.lostAtMs + restart.interval[0] : restart.toldAtMs + restart.leftMs;
/** The time of a loss is read slightly earlier than the time of the following decision. */
const stampMs = 1;
const isBelow = (restart) => chosenMs(restart) < restart.interval[0] - (isHidden(restart) ? 0 : stampMs);
const aboveMs = (restart) => (isHidden(restart) ? 0 : Math.max(0, chosenMs(restart) - restart.interval[1]));
const lateMs = restarts.map((restart) => restart.spawnedAtMs - dueAtMs(restart));
const readyMs = restarts.map((restart) => restart.readyAtMs - dueAtMs(restart));
console.log(
  JSON.stringify({
    kills: killed,
    calls,
    reloads,
    restarts: restarts.length,
    firstOfProven: restarts.filter(({ isFirst }) => isFirst).length,
    hiddenByClosing: restarts.filter(isHidden).length,
    belowInterval: restarts.filter(isBelow).length,
    aboveIntervalMs: rounded(Math.max(0, ...restarts.map(aboveMs))),
    earliestMs: rounded(sorted(lateMs)[0] ?? 0),
    spawnLateMs: {
      p50: rounded(sorted(lateMs)[lateMs.length >> 1] ?? 0),
      p99: rounded(p99(lateMs)),
      max: rounded(sorted(lateMs).at(-1) ?? 0),
    },
    readyAfterDelayMs: { p50: rounded(sorted(readyMs)[readyMs.length >> 1] ?? 0), p99: rounded(p99(readyMs)) },
    ownStartMs: { p50: rounded(sorted(ownMs)[ownMs.length >> 1] ?? 0), p99: rounded(p99(ownMs)) },
    loopDelayMs: { p99: rounded(loopDelay.percentile(99) / 1e6), max: rounded(loopDelay.max / 1e6) },
    problems,
  }),
);
process.exit(0);
