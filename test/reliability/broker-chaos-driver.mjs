/**
 * Runs alone in a PID namespace: eight workers of three roles call tools of three servers, while servers, hosts, nats-server and connections
 * die at random. The ledgers of the servers record executed calls; the workers count outcomes. Prints one JSON line.
 * Arguments: seconds, seed, folder, engine (embedded or nats).
 */
import { mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { randomInt, seededRandom } from '../../dist/testing.js';
import { nap, openWorld } from './broker-world.mjs';
import { processes } from './counts.mjs';

const [seconds, seed] = [Number(process.argv[2]), Number(process.argv[3])];
const [folder, engine] = [process.argv[4], process.argv[5]];
const random = seededRandom(seed);
const pick = (list) => list[randomInt(random, 0, list.length - 1)];
const ledgerServer = fileURLToPath(new URL('../fakes/ledger-server.pl', import.meta.url));
mkdirSync(path.join(folder, 'ledgers'));

const servers = ['alpha', 'beta', 'gamma'];
const roles = { left: ['alpha', 'beta'], right: ['beta', 'gamma'], all: servers };
const workerRoles = ['left', 'right', 'all', 'left', 'right', 'all', 'left', 'right'];
const tools = JSON.stringify([{ name: 'work', inputSchema: { type: 'object' } }]);
const serverEntry = (name) => ({
  ...{ command: 'perl', args: [ledgerServer], pins: 'off' },
  env: { LEDGER: path.join(folder, 'ledgers', name), TOOLS: tools },
  restart: { max: 1_000, window: '10s' },
  breaker: { threshold: 1_000 },
});
const world = await openWorld({
  ...{ folder, engine, hosts: 2 },
  workers: Object.fromEntries(workerRoles.map((role, at) => [`worker-${at}`, role])),
  config: {
    mcpServers: Object.fromEntries(servers.map((name) => [name, serverEntry(name)])),
    roles: Object.fromEntries(
      Object.entries(roles).map(([role, its]) => [role, { allow: its.map((each) => `${each}/*`) }]),
    ),
  },
});
const workers = await Promise.all(
  workerRoles.map(async (role, at) => ({ name: `worker-${at}`, role, tools: await world.connect(`worker-${at}`) })),
);

// --- calls

const calls = new Map();
let isCalling = true;
const count = { calls: 0, answered: 0, wrong: 0, unsettled: 0, denied: 0, shownTooMuch: 0, lateMsMax: 0 };
const codes = {};

async function callOnce({ tools: remote, name, role }, number) {
  const nonce = `${name}-${number}`;
  const server = pick(roles[role]);
  const deadlineMs = randomInt(random, 1_000, 6_000);
  const beganMs = performance.now();
  const record = { outcome: undefined, told: 0 };
  calls.set(nonce, record);
  count.calls++;
  count.unsettled++;
  try {
    const { bytes } = await remote.execute(server, 'work', { nonce }, { deadlineMs });
    record.outcome = 'answered';
    count.answered++;
    if (JSON.parse(bytes.toString()).content[0].text !== nonce) count.wrong++;
  } catch (error) {
    record.outcome = error.details?.execution === 'not_executed' ? 'not_executed' : 'uncertain';
    codes[error.code ?? error.name] = (codes[error.code ?? error.name] ?? 0) + 1;
  }
  record.told++;
  count.unsettled--;
  count.lateMsMax = Math.max(count.lateMsMax, Math.round(performance.now() - beganMs - deadlineMs));
}

async function forbidden({ tools: remote, role }) {
  const server = servers.find((name) => !roles[role].includes(name));
  if (!server) return;
  try {
    await remote.execute(server, 'work', { nonce: 'forbidden' }, { deadlineMs: 2_000 });
    count.shownTooMuch++;
  } catch {
    count.denied++;
  }
}

const loops = workers.flatMap((worker) =>
  Array.from({ length: 4 }, async (_, lane) => {
    for (let number = 0; isCalling; number++) {
      if (random() < 0.01) await forbidden(worker);
      const atOnce = random() < 0.2 ? randomInt(random, 2, 12) : 1;
      await Promise.all(Array.from({ length: atOnce }, (_, n) => callOnce(worker, `${lane}-${number}-${n}`)));
      await nap(randomInt(random, 0, 20));
    }
  }),
);

// --- faults

const serverPids = () =>
  processes().filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('ledger-server.pl');
    } catch {
      return false;
    }
  });
