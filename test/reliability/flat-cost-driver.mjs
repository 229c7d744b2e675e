/**
 * Measures the cost of a call and of a changed list for the gateway, for several numbers of servers, tools and idle clients. Prints
 * one JSON object.
 * Environment: ROUNDS, CALL_SECONDS, LIST_CHANGES.
 * Invariant: every round of every cell is a new `hostler up`, whose own CPU time is measured.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { Agent, request } from 'node:http';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { headersOf, hostler, listening, meta } from '../../bench/gateway-run.mjs';
import { file, median } from '../../bench/report.mjs';

const rounds = Number(process.env.ROUNDS ?? 3);
const callSeconds = process.env.CALL_SECONDS ?? '3';
const listChanges = Number(process.env.LIST_CHANGES ?? 20);
const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-flat-'));

const cells = [
  { servers: 1, toolsEach: 100, clients: 1 },
  { servers: 500, toolsEach: 2, clients: 1 },
  { servers: 10, toolsEach: 5_000, clients: 1 },
  { servers: 1, toolsEach: 100, clients: 1_000 },
  { servers: 500, toolsEach: 100, clients: 1_000 },
];

const keyOf = (i) => `bench-key-${i}`;
const hashOf = (key) => `sha256:${createHash('sha256').update(key).digest('hex')}`;
/** One key makes the calls; each idle client has its own. All have one role and a budget. */
const settings = {
  keys: Object.fromEntries(
    Array.from({ length: 1_001 }, (_, i) => [`key${i}`, { hash: hashOf(keyOf(i)), role: 'bench' }]),
  ),
  roles: { bench: { allow: ['*/*'] } },
  budgets: { roles: { bench: { calls: 1_000_000_000, window: '1h' } } },
};

/** Clients that listen for changes of lists and do nothing else. */
class IdleClients {
  #agent = new Agent({ maxSockets: Number.POSITIVE_INFINITY });
  #requests = [];
  notified = 0;

  async open(url, count) {
    for (let i = 1; i <= count; i += 50)
      await Promise.all(Array.from({ length: Math.min(50, count - i + 1) }, (_, n) => this.#listen(url, keyOf(i + n))));
  }

  /** Resolves when the stream is acknowledged. */
  #listen(url, key) {
    const { hostname, port, pathname } = new URL(url);
    const method = 'subscriptions/listen';
    const params = { notifications: { toolsListChanged: true }, _meta: meta };
    return new Promise((resolve, reject) => {
      const sent = request(
        { hostname, port, path: pathname, method: 'POST', headers: headersOf(key, method), agent: this.#agent },
        (answer) => {
          answer.setEncoding('utf8');
          answer.on('data', (text) => {
            if (answer.statusCode !== 200) return reject(new Error(`${answer.statusCode} ${text}`));
            this.notified += text.split('notifications/tools/list_changed').length - 1;
            if (text.includes('acknowledged')) resolve();
          });
        },
      );
      sent.on('error', reject);
      sent.end(JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }));
      this.#requests.push(sent);
    });
  }

  close() {
    for (const sent of this.#requests)
      sent
        .removeAllListeners('error')
        .on('error', () => {})
        .destroy();
    this.#agent.destroy();
  }
}

const ticks = (pid) => {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return Number(fields[11]) + Number(fields[12]);
};

async function whenListed(gateway, count) {
  for (let tries = 0; tries < 600; tries++) {
    const rows = await gateway.status();
    if (rows.length === count && rows.every(({ tools }) => tools > 0)) return;
    await sleep(200);
  }
  throw new Error('the servers were not listed within two minutes');
}

/** CPU time per call in us, with 16 concurrent calls to one server, at the endpoint of all servers. */
async function callCost(cell, no, url) {
  const { servers, toolsEach, clients } = cell;
  const specs = Array.from({ length: servers }, (_, i) => [
    `s${String(i).padStart(3, '0')}`,
    { url: `${url}?server=${i}&tools=${toolsEach}` },
  ]);
  const gateway = await hostler(folder, Object.fromEntries(specs), `cell${no}`, { settings });
  await whenListed(gateway, servers);
  const idle = new IdleClients();
  if (clients > 1) await idle.open(gateway.url, clients);
  const args = [gateway.url, keyOf(0), 'call', 's000__echo', '16', callSeconds, String(gateway.pid)];
  const { stdout } = await promisify(execFile)(process.execPath, [file('./http-load.mjs'), ...args]);
  idle.close();
  await gateway.end();
  return JSON.parse(stdout).steady.cpuUsPerCall;
}

/** One server of 1,000 tools changes one of them, and 1,000 keys listen. */
async function changeCost() {
  const delayFile = path.join(folder, 'loop-delay');
  process.env.LOOP_DELAY = delayFile;
  process.env.NODE_OPTIONS = `--import ${path.join(import.meta.dirname, 'loop-delay.mjs')}`;
  const args = [path.join(import.meta.dirname, 'changing-server.mjs'), '1000'];
  const server = { command: process.execPath, args, pins: 'off' };
  const gateway = await hostler(folder, { s: server }, 'changes', { settings });
  delete process.env.NODE_OPTIONS;
  await whenListed(gateway, 1);
  const idle = new IdleClients();
  await idle.open(gateway.url, 1_000);
  const change = () => gateway.post('tools/call', { name: 's__change', arguments: {} });
  const changed = async (count) => {
    for (let i = 0; i < count; i++) {
      const notified = idle.notified;
      await change();
      for (let tries = 0; idle.notified < notified + 1_000; tries++) {
        if (tries > 500) throw new Error(`${idle.notified - notified} of 1000 clients were notified`);
        await sleep(10);
      }
    }
  };
  await changed(5);
  process.kill(gateway.pid, 'SIGUSR2');
  const before = ticks(gateway.pid);
  await changed(listChanges);
  const cpuMs = ((ticks(gateway.pid) - before) * 10) / listChanges;
  idle.close();
  await gateway.end();
  return { cpuMs, stallMs: Number(readFileSync(delayFile, 'utf8')) };
}

const echo = await listening(process.execPath, [file('./echo-http.mjs')], { END_WITH_STDIN: '1' });
const costs = cells.map(() => []);
for (let round = 0; round < rounds; round++)
  for (const [no, cell] of cells.entries()) costs[no].push(await callCost(cell, no, echo.url));
await echo.end();
const change = await changeCost();
rmSync(folder, { recursive: true, force: true });
console.log(JSON.stringify({ cells: cells.map((cell, no) => ({ ...cell, cpuUs: median(costs[no]) })), change }));
