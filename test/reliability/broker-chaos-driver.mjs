/**
 * Runs alone in a PID namespace: eight workers of three roles call tools of three servers, while servers, hosts, the broker and
 * the connections between them die at random. What ran is read from the ledgers of the servers, what was promised from what
 * the workers heard. Prints one JSON line.
 * Arguments: seconds, seed, folder, engine (embedded or nats).
 */
import { execFileSync, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { connect as connectTcp, createServer } from 'node:net';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { connect } from '../../dist/broker/worker/index.js';
import { randomInt, seededRandom } from '../../dist/testing.js';
import { processes } from './counts.mjs';

const [seconds, seed, folder, engine] = [
  Number(process.argv[2]),
  Number(process.argv[3]),
  process.argv[4],
  process.argv[5],
];
const random = seededRandom(seed);
const here = (file) => fileURLToPath(new URL(file, import.meta.url));
const main = here('../../dist/cli/main.js');
const ledgerServer = here('../fakes/ledger-server.pl');
const nap = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const pick = (list) => list[randomInt(random, 0, list.length - 1)];
mkdirSync(path.join(folder, 'ledgers'));

// --- what is there

const servers = ['alpha', 'beta', 'gamma'];
const roles = { left: ['alpha', 'beta'], right: ['beta', 'gamma'], all: servers };
const workerRoles = ['left', 'right', 'all', 'left', 'right', 'all', 'left', 'right'];
const tools = JSON.stringify([{ name: 'work', inputSchema: { type: 'object' } }]);

const freePort = () =>
  new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
const brokerPort = await freePort();
const proxyPort = await freePort();

/** NATS is let alone about who is who: that it holds the permissions is shown elsewhere. */
const keys = {};
const keyOf = new Map();
const entryOf = (mailbox, role, isHost) => {
  if (engine === 'nats') return { mailbox, role, nkey: `U${base32(mailbox)}` };
  const key = `hk_${randomBytes(32).toString('base64url')}`;
  keyOf.set(mailbox, key);
  const hash = `sha256:${createHash('sha256').update(key).digest('hex')}`;
  return { hash, mailbox, ...(isHost ? {} : { role }) };
};
const base32 = (text) =>
  [...createHash('sha512').update(text).digest()]
    .map((byte) => 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'[byte & 31])
    .join('')
    .slice(0, 55);
const mailboxes = workerRoles.map((role, at) => [`worker-${at}`, role]);
for (const [mailbox, role] of mailboxes) keys[mailbox] = entryOf(mailbox, role, false);
if (engine === 'embedded') keys.host = entryOf('host', undefined, true);

const shared = {
  keys,
  roles: Object.fromEntries(
    Object.entries(roles).map(([role, its]) => [role, { allow: its.map((each) => `${each}/*`) }]),
  ),
  log: { level: 'error' },
};
const write = (name, value) => {
  const file = path.join(folder, name);
  writeFileSync(file, typeof value === 'string' ? value : JSON.stringify(value), { mode: 0o600 });
  return file;
};
const limits = { messagesPerSecond: 100_000, burst: 100_000 };
const brokerConfig = write('broker.json', { ...shared, broker: { listen: { port: brokerPort }, limits } });
const hostKey = engine === 'embedded' ? write('host.key', keyOf.get('host')) : undefined;
const brokerUrl = engine === 'embedded' ? `ws://127.0.0.1:${proxyPort}/broker` : `nats://127.0.0.1:${proxyPort}`;
const hostConfig = write('host.json', {
  ...shared,
  mcpServers: Object.fromEntries(
    servers.map((name) => [
      name,
      {
        command: 'perl',
        args: [ledgerServer],
        env: { LEDGER: path.join(folder, 'ledgers', name), TOOLS: tools },
        restart: { max: 1_000, window: '10s' },
        breaker: { threshold: 1_000 },
        pins: 'off',
      },
    ]),
  ),
  broker: { url: brokerUrl, durability: 'process', ...(hostKey ? { keyFile: hostKey } : {}) },
});

// --- processes that die

const natsConfig = write(
  'nats.conf',
  `listen: "127.0.0.1:${brokerPort}"\nmax_payload: ${4 * 1024 * 1024 + 64 * 1024}\njetstream { store_dir: "${folder}/nats", max_mem: 64M, max_file: 8G }\n`,
);
const errors = [];
class Mortal {
  deaths = 0;
  constructor(name, command, args) {
    Object.assign(this, { name, command, args });
  }
  start() {
    this.child = spawn(this.command, this.args, { stdio: ['ignore', 'ignore', 'pipe'] });
    let said = '';
    this.child.stderr.on('data', (chunk) => (said = (said + chunk).slice(-2_000)));
    this.gone = new Promise((resolve) => this.child.once('exit', (code, signal) => resolve(code ?? signal)));
    this.gone.then((how) => {
      if (how !== 'SIGKILL' && how !== 0 && !isOver) errors.push(`${this.name} ended by itself (${how}): ${said}`);
    });
  }
  async die() {
    this.deaths++;
    this.child.kill('SIGKILL');
    await this.gone;
    this.start();
  }
  async stop() {
    this.child.kill('SIGTERM');
    return this.gone;
  }
}
let isOver = false;
const hostOf = (at) =>
  new Mortal(`host ${at}`, process.execPath, [
    ...[main, 'up', '--config', hostConfig, '--port', '0', '--json'],
    ...['--data-dir', path.join(folder, `host-${at}`)],
  ]);
const hosts = engine === 'embedded' ? [hostOf(0)] : [hostOf(0), hostOf(1)];
const brokerArgs = [main, 'broker', '--config', brokerConfig, '--data-dir', path.join(folder, 'broker')];
const broker =
  engine === 'embedded'
    ? new Mortal('broker', process.execPath, brokerArgs)
    : new Mortal('nats-server', 'nats-server', ['-c', natsConfig]);
broker.start();

/** Everybody reaches the broker through here. */
const pairs = new Set();
let cuts = 0;
const proxy = createServer((near) => {
  const far = connectTcp(brokerPort, '127.0.0.1');
  const pair = { near, far };
  pairs.add(pair);
  const end = () => {
    near.destroy();
    far.destroy();
    pairs.delete(pair);
  };
  for (const socket of [near, far]) socket.on('error', end).on('close', end);
  near.pipe(far);
  far.pipe(near);
}).listen(proxyPort, '127.0.0.1');
const cut = () => {
  const pair = pick([...pairs]);
  if (!pair) return;
  cuts++;
  pair.near.destroy();
  pair.far.destroy();
};

await nap(500);
for (const host of hosts) host.start();

// --- workers

const wanted = (mailbox) => (engine === 'embedded' ? brokerUrl : `${brokerUrl}/${mailbox}`);
const connectOne = async ([mailbox, role]) => {
  const options = { broker: wanted(mailbox), key: keyOf.get(mailbox) ?? 'user:password', connectMs: 30_000 };
  return { mailbox, role, tools: await connect(options) };
};
const workers = await Promise.all(mailboxes.map(connectOne));

const calls = new Map();
let isCalling = true;
const count = { calls: 0, answered: 0, wrong: 0, unsettled: 0, denied: 0, shownTooMuch: 0, lateMsMax: 0 };
const codes = {};

async function callOnce({ tools: remote, mailbox, role }, number) {
  const nonce = `${mailbox}-${number}`;
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
  const overMs = performance.now() - beganMs - deadlineMs;
  count.lateMsMax = Math.max(count.lateMsMax, Math.round(overMs));
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
      // Several at once at times: on NATS they go as one message.
      const atOnce = random() < 0.2 ? randomInt(random, 2, 12) : 1;
      await Promise.all(Array.from({ length: atOnce }, (_, n) => callOnce(worker, `${lane}-${number}-${n}`)));
      await nap(randomInt(random, 0, 20));
    }
  }),
);

