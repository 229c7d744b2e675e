/**
 * Starts the target of the suite: the fixture, and `hostler up` with the fixture behind it.
 * Not here: the suite (suite.mjs).
 *
 * Invariant: `stop` ends every started process. If this process dies, they end too, because their stdin ends.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const here = (file) => fileURLToPath(new URL(file, import.meta.url));
const fixtureFile = here('./fixture-server.mjs');
const secondFile = here('../fixtures/servers/sdk2-stdio.mjs');
const hostlerFile = here('../../dist/cli/main.js');
const readyMsMax = 30_000;
const stopMsMax = 15_000;

/** The fixture over HTTP or HTTP+SSE, by itself. */
export async function startFixture({ kind, era }) {
  const child = spawn(process.execPath, [fixtureFile, kind, '--era', era], { stdio: ['pipe', 'pipe', 'inherit'] });
  const line = await firstLine(child, 'the fixture');
  const url = /^listening (\S+)$/.exec(line)?.[1];
  if (url === undefined) throw new Error(`the fixture said: ${line}`);
  return { url, stop: () => end(child, 'SIGKILL') };
}

/** Starts `hostler up` with these servers. `log` gets its stderr. */
export async function startHostler(mcpServers, { log, isLearnt = learnt } = {}) {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-up-'));
  const config = path.join(folder, 'hostler.json');
  writeFileSync(config, JSON.stringify({ mcpServers }, null, 2));
  const options = [
    '--auth',
    'none',
    '--port',
    '0',
    '--json',
    '--config',
    config,
    '--data-dir',
    path.join(folder, 'data'),
  ];
  // Tokens are stored per user, so each run has a home directory of its own.
  const env = {
    ...process.env,
    XDG_DATA_HOME: path.join(folder, 'user'),
    XDG_CONFIG_HOME: path.join(folder, 'config'),
  };
  const child = spawn(process.execPath, [hostlerFile, 'up', ...options], { stdio: ['ignore', 'pipe', 'pipe'], env });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (chunk) => {
    said = (said + chunk).slice(-20_000);
    log?.(chunk);
  });
  const stop = async () => {
    await end(child, 'SIGTERM');
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    const line = JSON.parse(await firstLine(child, 'hostler up'));
    if (line.ready !== true || typeof line.url !== 'string')
      throw new Error(`hostler up said: ${JSON.stringify(line)}`);
    await isLearnt(line.url);
    const place = { file: hostlerFile, config, dataDir: path.join(folder, 'data'), env };
    return { url: line.url, pid: line.pid, stop, said: () => said, place };
  } catch (error) {
    await stop();
    throw new Error(`${error.message}\n${said}`);
  }
}

/** Resolves when Hostler is ready: the suite checks lists, which must be known before it starts. Hostler bounds the wait. */
async function learnt(url) {
  while ((await fetch(url.replace('/mcp', '/readyz'))).status !== 200) await sleep(20);
}

/** Starts a gateway with the fixture as server `fixture`, and a second server. */
export async function startCell(upstream, { isolation = 'shared', ...options } = {}) {
  const remote = upstream.kind === 'stdio' ? undefined : await startFixture(upstream);
  const fixture =
    remote === undefined
      ? { command: process.execPath, args: [fixtureFile, 'stdio', '--era', upstream.era] }
      : { url: remote.url, ...(upstream.kind === 'sse' && { transport: 'http-sse' }) };
  const second = { command: process.execPath, args: [secondFile] };
  try {
    // The suite does not end its sessions, so unused instances must stop soon.
    const own = isolation === 'per-client' ? { isolation, keepAlive: '2s' } : { isolation };
    const hostler = await startHostler({ fixture: { ...fixture, ...own }, second }, options);
    const stop = async () => {
      await hostler.stop();
      await remote?.stop();
    };
    return { aggregate: hostler.url, single: `${hostler.url}/fixture`, stop, said: hostler.said };
  } catch (error) {
    await remote?.stop();
    throw error;
  }
}

async function firstLine(child, name) {
  const lines = createInterface({ input: child.stdout });
  const timer = setTimeout(() => child.kill('SIGKILL'), readyMsMax);
  try {
    return await Promise.race([
      once(lines, 'line').then(([line]) => String(line)),
      once(child, 'exit').then(([code, signal]) => {
        throw new Error(`${name} ended before it was ready (${code ?? signal})`);
      }),
    ]);
  } finally {
    clearTimeout(timer);
  }
}

async function end(child, signal) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const timer = setTimeout(() => child.kill('SIGKILL'), stopMsMax);
  child.kill(signal);
  await once(child, 'exit');
  clearTimeout(timer);
}
