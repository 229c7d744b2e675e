/**
 * Lists of real servers in a host: which lists are cached and for how long, and which are shown for servers that do not run.
 * Both respect the policy.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Discovered } from '../../src/catalog/discovery.js';
import { createHost, type Host } from '../../src/host/host.js';
import type { HostConfig, HostOptions } from '../../src/host/host-interface.js';
import type { HostError } from '../../src/kernel/errors.js';
import { eventually } from '../eventually.js';
import { json, startServer, type TestServer } from '../fakes/http-server.js';
import { httpFixtures, type RunningFixture } from '../fixtures/fixture-servers.js';
import { failureOf } from './harness.js';

let folder: string;
let host: Host;
let problems: unknown[];
const listeners: TestServer[] = [];
const running: RunningFixture[] = [];

/**
 * A server that answers each method with the text in a file, which it reads each time; null: no answer. It writes each requested
 * method to a ledger. Tools: `say` sends a notification, `die` ends the server, `hang` never answers.
 */
const script = `
  const { readFileSync, appendFileSync } = require('node:fs');
  const say = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\\n');
  let rest = '';
  process.stdin.setEncoding('utf8').on('data', (text) => {
    const lines = (rest + text).split('\\n');
    rest = lines.pop();
    for (const line of lines.filter(Boolean)) {
      const { id, method, params } = JSON.parse(line);
      if (id === undefined) continue;
      appendFileSync(process.env.LEDGER, method + '\\n');
      const result = JSON.parse(readFileSync(process.env.ANSWERS, 'utf8'))[method];
      if (method === 'initialize') say({ id, result: { protocolVersion: '2025-11-25', capabilities: { tools: {} } } });
      else if (method === 'ping') say({ id, result: {} });
      else if (method === 'tools/call' && params.name === 'die') process.exit(3);
      else if (method === 'tools/call' && params.name === 'hang') continue;
      else if (method === 'tools/call') {
        say(params.arguments);
        say({ id, result: { content: [] } });
      } else if (result === undefined) say({ id, error: { code: -32601, message: 'unknown' } });
      else if (result !== null) say({ id, result });
    }
  });`;

const tool = (name: string, more: object = {}) => ({ name, inputSchema: { type: 'object' }, ...more });

/** A server of this kind under a name; `answers` may be changed while it runs. */
function scripted(name: string, answers: Record<string, unknown>, more: Record<string, unknown> = {}) {
  const file = (kind: string) => path.join(folder, `${name}.${kind}`);
  const answer = (next: Record<string, unknown>) => writeFileSync(file('answers'), JSON.stringify(next));
  answer(answers);
  const env = { LEDGER: file('ledger'), ANSWERS: file('answers') };
  const asked = (method: string) => {
    const lines = existsSync(env.LEDGER) ? readFileSync(env.LEDGER, 'utf8').split('\n') : [];
    return lines.filter((line) => line === method).length;
  };
  return { entry: { command: process.execPath, args: ['-e', script], env, ...more }, answer, asked };
}

const open = async (config: HostConfig = {}, options: HostOptions = {}) => {
  host = await createHost(config, {
    stateDir: path.join(folder, 'state'),
    onProblem: (error) => problems.push(error),
    ...options,
  });
};
const row = (name: string) => host.status().find((each) => each.name === name);
const lines = (rows: readonly Discovered[]) =>
  rows.map((each) =>
    'tool' in each ? `${each.server} ${each.tool} ${each.state ?? ''}` : `${each.server}: ${each.error.code}`,
  );
const names = async (tools: Promise<{ name: string }[]>) => (await tools).map(({ name }) => name);
const serve = async (...given: Parameters<typeof startServer>) => {
  const server = await startServer(...given);
  listeners.push(server);
  return server;
};

beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-lists-'));
  problems = [];
});
afterEach(async () => {
  await host?.close();
  for (const server of listeners.splice(0)) await server.close();
  for (const fixture of running.splice(0)) await fixture.stop();
  rmSync(folder, { recursive: true, force: true });
});

