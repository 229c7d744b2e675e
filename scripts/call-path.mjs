/**
 * Finds the source files that one tools/call uses, with the function coverage of V8: HTTP in, stdio out, with key, role and budget.
 * Runs the unbundled files of dist/. A file counts if at least one of its functions runs in every measured call.
 */
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { createGateway } from '../dist/gateway/gateway.js';
import { createHost } from '../dist/host/host.js';

const dist = new URL('../dist/', import.meta.url).href;
const version = '2026-07-28';
const key = `hk_${'k'.repeat(43)}`;
const config = {
  mcpServers: {
    echo: { command: process.execPath, args: [fileURLToPath(new URL('../bench/echo-stdio.mjs', import.meta.url))] },
  },
  roles: { reader: { allow: ['echo/*'] } },
  budgets: { roles: { reader: { calls: 1_000_000, window: '1s' } } },
};
const warmUps = 50;
const measured = 5;

/** Maps each file to the names of its functions that run in every measured call. */
export async function callPath() {
  const dataDir = mkdtempSync(path.join(os.tmpdir(), 'hostler-path-'));
  const host = await createHost(config, { stateDir: dataDir });
  const gateway = await createGateway({
    host,
    dataDir,
    settings: {
      listen: { host: '127.0.0.1', port: 0, allowedHosts: [], allowedOrigins: [] },
      keys: { bench: { hash: `sha256:${createHash('sha256').update(key).digest('hex')}`, role: 'reader' } },
      auth: 'key',
      version: '1',
    },
  });
  try {
    const url = await gateway.listen();
    return await filesOf(() => call(`${url}/echo`));
  } finally {
    await gateway.close(0);
    await host.close();
    rmSync(dataDir, { recursive: true, force: true });
  }
}

async function call(url) {
  const meta = {
    'io.modelcontextprotocol/protocolVersion': version,
    'io.modelcontextprotocol/clientCapabilities': {},
  };
  const params = { name: 'echo', arguments: { text: 'x' }, _meta: meta };
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    authorization: `Bearer ${key}`,
    'mcp-protocol-version': version,
    'mcp-method': 'tools/call',
    'mcp-name': 'echo',
  };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params });
  const answer = await fetch(url, { method: 'POST', headers, body });
  const { result } = await answer.json();
  if (result?.content?.[0]?.text !== 'x') throw new Error(`wrong answer: ${JSON.stringify(result)}`);
}

async function filesOf(run) {
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  for (let i = 0; i < warmUps; i++) await run();
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  let common;
  for (let i = 0; i < measured; i++) {
    await session.post('Profiler.takePreciseCoverage');
    await run();
    const { result } = await session.post('Profiler.takePreciseCoverage');
    const ran = ranIn(result);
    common = common ? new Map([...common].filter(([file]) => ran.has(file))) : ran;
  }
  session.disconnect();
  return common;
}

function ranIn(scripts) {
  const ran = new Map();
  for (const { url, functions } of scripts) {
    if (!url.startsWith(dist)) continue;
    const names = functions.filter(({ ranges }) => ranges[0].count > 0).map(({ functionName }) => functionName || '=>');
    if (names.length > 0) ran.set(`src/${url.slice(dist.length).replace(/\.js$/, '.ts')}`, names);
  }
  return ran;
}