// --- chaos

const serverPids = () =>
  processes().filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('ledger-server.pl');
    } catch {
      return false;
    }
  });
let serverKills = 0;
const untilMs = performance.now() + seconds * 1_000;
while (performance.now() < untilMs) {
  await nap(randomInt(random, 100, 900));
  const chance = random();
  if (chance < 0.35) {
    const pid = pick(serverPids());
    if (pid !== undefined) {
      try {
        process.kill(pid, 'SIGKILL');
        serverKills++;
      } catch {}
    }
  } else if (chance < 0.7) for (let i = randomInt(random, 1, 4); i > 0; i--) cut();
  else if (chance < 0.85) await pick(hosts).die();
  else if (chance < 0.95) await broker.die();
  else {
    broker.child.kill('SIGSTOP');
    await nap(randomInt(random, 200, 1_500));
    broker.child.kill('SIGCONT');
  }
}

// --- calm again

isCalling = false;
await Promise.race([Promise.all(loops), nap(30_000)]);
/** Nothing is owed: asked of whoever keeps it, once everybody has had time to say so. */
const owedBy = [];
const countedBy = [];
async function owed() {
  if (engine === 'nats') return owedOfNats();
  return undefined;
}
async function owedOfNats() {
  const { connect: connectNats } = await import('@nats-io/transport-node');
  const { jetstreamManager } = await import('@nats-io/jetstream');
  const connection = await connectNats({ servers: `127.0.0.1:${brokerPort}` });
  const manager = await jetstreamManager(connection);
  let pending = 0;
  owedBy.length = 0;
  countedBy.length = 0;
  for await (const { config, state } of manager.streams.list())
    for await (const { name, num_pending, num_ack_pending, num_redelivered } of manager.consumers.list(config.name)) {
      // A server that was killed goes on counting what was handed out before and is in no stream any more.
      const its = Math.min(num_pending + num_ack_pending, state.messages);
      if (its === 0) continue;
      owedBy.push(
        `${config.name}/${name}: ${num_pending} wait, ${num_ack_pending} handed out, ${num_redelivered} again`,
      );
      countedBy.push({ stream: config.name, consumer: name });
      pending += its;
    }
  await connection.close();
  return pending;
}
/**
 * What a server that was killed still counts may be of messages that are in no stream any more, while the stream has others that
 * were acknowledged. So what is counted is asked for, when no host is there that could have it: all that comes is owed. It waits
 * longer than a host is waited for.
 */
