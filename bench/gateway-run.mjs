/** Starts, calls, measures and ends the processes of the gateway benchmark. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { createServer } from 'node:net';
import path from 'node:path';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { file } from './report.mjs';

const main = file('../dist/cli/main.cjs');
const version = '2026-07-28';
export const meta = {
  'io.modelcontextprotocol/protocolVersion': version,
  'io.modelcontextprotocol/clientCapabilities': {},
};

/** Returns the first line that a process prints, and a function that ends the process. */
async function firstLine(child) {
  let text = '';
  child.stdout.setEncoding('utf8');
  for await (const chunk of child.stdout) {
    text += chunk;
    if (text.includes('\n')) break;
  }
  if (!text.includes('\n')) throw new Error('the process ended without a line of output');
  return text.slice(0, text.indexOf('\n'));
}

/** Starts a process that prints `listening <url>` and exits when its stdin ends. */
export async function listening(command, args, env = {}) {
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'], env: { ...process.env, ...env } });
  const exited = once(child, 'exit');
  const url = (await firstLine(child)).replace('listening ', '');
  child.stdout.resume();
  return {
    url,
    pid: child.pid,
    end: async () => {
      child.stdin.end();
      await exited;
    },
  };
}

export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

export const rssBytes = (pid) => {
  const [, kib] = readFileSync(`/proc/${pid}/status`, 'utf8').match(/VmRSS:\s+(\d+) kB/);
  return Number(kib) * 1024;
};

let runs = 0;

/** A key with a role, and with a budget that the load never exceeds. */
export const benchKey = 'bench-key';
export const fullPolicy = {
  keys: { bench: { hash: `sha256:${createHash('sha256').update(benchKey).digest('hex')}`, role: 'bench' } },
  roles: { bench: { allow: ['echo/*'] } },
  budgets: { principals: { bench: { calls: 1_000_000_000, window: '1h' } } },
};

/**
 * Starts `hostler up` with these servers. The data directory `name` is kept when Hostler ends. `settings`: further members of the
 * configuration.
 */
export async function hostler(
  folder,
  mcpServers,
  name = `run${++runs}`,
  { port = 0, isTimed = false, settings = {} } = {},
) {
  const dataDir = path.join(folder, name);
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const config = path.join(folder, `${name}.json`);
  writeFileSync(config, JSON.stringify({ mcpServers, ...settings }));
  const argv = [main, 'up', '--json', '--show-key', '--port', String(port), '--config', config, '--data-dir', dataDir];
  const startedMs = performance.now();
  const child = spawn(process.execPath, argv, { stdio: ['ignore', 'pipe', 'ignore'] });
  const exited = once(child, 'exit');
  const timed = isTimed
    ? untilAnswered(port, list(readFileSync(path.join(dataDir, 'key'), 'utf8').trim()), startedMs)
    : undefined;
  const { url, key, pid } = JSON.parse(await firstLine(child));
  child.stdout.resume();
  const firstListMs = await timed;
  return {
    url,
    key,
    pid,
    firstListMs,
    exited,
    post: (method, params = {}, at = '') => post(`${url}${at}`, key, method, params),
    status: () => control(dataDir, 'status'),
    /** Resolves when every server was listed and is asleep again. */
    whenResting: async () => {
      for (let tries = 0; tries < 600; tries++) {
        const rows = await control(dataDir, 'status');
        if (rows.every(({ tools, state }) => tools > 0 && state === 'registered')) return;
        await sleep(100);
      }
      throw new Error('the servers did not come to rest within a minute');
    },
    end: async () => {
      child.kill('SIGTERM');
      await exited;
    },
  };
}

async function control(dataDir, ...command) {
  const child = spawn(process.execPath, [main, ...command, '--json', '--data-dir', dataDir], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let text = '';
  for await (const chunk of child.stdout) text += chunk;
  const answer = JSON.parse(text);
  return answer.servers ?? answer;
}

const agent = new Agent({ keepAlive: true });

const list = (key) => ({
  path: '/mcp',
  headers: headersOf(key, 'tools/list'),
  body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list', params: { _meta: meta } }),
});

export const headersOf = (key, method, name) => ({
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
  'mcp-protocol-version': version,
  'mcp-method': method,
  authorization: `Bearer ${key}`,
  ...(name === undefined ? {} : { 'mcp-name': name }),
});

function post(url, key, method, params) {
  const { hostname, port, pathname } = new URL(url);
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { ...params, _meta: meta } });
  return send({ hostname, port, path: pathname, headers: headersOf(key, method, params.name), body });
}

