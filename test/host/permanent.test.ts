/**
 * Permanent failures on a real host: tried once, parked with the reason, and still probed. And similar failures
 * that are temporary.
 */
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createHost, type Host } from '../../src/host/host.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { seededRandom } from '../../src/kernel/random.js';
import { eventually } from '../eventually.js';
import { failureOf, outcomeOf } from './harness.js';

let folder: string;
let clock: FakeClock;
let host: Host | undefined;
let web: http.Server | undefined;

beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-permanent-'));
  clock = new FakeClock();
});

afterEach(async () => {
  await host?.close();
  web?.closeAllConnections();
  await new Promise((resolve) => (web ? web.close(resolve) : resolve(undefined)));
  host = web = undefined;
  rmSync(folder, { recursive: true, force: true });
});

async function open(entry: object): Promise<Host> {
  host = await createHost({ mcpServers: { a: entry } }, { clock, random: seededRandom(1) });
  return host;
}

const row = () => {
  const found = host?.status().find(({ name }) => name === 'a');
  if (!found) throw new Error('no such server');
  return found;
};

/** One try, a reason, and no further start before the first probe, for any caller. */
async function parksAfterOneTry(entry: object, reason: string, tries?: () => number): Promise<void> {
  const opened = await open(entry);
  const error = await failureOf(opened.call('a', 'x'));
  expect(error.toJSON()).toMatchObject({ code: 'server_parked', execution: 'not_executed', reason });
  expect(row()).toMatchObject({ state: 'parked', run: 1, restartCount: 0 });
  const before = tries?.();
  for (let i = 0; i < 4; i++) {
    await clock.advanceAsync(1_000);
    expect(await outcomeOf(opened.call('a', 'x'))).toBe('server_parked');
  }
  expect([row().run, tries?.()]).toEqual([1, before]);
  expect(row().nextProbeInMs).toBeGreaterThan(0);
}

const file = (name: string, text: string, mode: number) => {
  const full = path.join(folder, name);
  writeFileSync(full, text);
  chmodSync(full, mode);
  return full;
};

/** The number of starts that a program has recorded. */
const starts = () => {
  const log = path.join(folder, 'log');
  return existsSync(log) ? readFileSync(log, 'utf8').length : 0;
};

describe('a command', () => {
  test('S6 that does not exist is tried once', () => parksAfterOneTry({ command: 'no-such-command' }, 'ENOENT'));

  test('S6 that may not be run is tried once', () =>
    parksAfterOneTry({ command: file('plain', '#!/bin/sh\n', 0o644) }, 'EACCES'));

  test.each([126, 127])('S6 whose shell exits with %i is started once', async (code) => {
    const command = file('wrapper', `#!/bin/sh\nprintf x >> '${folder}/log'\nexit ${code}\n`, 0o755);
    await parksAfterOneTry({ command }, 'exit', starts);
    expect(starts()).toBe(1);
  });

  test('S6 that speaks JSON-RPC and no MCP is started once', async () => {
    const answer = '{"jsonrpc":"2.0","id":$1,"error":{"code":-32601,"message":"Method not found"}}';
    const note = `open my $log, '>>', '${folder}/log'; print $log 'x'; close $log;`;
    const script = `$| = 1; ${note} while (<STDIN>) { print qq(${answer}\\n) if /"id":(\\d+)/ }`;
    await parksAfterOneTry({ command: 'perl', args: ['-e', script] }, 'not_mcp', starts);
    expect(starts()).toBe(1);
    expect(row().lastError?.message).toContain('-32601');
  });
});