async function handedOutToNobody() {
  const { connect: connectNats } = await import('@nats-io/transport-node');
  const connection = await connectNats({ servers: `127.0.0.1:${brokerPort}` });
  const expiresMs = 35_000;
  let came = 0;
  for (const { stream, consumer } of countedBy) {
    const inbox = `_INBOX.owed.${stream}`;
    connection.subscribe(inbox, { callback: (_, message) => (came += message.headers?.code >= 400 ? 0 : 1) });
    connection.publish(
      `$JS.API.CONSUMER.MSG.NEXT.${stream}.${consumer}`,
      JSON.stringify({ batch: 256, expires: expiresMs * 1_000_000 }),
      { reply: inbox },
    );
  }
  await nap(expiresMs + 500);
  await connection.close();
  return came;
}
let left = await owed();
// What a host had in its hands when it was cut off comes again after half a minute.
for (let i = 0; i < 80 && left > 0; i++) {
  await nap(500);
  left = await owed();
}
// A call after the storm goes through.
const afterwards = { isAnswered: false, triesMax: 60 };
for (let i = 0; i < afterwards.triesMax && !afterwards.isAnswered; i++)
  await workers[2].tools.execute('alpha', 'work', { nonce: `afterwards-${i}` }, { deadlineMs: 5_000 }).then(
    () => (afterwards.isAnswered = true),
    () => nap(200),
  );
const status = (at) =>
  JSON.parse(
    execFileSync(process.execPath, [main, 'status', '--json', '--data-dir', path.join(folder, `host-${at}`)], {
      encoding: 'utf8',
    }),
  );
const rows = hosts.flatMap((_, at) =>
  rowsOf(status(at)).map(({ name, state, nextProbeInMs }) => ({ name, state, nextProbeInMs })),
);
function rowsOf(shown) {
  return Array.isArray(shown) ? shown : shown.servers;
}
// This process stood still: what came for its workers meanwhile, late replies among it, is read before they leave.
await nap(500);
const leftAtMs = Date.now();
for (const { tools: remote } of workers) await remote.close();
await nap(engine === 'embedded' ? 1_500 : 0);
isOver = true;
const exits = [];
for (const host of hosts) exits.push(await host.stop());
const counted = left ?? 0;
if (counted > 0) left = await handedOutToNobody();
exits.push(await broker.stop());
proxy.close();
for (const { near, far } of pairs) {
  near.destroy();
  far.destroy();
}
if (engine === 'embedded') {
  const { default: Database } = await import('libsql');
  const database = new Database(path.join(folder, 'broker', 'broker', 'broker.db'));
  const mail = database.prepare('SELECT dest, kind, sent_at FROM mail').all();
  left = mail.length;
  for (const { dest, kind, sent_at } of mail.slice(0, 20))
    owedBy.push(`${dest}: ${kind === 0 ? 'a request' : 'a reply'}, ${leftAtMs - sent_at} ms before the workers left`);
}
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
console.log(
  JSON.stringify({
    engine,
    ...count,
    toldTwice: recorded.filter(([, { told }]) => told > 1).length,
    executed: executed.size,
    duplicateExecutions: [...executed.values()].filter((times) => times > 1).length,
    answeredButNotExecuted: recorded.filter(([nonce, { outcome }]) => outcome === 'answered' && !executed.has(nonce))
      .length,
    promisedNotExecutedButExecuted: recorded.filter(
      ([nonce, { outcome }]) => outcome === 'not_executed' && executed.has(nonce),
    ).length,
    forbiddenExecuted: executed.get('forbidden') ?? 0,
    codes,
    serverKills,
    hostDeaths: hosts.reduce((sum, { deaths }) => sum + deaths, 0),
    brokerDeaths: broker.deaths,
    cuts,
    isAnsweredAfterwards: afterwards.isAnswered,
    rows,
    owed: left,
    counted,
    owedBy,
    errors,
    exits,
    processesLeft: processes().filter((pid) => pid !== 1 && pid !== process.pid).length,
  }),
);
process.exit(0);
