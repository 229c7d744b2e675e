/**
 * Clients of both eras that come while a server is still starting. Time stands still for the host, so that an answer which
 * waits for the server, or for any timer of the host, never comes.
 */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { expect, onTestFinished, test } from 'vitest';
import { createGateway } from '../../src/gateway/gateway.js';
import { createHost, type Host } from '../../src/host/host.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { eventually } from '../eventually.js';
import { connectSdk1Client, connectSdk2Client, type Heard, type Json } from '../fixtures/sdk-clients.js';
import { listen, META, modern, openSession, rpc, send } from './http-harness.js';

/** A server that answers nothing for 60 s, or until it is released. It records its start and its answers. */
const slowServer = `
  const { existsSync, writeFileSync } = require('node:fs');
  const { STARTED, RELEASE, ANSWERED } = process.env;
  const info = { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'slow', version: '1' } };
  const results = { initialize: info, 'tools/list': { tools: [{ name: 'late', inputSchema: { type: 'object' } }] } };
  const waiting = [];
  let isReleased = false;
  const answer = (line) => {
    const { id, method } = JSON.parse(line);
    if (id === undefined) return;
    writeFileSync(ANSWERED, method);
    const result = results[method];
    const outcome = result ? { result } : { error: { code: -32601, message: 'unknown method' } };
    console.log(JSON.stringify({ jsonrpc: '2.0', id, ...outcome }));
  };
  const release = () => {
    isReleased = true;
    for (const line of waiting.splice(0)) answer(line);
  };
  setInterval(() => existsSync(RELEASE) && release(), 20).unref();
  setTimeout(release, 60_000).unref();
  require('node:readline').createInterface({ input: process.stdin })
    .on('line', (line) => (isReleased ? answer(line) : waiting.push(line)))
    .on('close', () => process.exit(0));
  writeFileSync(STARTED, '');
`;

const all = {
  tools: { listChanged: true },
  prompts: { listChanged: true },
  resources: { subscribe: true, listChanged: true },
  completions: {},
  logging: {},
};

async function setUp() {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-slow-'));
  const file = (name: string) => path.join(folder, name);
  const env = { STARTED: file('started'), RELEASE: file('release'), ANSWERED: file('answered') };
  const slow = { command: process.execPath, args: ['-e', slowServer], env, timeouts: { start: '120s' } };
  let host: Host | undefined;
  let close = async () => {};
  onTestFinished(async () => {
    await close();
    rmSync(folder, { recursive: true, force: true });
  });
  const boot = async () => {
    await close();
    rmSync(env.STARTED, { force: true });
    const clock = new FakeClock();
    const config = { mcpServers: { slow }, groups: { some: ['slow'] } };
    const opened = await createHost(config, { clock, learnAtBoot: true, stateDir: file('state') });
    host = opened;
    const listening = { host: '127.0.0.1', port: 0, allowedHosts: [], allowedOrigins: [] };
    const gateway = await createGateway({ host, settings: { listen: listening, auth: 'none', version: '1' } });
    close = async () => {
      await gateway.close(0);
      let isClosed = false;
      const closing = opened.close().finally(() => {
        isClosed = true;
      });
      // Stopping a server that does not answer takes real time, although the clock of the host stands still.
      while (!isClosed) await clock.advanceAsync(1_000);
      await closing;
    };
    const url = await gateway.listen();
    // A known server is not started before it is needed.
    if (opened.known('slow')?.facts === undefined)
      await eventually('the server is being started', () => existsSync(env.STARTED));
    return { gateway, url, port: Number(new URL(url).port) };
  };
  return {
    boot,
    hasAnswered: () => existsSync(env.ANSWERED),
    release: () => writeFileSync(env.RELEASE, ''),
    isKnown: () => host?.known('slow')?.facts !== undefined,
  };
}

test('W5 initialize and server/discover are answered before a server that starts for 60 s answers anything', async () => {
  const { boot, hasAnswered } = await setUp();
  // The second time as after a restart of Hostler: the server was never seen, and there is still no wait for it.
  for (const _ of ['first boot', 'second boot']) {
    const { port } = await boot();
    for (const at of ['/mcp', '/mcp/slow', '/mcp/@some']) {
      const body = rpc(1, 'initialize', { protocolVersion: '2025-11-25', capabilities: {} });
      const legacy = await send(port, { path: at, body });
      expect([at, legacy.json().result]).toMatchObject([at, { capabilities: all, serverInfo: { name: 'hostler' } }]);
      const headers = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'server/discover' };
      const discover = await send(port, { path: at, headers, body: rpc(1, 'server/discover', { _meta: META }) });
      expect([at, discover.json().result]).toMatchObject([at, { capabilities: all }]);
    }
    expect(hasAnswered()).toBe(false);
  }
});

