/**
 * Runs alone in a PID namespace: hosts whose servers are under load and killed at random moments. At the end the remaining
 * processes and descriptors are counted. Prints one JSON line. Arguments: kills, seed, folder. Uses the built package, as an
 * embedder would.
 * Two hosts, because each host restarts at most ten servers per second.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { createHost } from '../../dist/index.js';
import { randomInt, seededRandom } from '../../dist/testing.js';
import { descriptors, processes } from './counts.mjs';

const [kills, seed, folder] = [Number(process.argv[2]), Number(process.argv[3]), process.argv[4]];
const random = seededRandom(seed);
const hostCount = 2;
const serversPerHost = 5;
const callersPerServer = 4;
const script = fileURLToPath(new URL('../fakes/ledger-server.pl', import.meta.url));

const nap = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Child processes of this driver that run the script, without the processes that they started. */
const servers = () =>
  processes().filter((pid) => {
    try {
      const [, parent] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
      return (
        Number(parent) === process.pid && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('ledger-server.pl')
      );
    } catch {
      return false;
    }
  });

const slots = Array.from({ length: hostCount * serversPerHost }, (_, i) => ({
  name: `s${i}`,
  host: i % hostCount,
  ledger: path.join(folder, `ledger-${i}`),
  isWrapped: i % 4 > 1,
}));
const entryOf = ({ ledger, isWrapped }) => ({
  command: 'perl',
  args: [script],
  env: { LEDGER: ledger, ...(isWrapped ? { GRANDCHILD: '1' } : {}) },
  restart: { max: 1_000 },
  lazy: false,
});

const problems = [];
const outcomes = new Map();
const wrong = [];
const told = {};
let reloads = 0;
let starts = 0;
let started = 0;
let stop = false;

async function openHosts() {
  return Promise.all(
    Array.from({ length: hostCount }, async (_, at) => {
      const mcpServers = Object.fromEntries(
        slots.filter(({ host }) => host === at).map((slot) => [slot.name, entryOf(slot)]),
      );
      const stateDir = path.join(folder, `state-${at}`);
      const host = await createHost({ mcpServers }, { stateDir, onProblem: (error) => problems.push(String(error)) });
      host.on('any', (event) => {
        if (event.kind === 'state' && event.to === 'ready') starts++;
        // Acts as an impatient operator: reloads parked servers, and most servers with a long restart delay.
        const isResting = event.kind === 'restart' && event.delayMs > 300 && event.server !== slots[at].name;
        if ((event.kind !== 'parked' && !isResting) || stop) return;
        reloads++;
        host.reload(event.server).catch((error) => problems.push(String(error)));
      });
      return host;
    }),
  );
}

/** Makes one call and records its reported outcome. The ledger shows later whether the report was true. */
async function call(host, { name }) {
  const nonce = `${name}-${started++}`;
  const settle = (outcome) => outcomes.set(nonce, [...(outcomes.get(nonce) ?? []), outcome]);
  try {
    const result = await host.call(name, 'count', { nonce }, { deadlineMs: 30_000 });
    settle('answered');
    if (!result.bytes.includes(`"${nonce}"`)) wrong.push(nonce);
  } catch (error) {
    told[error.code] = (told[error.code] ?? 0) + 1;
    settle(error.details.execution === 'not_executed' ? 'not_executed' : 'uncertain');
    await nap(5);
  }
}

async function caller(host, slot) {
  while (!stop) await call(host, slot);
}

// One warm-up round, so that lazily opened descriptors are open before the count.
for (const host of await openHosts()) {
  await Promise.all(host.status().map(({ name }) => host.start(name)));
  await host.close();
}
await nap(50);
const descriptorsBefore = descriptors();

// The timers of the hosts do not keep the process alive, and all servers may be between two runs at once.
const alive = setInterval(() => {}, 1_000);
const hosts = await openHosts();
const callers = slots.flatMap((slot) => Array.from({ length: callersPerServer }, () => caller(hosts[slot.host], slot)));
let killed = 0;
while (killed < kills) {
  await nap(randomInt(random, 0, 40));
  const pids = servers();
  if (pids.length === 0) continue;
  try {
    process.kill(pids[randomInt(random, 0, pids.length - 1)], 'SIGKILL');
    killed++;
  } catch {
    // The process had already ended.
  }
}
stop = true;
await Promise.all(callers);
await Promise.all(hosts.map((host) => host.close()));
clearInterval(alive);
await nap(50);
const descriptorsAfter = descriptors();

const executed = slots.flatMap(({ ledger }) => readFileSync(ledger, 'utf8').split('\n').filter(Boolean));
const executedOnce = new Set(executed);
const all = [...outcomes];
const withOutcome = (wanted) => all.filter(([, [outcome]]) => outcome === wanted).map(([nonce]) => nonce);
const answered = withOutcome('answered');
const notExecuted = withOutcome('not_executed');
console.log(
  JSON.stringify({
    kills: killed,
    calls: started,
    withoutOneOutcome: started - all.filter(([, each]) => each.length === 1).length,
    answered: answered.length,
    notExecuted: notExecuted.length,
    uncertain: withOutcome('uncertain').length,
    wrongAnswers: wrong.length,
    duplicateExecutions: executed.length - executedOnce.size,
    answeredButNotExecuted: answered.filter((nonce) => !executedOnce.has(nonce)).length,
    promisedNotExecutedButExecuted: notExecuted.filter((nonce) => executedOnce.has(nonce)).length,
    starts,
    reloads,
    problems: problems.length,
    processesLeft: processes().filter((pid) => pid !== process.pid && pid !== 1).length,
    descriptorsLeaked: descriptorsAfter - descriptorsBefore,
    told,
  }),
);