let [serverKills, cuts] = [0, 0];
const untilMs = performance.now() + seconds * 1_000;
// The first four faults are fixed: a killed server, cut connections, a killed host, a killed nats-server (without NATS a host). So a short
// run has each of them.
const first = [0.1, 0.5, 0.8, 0.9];
while (performance.now() < untilMs) {
  await nap(randomInt(random, 100, 900));
  const chance = first.shift() ?? random();
  if (chance < 0.35) {
    const pid = pick(serverPids());
    if (pid === undefined) continue;
    try {
      process.kill(pid, 'SIGKILL');
      serverKills++;
    } catch {}
  } else if (chance < 0.7) {
    for (let i = randomInt(random, 1, 4); i > 0; i--) {
      const pair = pick(world.proxy.pairs());
      if (!pair) continue;
      cuts++;
      world.proxy.cut(pair);
    }
  } else if (chance < 0.87) await pick(world.hosts).die();
  else if (chance < 0.95) await (world.nats ?? pick(world.hosts)).die();
  else await (world.nats ?? pick(world.hosts)).pause(randomInt(random, 200, 1_500));
}

// --- calm again

isCalling = false;
await Promise.race([Promise.all(loops), nap(30_000)]);
// True if a call after the faults succeeds.
let isAnsweredAfterwards = false;
for (let i = 0; i < 60 && !isAnsweredAfterwards; i++)
  await workers[2].tools.execute('alpha', 'work', { nonce: `afterwards-${i}` }, { deadlineMs: 5_000 }).then(
    () => (isAnsweredAfterwards = true),
    () => nap(200),
  );
const openCalls = () =>
  world.hosts.map((_, at) => world.status(at).broker).reduce((sum, { waiting, running }) => sum + waiting + running, 0);
let left = openCalls();
for (let i = 0; i < 40 && left > 0; i++) {
  await nap(500);
  left = openCalls();
}
const rows = world.hosts.flatMap((_, at) =>
  world.status(at).servers.map(({ name, state, nextProbeInMs }) => ({ name, state, nextProbeInMs })),
);
const inFlight = workers.reduce((sum, { tools: remote }) => sum + remote.status().inFlight, 0);
for (const { tools: remote } of workers) await remote.close();
const exits = await world.close();
await nap(500);

const executed = new Map();
for (const name of servers) {
  let text = '';
  try {
    text = readFileSync(path.join(folder, 'ledgers', name), 'utf8');
  } catch {}
  for (const nonce of text.split('\n').filter(Boolean)) executed.set(nonce, (executed.get(nonce) ?? 0) + 1);
}
const recorded = [...calls];
const counted = (isWanted) => recorded.filter(isWanted).length;
console.log(
  JSON.stringify({
    ...{ engine, ...count, codes, serverKills, cuts, isAnsweredAfterwards, rows, left, inFlight, exits },
    toldTwice: counted(([, { told }]) => told > 1),
    executed: executed.size,
    duplicateExecutions: [...executed.values()].filter((times) => times > 1).length,
    answeredButNotExecuted: counted(([nonce, { outcome }]) => outcome === 'answered' && !executed.has(nonce)),
    promisedNotExecutedButExecuted: counted(
      ([nonce, { outcome }]) => outcome === 'not_executed' && executed.has(nonce),
    ),
    forbiddenExecuted: executed.get('forbidden') ?? 0,
    hostDeaths: world.hosts.reduce((sum, { deaths }) => sum + deaths, 0),
    natsDeaths: world.nats?.deaths ?? 0,
    errors: world.errors,
    processesLeft: processes().filter((pid) => pid !== 1 && pid !== process.pid).length,
  }),
);
process.exit(0);