test('W5 the same over stdio', async () => {
  const { boot, hasAnswered } = await setUp();
  const { gateway } = await boot();
  const [input, output] = [new PassThrough(), new PassThrough()];
  let said = '';
  output.on('data', (chunk) => {
    said += chunk;
  });
  const served = gateway.serveStdio(input, output);
  input.write(`${rpc(1, 'server/discover', { _meta: META })}\n`);
  input.write(`${rpc(2, 'initialize', { protocolVersion: '2025-11-25', capabilities: {} })}\n`);
  await eventually('both are answered', () => said.split('\n').length === 3);
  const [first, second] = said.split('\n').map((line) => (line ? JSON.parse(line) : undefined));
  expect([first, second]).toMatchObject([
    { id: 1, result: { capabilities: all } },
    { id: 2, result: { capabilities: all, serverInfo: { name: 'hostler' } } },
  ]);
  expect(hasAnswered()).toBe(false);
  input.end();
  await served;
});

test('W5 clients that connected early are notified of the tools when the server is ready', async () => {
  const { boot, hasAnswered, release } = await setUp();
  const { port } = await boot();
  const streams = await Promise.all(
    ['/mcp', '/mcp/slow'].map(async (at) => {
      const headers = await openSession(port, '2025-11-25', { path: at });
      return { at, headers, stream: await listen(port, { path: at, method: 'GET', headers }) };
    }),
  );
  const modernStream = await listen(port, {
    headers: { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'subscriptions/listen' },
    body: rpc(1, 'subscriptions/listen', { notifications: { toolsListChanged: true }, _meta: META }),
  });
  await modernStream.until((text) => text.includes('acknowledged'));
  expect(hasAnswered()).toBe(false);
  release();
  const changed = (text: string) => text.includes('notifications/tools/list_changed');
  await modernStream.until(changed);
  for (const { at, headers, stream } of streams) {
    await stream.until(changed);
    const { result } = (await send(port, { path: at, headers, body: rpc(1, 'tools/list') })).json();
    expect((result as Json).tools).toMatchObject([{ name: at === '/mcp' ? 'slow__late' : 'late' }]);
    // These lists were offered before anything was known. Now it is known that the server has none, so they are empty.
    for (const [method, list] of [
      ['prompts/list', 'prompts'],
      ['resources/list', 'resources'],
      ['resources/templates/list', 'resourceTemplates'],
    ] as const)
      expect((await send(port, { path: at, headers, body: rpc(2, method) })).json().result).toEqual({ [list]: [] });
  }
  const { result } = (await modern(port, 'tools/list')).json();
  expect((result as Json).tools).toMatchObject([{ name: 'slow__late' }]);
});

test.each([
  ['SDK 1', (url: string, heard: Heard) => connectSdk1Client({ kind: 'streamable-http', url }, heard)],
  [
    'SDK 2, legacy',
    (url: string, heard: Heard) => connectSdk2Client({ kind: 'streamable-http', url }, heard, 'legacy'),
  ],
  [
    'SDK 2, modern',
    (url: string, heard: Heard) => connectSdk2Client({ kind: 'streamable-http', url }, heard, 'modern'),
  ],
])(
  'W5 %s connects before the server answers, is notified of its tools, and gets its instructions after the next start',
  async (_sdk, connect) => {
    const { boot, hasAnswered, release, isKnown } = await setUp();
    const { url } = await boot();
    const heard: Heard = [];
    const client = await connect(`${url}/slow`, heard);
    expect([hasAnswered(), client.serverName]).toEqual([false, 'hostler']);
    await client.listen();
    release();
    await eventually('the change is heard', () =>
      heard.some(({ method }) => method === 'notifications/tools/list_changed'),
    );
    expect((await client.request('tools/list')).tools).toMatchObject([{ name: 'late' }]);
    await client.close();
    await eventually('the server is known', isKnown);
    const again = await connect(`${(await boot()).url}/slow`, []);
    expect(again.serverName).toBe('slow');
    await again.close();
  },
);