describe('D-19 a list', () => {
  test('is cached as long as its server allows, and read again when the server announces a change', async () => {
    const a = scripted('a', { 'tools/list': { tools: [tool('one')], ttlMs: 60_000, cacheScope: 'public' } });
    await open({ mcpServers: { a: a.entry } });
    for (let i = 0; i < 3; i++) expect(await names(host.tools('a'))).toEqual(['one']);
    // Once, when it started.
    expect(a.asked('tools/list')).toBe(1);
    a.answer({ 'tools/list': { tools: [tool('two')] } });
    await host.call('a', 'say', { method: 'notifications/tools/list_changed' });
    expect(await names(host.tools('a'))).toEqual(['two']);
  });

  test('that does not change is requested once for many simultaneous callers', async () => {
    const a = scripted('a', {
      'tools/list': { tools: [] },
      'prompts/list': { prompts: [{ name: 'p' }], ttlMs: 60_000 },
    });
    await open({ mcpServers: { a: a.entry } });
    const all = await Promise.all(Array.from({ length: 20 }, () => host.list('a', 'prompts/list')));
    expect(new Set(all.map((items) => items.map(({ server, key }) => `${server} ${key}`).join()))).toEqual(
      new Set(['a p']),
    );
    const other = { principal: { id: 'other', role: undefined, scopes: [] } };
    await host.list('a', 'prompts/list', other);
    await host.list('a', 'prompts/list');
    expect(a.asked('prompts/list')).toBe(2);
    await host.call('a', 'say', { method: 'notifications/prompts/list_changed' });
    await host.list('a', 'prompts/list');
    expect(a.asked('prompts/list')).toBe(3);
  });

  test('is not cached beyond a run, a reload, or a change of rights; nor is a resource', async () => {
    const a = scripted('a', {
      'tools/list': { tools: [] },
      'resources/list': { resources: [{ uri: 'x:1', name: 'r' }], ttlMs: 60_000, cacheScope: 'public' },
      'resources/read': { contents: [{ uri: 'x:1', text: 'n' }], ttlMs: 60_000, cacheScope: 'public' },
    });
    await open({ mcpServers: { a: a.entry } });
    const both = async () => {
      await host.list('a', 'resources/list');
      expect((await host.read('a', 'x:1')).json()).toMatchObject({ contents: [{ text: 'n' }] });
      return [a.asked('resources/list'), a.asked('resources/read')];
    };
    expect([await both(), await both()]).toEqual([
      [1, 1],
      [1, 1],
    ]);
    await failureOf(host.call('a', 'die'));
    await eventually('it is back', () => row('a')?.state === 'ready' && row('a')?.run === 2);
    expect(await both()).toEqual([2, 2]);
    await host.reload('a');
    expect(await both()).toEqual([3, 3]);
    host.setAllowlist(() => ({ allow: true }));
    expect(await both()).toEqual([4, 4]);
    await host.call('a', 'say', { method: 'notifications/resources/updated', params: { uri: 'x:1' } });
    expect(await both()).toEqual([4, 5]);
  });
});

describe('D-17 lists pass the same checks as calls', () => {
  test('an open breaker refuses them', async () => {
    const a = scripted(
      'a',
      { 'tools/list': { tools: [tool('one')] } },
      { breaker: { threshold: 1 }, timeouts: { call: '100ms' } },
    );
    await open({ mcpServers: { a: a.entry } });
    await host.tools('a');
    await failureOf(host.call('a', 'hang'));
    const asked = a.asked('tools/list');
    const error = await failureOf(host.tools('a'));
    expect(error.toJSON()).toMatchObject({ code: 'circuit_open', execution: 'not_executed', server: 'a' });
    expect(lines(await host.discover())).toEqual(['a one circuit_open']);
    expect([a.asked('tools/list'), row('a')?.circuit]).toEqual([asked, 'open']);
  });

  test('a list that is the trial closes the breaker', async () => {
    const a = scripted(
      'a',
      { 'tools/list': { tools: [tool('one')] } },
      { breaker: { threshold: 1, reset: '50ms' }, timeouts: { call: '100ms' } },
    );
    await open({ mcpServers: { a: a.entry } });
    await host.tools('a');
    await failureOf(host.call('a', 'hang'));
    await eventually('it may be tried', () => row('a')?.circuit === 'half_open');
    expect(await names(host.tools('a'))).toEqual(['one']);
    expect(row('a')).toMatchObject({ circuit: 'closed', run: 1 });
  });

  test('a list that succeeds does not reset failures of calls', async () => {
    const a = scripted(
      'a',
      { 'tools/list': { tools: [] } },
      { breaker: { threshold: 2 }, timeouts: { call: '100ms' } },
    );
    await open({ mcpServers: { a: a.entry } });
    await host.tools('a');
    await failureOf(host.call('a', 'hang'));
    await host.tools('a');
    expect(row('a')?.consecutiveFailures).toBe(1);
    await failureOf(host.call('a', 'hang'));
    expect(row('a')?.circuit).toBe('open');
  });

  test('tools that may not be called are not shown, of running servers and of others', async () => {
    const tools = { 'tools/list': { tools: [tool('open'), tool('secret')], ttlMs: 60_000, cacheScope: 'public' } };
    const [up, resting, hidden] = ['up', 'resting', 'hidden'].map((name) => scripted(name, tools).entry);
    const card = path.join(folder, 'card.json');
    writeFileSync(card, JSON.stringify({ name: 'x', tools: [tool('open'), tool('secret')] }));
    const config = { mcpServers: { carded: { command: 'no-such-command', card }, hidden, resting, up } };
    await open(config);
    await Promise.all(['up', 'resting', 'hidden'].map((name) => host.tools(name)));
    await host.close();
    await open(config);
    await host.tools('up');
    host.setAllowlist(({ server, tool: name }) =>
      server === 'hidden' || name === 'secret' ? { allow: false, reason: 'no' } : { allow: true },
    );
    expect(lines(await host.discover())).toEqual(['carded open registered', 'resting open registered', 'up open ']);
    expect((await failureOf(host.call('resting', 'secret'))).code).toBe('denied');
    expect(row('resting')?.run).toBe(0);
  });

  test('a stopped server is reported as stopped, and nothing starts it', async () => {
    const a = scripted('a', { 'tools/list': { tools: [tool('one')] } });
    const b = scripted('b', { 'tools/list': { tools: [] } });
    await open({ mcpServers: { a: a.entry, b: b.entry } });
    await host.tools('a');
    await host.stop('a');
    await host.stop('b');
    for (const wake of [false, true])
      expect(lines(await host.discover({ wake }))).toEqual(['a: server_stopped', 'b: server_stopped']);
    expect((await failureOf(host.tools('a'))).code).toBe('server_stopped');
    expect([row('a')?.run, row('b')?.run]).toEqual([1, 0]);
  });
});