describe('a URL', () => {
  type Reply = { readonly status: number; readonly type?: string; readonly body?: string };
  type Site = (message: { method?: string; id?: number } | undefined) => Reply;
  let requests: number;
  let site: Site;

  beforeEach(async () => {
    requests = 0;
    web = http.createServer(async (request, response) => {
      requests++;
      let text = '';
      for await (const chunk of request) text += chunk;
      const { status, type, body = '' } = site(text === '' ? undefined : JSON.parse(text));
      response.writeHead(status, type === undefined ? {} : { 'content-type': type });
      response.end(body);
    });
    await new Promise<void>((resolve) => web?.listen(0, '127.0.0.1', resolve));
  });

  const url = () => {
    const { port } = (web as http.Server).address() as AddressInfo;
    return `http://127.0.0.1:${port}/mcp`;
  };
  const json = (body: object): Reply => ({ status: 200, type: 'application/json', body: JSON.stringify(body) });
  const page: Site = () => ({ status: 200, type: 'text/html', body: '<h1>Welcome</h1>' });
  const nothing: Site = () => ({ status: 404, type: 'text/html', body: 'not found' });
  const stranger: Site = (message) =>
    json({ jsonrpc: '2.0', id: message?.id ?? null, error: { code: -32601, message: 'Method not found' } });
  const mcp: Site = (message) => {
    if (message === undefined) return { status: 405 };
    const { method, id } = message;
    if (id === undefined) return { status: 202 };
    if (method === 'initialize')
      return json({ jsonrpc: '2.0', id, result: { protocolVersion: '2025-11-25', capabilities: { tools: {} } } });
    if (method === 'tools/list') return json({ jsonrpc: '2.0', id, result: { tools: [] } });
    if (method === 'tools/call') return json({ jsonrpc: '2.0', id, result: { content: [] } });
    return stranger(message);
  };

  test.each<[string, Site, object]>([
    ['a page', page, {}],
    ['a page, over HTTP+SSE', page, { transport: 'http-sse' }],
    ['404 whatever is asked', nothing, {}],
    ['404 whatever is asked, over streamable HTTP alone', nothing, { transport: 'streamable-http' }],
    ['an unknown method in both eras', stranger, {}],
  ])('S6 that answers with %s is tried once', async (_what, answers, more) => {
    site = answers;
    await parksAfterOneTry({ url: url(), ...more }, 'not_mcp', () => requests);
  });

  test('S6 a server that later speaks MCP is detected by its probe', async () => {
    site = page;
    const opened = await open({ url: url() });
    expect(await outcomeOf(opened.call('a', 'x'))).toBe('server_parked');
    site = mcp;
    await clock.advanceAsync(72_000);
    await eventually('the probe has found it', () => row().state === 'ready');
    expect(await outcomeOf(opened.call('a', 'x'))).toBe('ok');
  });

  /** The server is not ready yet, and is tried again as after any other failure. */
  async function isTriedOn(): Promise<void> {
    await eventually('it waits for the next start', () => row().state === 'backing_off');
    const { run } = row();
    await clock.advanceAsync(5_000);
    await eventually('it was tried again', () => row().run > run);
  }

  test.each([500, 502, 503, 429])(
    'status %i gives no evidence about its protocol: it is tried again',
    async (status) => {
      site = () => ({ status, type: 'text/html', body: 'later' });
      const opened = await open({ url: url() });
      const start = outcomeOf(opened.start('a'));
      await isTriedOn();
      expect(row().restartCount).toBeGreaterThan(0);
      await opened.close();
      expect(await start).toBe('server_stopped');
    },
  );

  test.each([
    ['internal error', -32603],
    ['an error of its own', -32000],
  ])('%s in answer to initialize may be temporary: the start is tried again', async (_what, code) => {
    site = (message) => json({ jsonrpc: '2.0', id: message?.id ?? null, error: { code, message: 'no database yet' } });
    const opened = await open({ url: url() });
    const start = outcomeOf(opened.start('a'));
    await isTriedOn();
    await opened.close();
    expect(await start).toBe('server_stopped');
  });

  test.each<[string, Site]>([
    ['404', nothing],
    ['a page', page],
  ])(
    'a server that has spoken MCP is not parked for %s from another server that answers while it restarts',
    async (_what, answers) => {
      site = mcp;
      const opened = await open({ url: url() });
      expect(await outcomeOf(opened.call('a', 'x'))).toBe('ok');
      site = answers;
      await opened.reload('a');
      const call = outcomeOf(opened.call('a', 'x'));
      await isTriedOn();
      site = mcp;
      await clock.advanceAsync(5_000);
      await eventually('it is back', () => row().state === 'ready');
      expect(['ok', 'reconnecting']).toContain(await call);
    },
  );
});