function send({ hostname = '127.0.0.1', port, path: at, headers, body, using = agent }) {
  return new Promise((resolve, reject) => {
    const sent = request({ hostname, port, path: at, method: 'POST', headers, agent: using }, (answer) => {
      let text = '';
      answer.setEncoding('utf8');
      answer.on('data', (chunk) => (text += chunk));
      answer.on('end', () =>
        answer.statusCode === 200 ? resolve(text) : reject(new Error(`${answer.statusCode} ${text}`)),
      );
      answer.on('error', reject);
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

/** Retries until there is an answer. Returns the ms since `startedMs`. */
async function untilAnswered(port, { path: at, headers, body }, startedMs) {
  for (;;) {
    try {
      await send({ port, path: at, headers, body, using: undefined });
      return performance.now() - startedMs;
    } catch (error) {
      if (error.code !== 'ECONNREFUSED' && error.code !== 'ECONNRESET') throw error;
      if (performance.now() - startedMs > 20_000) throw error;
      await sleep(1);
    }
  }
}

/** Time from exec to the first answer of the process that `commandFor` starts on a given port. */
export async function timeToAnswer(commandFor) {
  const port = await freePort();
  const [command, args] = commandFor(port);
  const startedMs = performance.now();
  const child = spawn(command, args, { stdio: 'ignore' });
  const exited = once(child, 'exit');
  const tookMs = await untilAnswered(port, { path: '/', headers: {}, body: '' }, startedMs);
  child.kill();
  await exited;
  return tookMs;
}

/** Time in ms from exec of a server to its answer to `initialize`. */
async function startTime({ command, args }) {
  const startedMs = performance.now();
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  child.stdin.write(
    `${JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'bench', version: '1' } } })}\n`,
  );
  await firstLine(child);
  const tookMs = performance.now() - startedMs;
  child.kill('SIGKILL');
  await exited;
  return tookMs;
}

const killsOfServer = 5;

/** Kills the server several times under load, then Hostler itself. */
export async function killed(folder, spec) {
  const starts = [];
  for (let i = 0; i < killsOfServer; i++) starts.push(await startTime(spec));
  const gateway = await hostler(folder, { echo: spec });
  const call = () => gateway.post('tools/call', { name: 'echo', arguments: { text: 'x' } }, '/echo');
  await call();
  let isOver = false;
  let failed = 0;
  let untyped = 0;
  /** Only a request sent after the kill counts as the next success. */
  let onSuccess = () => {};
  const caller = async () => {
    while (!isOver) {
      const askedMs = performance.now();
      try {
        const { result } = JSON.parse(await call());
        if (!result?.isError) onSuccess(askedMs);
        else {
          failed++;
          if (typeof result._meta?.['hostler/error']?.code !== 'string') untyped++;
        }
      } catch {
        if (!isOver) untyped++;
      }
    }
  };
  const callers = Array.from({ length: 16 }, caller);
  const recoveryMs = [];
  for (let i = 0; i < killsOfServer; i++) {
    // Long enough for a proven run: Hostler restarts a server that dies earlier more slowly, by design.
    await sleep(5_500);
    const [{ pid }] = await gateway.status();
    const killedMs = performance.now();
    const next = new Promise((resolve) => {
      onSuccess = (askedMs) => askedMs > killedMs && resolve();
    });
    process.kill(pid, 'SIGKILL');
    await next;
    recoveryMs.push(performance.now() - killedMs);
  }
  const [{ pid: server }] = await gateway.status();
  isOver = true;
  process.kill(gateway.pid, 'SIGKILL');
  await gateway.exited;
  await Promise.all(callers);
  await sleep(2_000);
  const orphans = readdirSync('/proc').filter((entry) => Number(entry) === server).length;
  return { recoveryMs, startMs: Math.max(...starts), failed, untyped, orphans };
}