test('D-18 one server that hangs does not affect the rows of the others, which are ordered by name', async () => {
  const [modern] = httpFixtures.filter(({ name }) => name === 'sdk2-http-modern');
  const remote = (await modern?.start()) as RunningFixture;
  running.push(remote);
  const list = { 'tools/list': { tools: [tool('one')] } };
  const servers = ['a', 'b', 'c'].map((name) => [name, scripted(name, list)] as const);
  const mcpServers = {
    z: { url: remote.url },
    ...Object.fromEntries(servers.map(([name, { entry }]) => [name, entry])),
  };
  await open({ mcpServers });
  const before = await host.discover({ wake: true });
  const remoteLines = lines(before).filter((line) => line.startsWith('z '));
  expect(remoteLines).toContain('z echo ');
  expect(lines(before)).toEqual(['a one ', 'b one ', 'c one ', ...remoteLines]);
  servers[1]?.[1].answer({ 'tools/list': null });
  expect(lines(await host.discover({ deadlineMs: 3_000 }))).toEqual([
    'a one ',
    'b one timeout',
    'c one ',
    ...remoteLines,
  ]);
});

test('D-24 a tool that names another server is listed under its own', async () => {
  const a = scripted('a', { 'tools/list': { tools: [tool('t', { _mcp_server: 'other', server: 'other' })] } });
  await open({ mcpServers: { a: a.entry } });
  const [listed] = await host.tools('a');
  expect(listed).toMatchObject({ server: 'a', name: 't' });
  expect(listed?.raw.toString()).toContain('"_mcp_server":"other"');
  expect(lines(await host.discover())).toEqual(['a t ']);
  await host.reload('a');
  expect(lines(await host.discover())).toEqual(['a t registered']);
});

test('D-35 the tools of a parked server stay listed, marked, and are read again when it is back', async () => {
  const a = scripted('a', { 'tools/list': { tools: [tool('one')] } }, { restart: { max: 0 } });
  await open({ mcpServers: { a: a.entry } });
  await host.tools('a');
  await failureOf(host.call('a', 'die'));
  await eventually('it is parked', () => row('a')?.state === 'parked');
  expect(lines(await host.discover())).toEqual(['a one parked']);
  const refused = await failureOf(host.call('a', 'one'));
  expect([refused.code, (refused.details.retryAfterMs ?? 0) > 0]).toEqual(['server_parked', true]);
  expect((await failureOf(host.tools('a'))).code).toBe('server_parked');
  expect(lines(await host.discover({ hideUnavailable: true }))).toEqual(['a: server_parked']);
  expect(row('a')?.run).toBe(1);
  a.answer({ 'tools/list': { tools: [tool('one'), tool('two')] } });
  await host.reload('a');
  await host.call('a', 'one', { method: 'notifications/message' });
  expect(row('a')).toMatchObject({ state: 'ready', tools: 2 });
  expect(lines(await host.discover())).toEqual(['a one ', 'a two ']);
});

