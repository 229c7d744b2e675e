/**
 * Runs alone in a PID namespace: `hostler up` in front of two real servers over streamable HTTP, both killed with SIGKILL and
 * started again on the same port while two SDK clients, one of each era, call them. Prints one JSON line.
 * Arguments: kills, seed, folder, the longest downtime of a server in ms, the shortest and the longest time between two kills in
 * ms, and the largest number of open calls.
 *
 * The servers: server-everything from npm (reads), and a ledger server on the official SDK (writes). A separate loop polls each
 * port over TCP and HTTP. Hostler's delay is measured from the first answer after a restart.
 */
import { spawn } from 'node:child_process';
import { once, setMaxListeners } from 'node:events';
import { createWriteStream, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { Client as ModernClient, StreamableHTTPClientTransport as ModernHttp } from '@modelcontextprotocol/client';
import { Client as LegacyClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as LegacyHttp } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { randomInt, seededRandom } from '../../dist/testing.js';
import { processes } from './counts.mjs';
import { answersHttp, freePort } from './ports.mjs';

const [kills, seed, folder] = [Number(process.argv[2]), Number(process.argv[3]), process.argv[4]];
const [downMsMax, servesMsMin, servesMsMax, openCallsMax] = process.argv.slice(5).map(Number);
const random = seededRandom(seed);
/** 50 calls a second at each server. */
const callEveryMs = 20;
const probeEveryMs = 5;
/** The limit: a call that begins later than this after the port answers must succeed. */
const resumesWithinMs = 2_000;
/** A server that is not served after this time is given up for the round. This limit is for hangs, not for speed. */
const resumesMsMax = 120_000;
/** After this number of rounds given up, the run ends: each costs two minutes, and the verdict is known. */
const neverResumedMax = 3;
/** Longer than any call may take: the default of `timeouts.call` is 60 s. */
const settlesMsMax = 90_000;

const here = (file) => fileURLToPath(new URL(file, import.meta.url));
const nap = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const startedOn = new Date();
const loadBefore = os.loadavg()[0];

// --- the servers

const problems = [];
class MortalServer {
  /** One row per restart: when it was killed, when its port answered, and when a call first succeeded again. */
  rounds = [];
  #log;

  constructor(name, script, args, env) {
    Object.assign(this, { name, script, args, env });
    this.#log = createWriteStream(path.join(folder, `${name}.log`));
  }

  async start() {
    this.port ??= await freePort();
    const env = { ...process.env, ...this.env, PORT: String(this.port) };
    this.child = spawn(process.execPath, [this.script, ...this.args], { env, stdio: ['ignore', 'ignore', 'pipe'] });
    this.child.stderr.on('data', (chunk) => this.#log.write(chunk));
    this.gone = once(this.child, 'exit').then(([code, signal]) => {
      if (signal !== 'SIGKILL') problems.push(`${this.name} ended by itself: ${code ?? signal}`);
    });
    for (const untilMs = performance.now() + resumesMsMax; !(await answersHttp(this.port)); await nap(probeEveryMs)) {
      if (performance.now() > untilMs) throw new Error(`${this.name} does not answer at its port`);
    }
  }

  async kill() {
    this.child.kill('SIGKILL');
    await this.gone;
  }

  async restart(downMs) {
    const gone = this.kill();
    const round = { killedMs: performance.now(), answersMs: Infinity, succeededMs: Infinity };
    this.rounds.push(round);
    await gone;
    await nap(downMs);
    await this.start();
    round.answersMs = performance.now();
    const untilMs = round.answersMs + resumesMsMax;
    while (round.succeededMs === Infinity && performance.now() < untilMs) await nap(probeEveryMs);
  }

  /** Only a call that began after the kill counts, because an answer of the old process may arrive late. */
  succeeded({ beganMs, endedMs }) {
    const round = this.rounds.at(-1);
    if (round !== undefined && beganMs > round.killedMs) round.succeededMs = Math.min(round.succeededMs, endedMs);
  }
}

const ledgerFile = path.join(folder, 'ledger');
const everything = new MortalServer(
  'everything',
  here('../../node_modules/@modelcontextprotocol/server-everything/dist/index.js'),
  ['streamableHttp'],
  {},
);
const ledger = new MortalServer('ledger', here('../fakes/http-ledger-server.mjs'), [], { LEDGER: ledgerFile });
const servers = [everything, ledger];
await Promise.all(servers.map((server) => server.start()));

// --- Hostler with its defaults, and a client of each era

const dataDir = path.join(folder, 'data');
mkdirSync(dataDir, { mode: 0o700 });
const config = path.join(folder, 'hostler.json');
const mcpServers = Object.fromEntries(servers.map(({ name, port }) => [name, { url: `http://127.0.0.1:${port}/mcp` }]));
writeFileSync(config, JSON.stringify({ mcpServers }));
const up = ['up', '--json', '--port', '0', '--config', config, '--data-dir', dataDir];
const hostler = spawn(process.execPath, [here('../../dist/cli/main.js'), ...up], { stdio: ['ignore', 'pipe', 'pipe'] });
const hostlerGone = once(hostler, 'exit');
hostler.stderr.pipe(createWriteStream(path.join(folder, 'hostler.log')));
const [line] = await once(hostler.stdout, 'data');
hostler.stdout.resume();
const { url, key } = JSON.parse(line);

const info = { name: 'http-restarts', version: '1.0.0' };
const requestInit = { headers: { authorization: `Bearer ${key}` } };
/**
 * The SDKs use one signal for all requests, and fetch adds a listener for each request. Without this, Node would print a warning at
 * every call.
 */
const fetchQuietly = (to, init) => {
  if (init?.signal) setMaxListeners(0, init.signal);
  return fetch(to, init);
};
const options = { requestInit, fetch: fetchQuietly };
const legacy = new LegacyClient(info);
await legacy.connect(new LegacyHttp(new URL(url), options));
const modern = new ModernClient(info, { versionNegotiation: { mode: { pin: '2026-07-28' } } });
await modern.connect(new ModernHttp(new URL(url), options));
const clients = [legacy, modern];

// --- calls

const calls = [];
const pending = new Set();

/** `ok`, the code of Hostler's error, or the error of the client. */
async function outcomeOf(client, name, args, isRight) {
  try {
    const result = await client.callTool({ name, arguments: args }, undefined, { timeout: settlesMsMax });
    const facts = result._meta?.['hostler/error'];
    if (facts) return { code: facts.code, isNotExecuted: facts.execution === 'not_executed', message: facts.message };
    return { code: isRight(result.content?.[0]?.text) ? 'ok' : 'wrong_answer' };
  } catch (error) {
    return { code: `client ${error.code ?? error.name}`, message: String(error.message).slice(0, 200) };
  }
}

function call(server, client, name, args, isRight) {
  const row = { server: server.name, nonce: args.nonce, beganMs: performance.now(), code: undefined };
  calls.push(row);
  const settled = outcomeOf(client, name, args, isRight).then((outcome) => {
    Object.assign(row, outcome, { endedMs: performance.now() });
    if (row.code === 'ok') server.succeeded(row);
    pending.delete(settled);
  });
  pending.add(settled);
}

let ticks = 0;
function tick() {
  const nonce = `n${ticks}`;
  const message = `m${ticks}`;
  // The clients alternate, so that both servers are never called by the same client in one tick.
  call(everything, clients[ticks % 2], 'everything__echo', { message }, (text) => text === `Echo: ${message}`);
  call(ledger, clients[(ticks + 1) % 2], 'ledger__write', { nonce }, (text) => text === nonce);
  ticks++;
}

// One call of each client, so that both are connected before the first kill.
tick();
tick();
await Promise.all(pending);
const beganMs = performance.now();
/**
 * Open loop: the clock decides when calls are made, also after this process was delayed. A tick with `openCallsMax` open calls is
 * skipped: on an overloaded machine the calls of an unlimited loop would pile up in this process, until it no longer notices that a
 * port answers.
 */
let ticksLeftOut = 0;
const timer = setInterval(() => {
  while ((performance.now() - beganMs) / callEveryMs > ticks + ticksLeftOut - 2) {
    if (pending.size < openCallsMax) tick();
    else ticksLeftOut++;
  }
}, callEveryMs);
await nap(randomInt(random, servesMsMin, servesMsMax));
let killed = 0;
const neverResumed = () =>
  servers.flatMap(({ rounds }) => rounds).filter(({ succeededMs }) => succeededMs === Infinity);
while (killed < kills && neverResumed().length < neverResumedMax) {
  killed++;
  await Promise.all(servers.map((server) => server.restart(randomInt(random, 0, downMsMax))));
  await nap(randomInt(random, servesMsMin, servesMsMax));
}
clearInterval(timer);
const lastedMs = performance.now() - beganMs;
await Promise.race([Promise.all(pending), nap(settlesMsMax)]);
const unsettled = pending.size;

// --- the end

await Promise.race([Promise.all(clients.map((client) => client.close())), nap(5_000)]);
hostler.kill('SIGTERM');
await hostlerGone;
await Promise.all(servers.map((server) => server.kill()));
await nap(50);

const rounded = (ms) => Math.round(ms * 10) / 10;
function distribution(figures) {
  const sorted = [...figures].sort((a, b) => a - b);
  const at = (share) => rounded(sorted[Math.min(Math.floor(sorted.length * share), sorted.length - 1)]);
  return { n: sorted.length, p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1) };
}
const countBy = (rows, keyOf) => {
  const counts = {};
  for (const row of rows) counts[keyOf(row)] = (counts[keyOf(row)] ?? 0) + 1;
  return counts;
};
/** Time from the first answer of the port to the first success; 0 if a waiting call succeeded before the polling loop did. */
const resumedMs = ({ answersMs, succeededMs }) => Math.max(0, succeededMs - answersMs);
/** Failed calls that began after the limit and before the next kill. */
const failedLate = servers.flatMap(({ name, rounds }) =>
  calls
    .filter(({ server, code }) => server === name && code !== 'ok')
    .map((each) => ({ ...each, round: rounds.findLast(({ killedMs }) => killedMs <= (each.endedMs ?? Infinity)) }))
    .filter(({ beganMs, round }) => round !== undefined && beganMs > round.answersMs + resumesWithinMs),
);
/** A failed call with its times, in ms since the port answered. */
const sample = ({ server, code, message, beganMs, endedMs, round }) => ({
  ...{ server, code, message, round: servers.find(({ name }) => name === server).rounds.indexOf(round) },
  ...{ downMs: rounded(round.answersMs - round.killedMs), resumedMs: rounded(round.succeededMs - round.answersMs) },
  ...{ beganAfterMs: rounded(beganMs - round.answersMs), tookMs: rounded(endedMs - beganMs) },
});
const executed = readFileSync(ledgerFile, 'utf8').split('\n').filter(Boolean);
const executedOnce = new Set(executed);
const writes = calls.filter(({ nonce }) => nonce !== undefined);
console.log(
  JSON.stringify({
    kills: killed,
    ...{ date: startedOn.toISOString().slice(0, 10), seed, load: [loadBefore, os.loadavg()[0]].map(rounded) },
    seconds: Math.round(lastedMs / 1_000),
    callsPerSecond: rounded((calls.length * 1_000) / lastedMs),
    calls: calls.length,
    ticksLeftOut,
    unsettled,
    outcomes: Object.fromEntries(
      servers.map(({ name }) => [
        name,
        countBy(
          calls.filter(({ server }) => server === name),
          ({ code }) => code ?? 'unsettled',
        ),
      ]),
    ),
    resumedMs: Object.fromEntries(servers.map(({ name, rounds }) => [name, distribution(rounds.map(resumedMs))])),
    downMs: Object.fromEntries(
      servers.map(({ name, rounds }) => [
        name,
        distribution(rounds.map(({ killedMs, answersMs }) => answersMs - killedMs)),
      ]),
    ),
    // For each restart: downtime of the server, and time until it was served again, in ms.
    rounds: Object.fromEntries(
      servers.map(({ name, rounds }) => [
        name,
        rounds.map((round) => [Math.round(round.answersMs - round.killedMs), Math.round(resumedMs(round))]),
      ]),
    ),
    neverResumed: neverResumed().length,
    resumedTooLate: servers.flatMap(({ rounds }) => rounds).filter((round) => resumedMs(round) > resumesWithinMs)
      .length,
    failedLate: failedLate.length,
    failedLateCodes: countBy(failedLate, ({ server, code }) => `${server} ${code}`),
    samples: [...failedLate.slice(0, 2), ...failedLate.slice(-2)].map(sample),
    writes: writes.length,
    executions: executed.length,
    executedTwice: executed.length - executedOnce.size,
    answeredButNotExecuted: writes.filter(({ code, nonce }) => code === 'ok' && !executedOnce.has(nonce)).length,
    notExecutedButExecuted: writes.filter(({ isNotExecuted, nonce }) => isNotExecuted && executedOnce.has(nonce))
      .length,
    processesLeft: processes().filter((pid) => pid !== process.pid && pid !== 1).length,
    problems,
  }),
);
process.exit(0);
