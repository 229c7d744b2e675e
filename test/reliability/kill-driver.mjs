/**
 * Runs alone in a PID namespace: servers under load, killed at random moments. At the end the remaining processes and descriptors
 * are counted.
 * Prints one JSON line. Arguments: kills, seed, folder. Uses the built package, as an embedder would.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { Connector, parseServerSpec } from '../../dist/index.js';
import { randomInt, seededRandom } from '../../dist/testing.js';
import { descriptors, processes } from './counts.mjs';

const [kills, seed, folder] = [Number(process.argv[2]), Number(process.argv[3]), process.argv[4]];
const random = seededRandom(seed);
const serverCount = 10;
const callersPerServer = 6;
const script = fileURLToPath(new URL('../fakes/ledger-server.pl', import.meta.url));

const nap = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const client = { name: 'kill-driver', version: '0', capabilities: {} };
const connector = new Connector({ client, stateDir: path.join(folder, 'state') });
const outcomes = { answered: new Set(), notExecuted: new Set(), uncertain: new Set() };
const wrong = [];
let started = 0;
let stop = false;

const slots = Array.from({ length: serverCount }, (_, i) => {
  const ledger = path.join(folder, `ledger-${i}`);
  const env = { LEDGER: ledger, ...(i % 2 ? { GRANDCHILD: '1' } : {}) };
  return {
    ledger,
    spec: parseServerSpec({ name: `s${i}`, command: 'perl', args: [script], env }),
    session: undefined,
    starts: 0,
  };
});

async function connect(slot) {
  while (!stop && !slot.session) {
    slot.starts++;
    slot.session = await connector.connect(slot.spec).catch(() => undefined);
  }
}

/** Makes one call and records its reported outcome. The ledger shows later whether the report was true. */
async function call(slot, at) {
  const nonce = `${slot.spec.name}-${at}-${started++}`;
  const session = slot.session;
  try {
    const answer = await session.callTool('count', `{"nonce":"${nonce}"}`, {
      deadlineAtMs: performance.now() + 30_000,
    });
    outcomes.answered.add(nonce);
    if (!answer.bytes.includes(`"${nonce}"`)) wrong.push(nonce);
  } catch (error) {
    outcomes[error.details.execution === 'not_executed' ? 'notExecuted' : 'uncertain'].add(nonce);
    if (slot.session !== session) return;
    slot.session = undefined;
    slot.reconnecting = session.close().then(() => connect(slot));
  }
}

async function caller(slot, at) {
  while (!stop) {
    if (slot.session) await call(slot, at);
    else await nap(1);
  }
}

// One warm-up round, so that lazily opened descriptors are open before the count.
for (const slot of slots) await connect(slot);
await Promise.all(slots.map((slot) => slot.session.close()));
for (const slot of slots) slot.session = undefined;
await nap(50);
const descriptorsBefore = descriptors();

await Promise.all(slots.map(connect));
const callers = slots.flatMap((slot) => Array.from({ length: callersPerServer }, (_, at) => caller(slot, at)));
let killed = 0;
while (killed < kills) {
  await nap(randomInt(random, 0, 12));
  const slot = slots[randomInt(random, 0, serverCount - 1)];
  const pid = slot.session?.channel.describe().pid;
  if (pid === undefined || slot.session.closedBy) continue;
  try {
    process.kill(pid, 'SIGKILL');
    killed++;
  } catch {
    // The process had already ended.
  }
}
stop = true;
await Promise.all(callers);
await Promise.all(slots.map((slot) => slot.reconnecting));
await Promise.all(slots.map((slot) => slot.session?.close()));
await nap(50);
const descriptorsAfter = descriptors();
await connector.close();

const executed = slots.flatMap((slot) => readFileSync(slot.ledger, 'utf8').split('\n').filter(Boolean));
const executedOnce = new Set(executed);
const settled = outcomes.answered.size + outcomes.notExecuted.size + outcomes.uncertain.size;
console.log(
  JSON.stringify({
    kills: killed,
    calls: started,
    withoutOutcome: started - settled,
    answered: outcomes.answered.size,
    notExecuted: outcomes.notExecuted.size,
    uncertain: outcomes.uncertain.size,
    wrongAnswers: wrong.length,
    duplicateExecutions: executed.length - executedOnce.size,
    answeredButNotExecuted: [...outcomes.answered].filter((nonce) => !executedOnce.has(nonce)).length,
    promisedNotExecutedButExecuted: [...outcomes.notExecuted].filter((nonce) => executedOnce.has(nonce)).length,
    starts: slots.reduce((sum, slot) => sum + slot.starts, 0),
    processesLeft: processes().filter((pid) => pid !== process.pid && pid !== 1).length,
    descriptorsLeaked: descriptorsAfter - descriptorsBefore,
  }),
);