describe('server cards', () => {
  const card = { name: 'far', description: 'd', tools: [tool('from_card'), { title: 'no name' }] };

  test('describe a server that never ran, and are fetched once', async () => {
    const web = await serve(({ path: at }, response) => json(response, card, at.includes('.well-known') ? 200 : 404));
    await open({ mcpServers: { far: { url: 'http://127.0.0.1:9/mcp', card: web.url } } });
    for (let i = 0; i < 3; i++) {
      expect(await host.discover()).toMatchObject([
        {
          server: 'far',
          tool: 'from_card',
          schema: tool('from_card'),
          state: 'registered',
          pin: 'new',
          isUnapproved: true,
        },
      ]);
    }
    expect(web.received.map(({ path: at }) => at)).toEqual(['/mcp', '/mcp/.well-known/mcp-card']);
    expect(await host.card('far')).toMatchObject({ source: web.url, name: 'far', description: 'd' });
    expect([web.received.length, row('far')?.run]).toEqual([2, 0]);
  });

  test('are replaced by the list of the server itself', async () => {
    const file = path.join(folder, 'card.json');
    writeFileSync(file, JSON.stringify(card));
    const a = scripted('a', { 'tools/list': { tools: [tool('real')] } }, { card: file });
    await open({ mcpServers: { a: a.entry } });
    expect(lines(await host.discover())).toEqual(['a from_card registered']);
    await host.tools('a');
    await host.reload('a');
    expect(lines(await host.discover())).toEqual(['a real registered']);
  });

  test('that cannot be read are one row each, of three kinds', async () => {
    const web = await serve((_received, response) => response.writeHead(200).end('<html>'));
    const far = (source: string) => ({ url: 'http://127.0.0.1:9/mcp', card: source });
    await open({
      mcpServers: { file: far(path.join(folder, 'none.json')), gone: far('http://127.0.0.1:9/x'), page: far(web.url) },
    });
    const rows = (await host.discover()) as { server: string; error: HostError }[];
    expect(rows.map(({ server, error }) => [server, error.details.reason])).toEqual([
      ['file', 'io'],
      ['gone', 'http'],
      ['page', 'parse'],
    ]);
  });

  test('are set with spawn, and looked up by name or by source', async () => {
    const file = path.join(folder, 'card.json');
    writeFileSync(file, JSON.stringify(card));
    await open();
    await host.spawn({ name: 'far', url: 'http://127.0.0.1:9/mcp' }, { lazy: true, card: file });
    await host.spawn({ name: 'plain', url: 'http://127.0.0.1:9/mcp' }, { lazy: true });
    expect((await host.card('far')).tools.map(({ key }) => key)).toEqual(['from_card']);
    expect((await host.card(file)).name).toBe('far');
    expect((await failureOf(host.card('plain'))).details.reason).toBe('no_card');
    expect((await failureOf(host.card('nobody'))).code).toBe('server_not_found');
    expect(
      (await failureOf(host.spawn({ name: 'bad', command: 'x' }, { lazy: true, card: 'ftp://x/y' }))).details.field,
    ).toBe('card');
  });
});

describe('servers that were never seen', () => {
  test('are started once at boot if configured, and released', async () => {
    const list = { 'tools/list': { tools: [tool('one')] } };
    const servers = ['a', 'b', 'c', 'd'].map((name) => [name, scripted(name, list)] as const);
    const config = {
      mcpServers: {
        ...Object.fromEntries(servers.map(([name, { entry }]) => [name, entry])),
        none: { command: 'no-such-command' },
        off: { command: 'no-such-command', enabled: false },
      },
    };
    await open(config);
    expect(host.status().map(({ run }) => run)).toEqual([0, 0, 0, 0, 0, 0]);
    await host.close();
    await open(config, { learnAtBoot: true });
    await eventually(
      'all is known',
      () => ['a', 'b', 'c', 'd'].every((name) => row(name)?.tools === 1) && problems.length > 0,
    );
    await eventually('all are given back', () => host.status().every(({ refCount }) => refCount === 0));
    expect(host.status().map(({ name, run }) => `${name} ${run}`)).toEqual([
      'a 1',
      'b 1',
      'c 1',
      'd 1',
      'none 1',
      'off 0',
    ]);
    expect(problems.map((problem) => (problem as HostError).code)).toEqual(['server_parked']);
    await host.close();
    problems = [];
    await open({ mcpServers: { a: servers[0]?.[1].entry } }, { learnAtBoot: true });
    expect(row('a')).toMatchObject({ run: 0, tools: 1, state: 'registered' });
  });

  test('do not prevent a host from closing', async () => {
    const a = scripted('a', { 'tools/list': null });
    await open({ mcpServers: { a: a.entry } }, { learnAtBoot: true });
    await eventually('it is asked', () => a.asked('tools/list') === 1);
    await host.close();
    expect(problems).toEqual([]);
  });
});
