/**
 * An HTTP server is replaced by another release while Hostler holds a session: the session is renewed on the same run, and
 * everything that Hostler knew is read again.
 */
import type { ServerResponse } from 'node:http';
import { expect, onTestFinished, test } from 'vitest';
import { LogLevels } from '../../src/gateway/listening/log-levels.js';
import { createHost } from '../../src/host/host.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { embedder } from '../../src/policy/operation.js';
import { eventually } from '../eventually.js';
import { events, json, type Received, result, rpcError, startServer } from '../fakes/http-server.js';
import { fakePrincipal } from '../fakes/policy-call.js';
import { outcomeOf } from './harness.js';

/** A small legacy server. `redeploy` forgets its sessions. */
async function open(capabilities: object) {
  const script = {
    capabilities,
    tools: [{ name: 'say', inputSchema: { type: 'object', properties: {} as object } }],
    /** Methods that get a 502. */
    away: [] as string[],
    /** Methods that are not answered. */
    hung: [] as string[],
    asked: [] as string[],
    version: '1',
  };
  let opened = 0;
  const sessions = new Set<string>();
  const streams = new Set<ServerResponse>();
  const server = await startServer(({ method, rpcMethod, id, headers }: Received, response) => {
    if (method === 'DELETE') return void response.writeHead(200).end();
    if (rpcMethod === 'server/discover') return void json(response, rpcError(id, -32601), 400);
    if (rpcMethod === 'initialize') {
      const session = `s${++opened}`;
      sessions.add(session);
      const serverInfo = { name: 'x', version: script.version };
      const facts = { protocolVersion: '2025-11-25', capabilities: script.capabilities, serverInfo };
      return void json(response, result(id, facts), 200, { 'mcp-session-id': session });
    }
    if (!sessions.has(headers['mcp-session-id'] as string)) return void json(response, rpcError(null, -32000), 404);
    if (method === 'GET') {
      events(response).write('retry: 10\ndata: \n\n');
      streams.add(response);
      return;
    }
    if (id === undefined) return void response.writeHead(202).end();
    script.asked.push(rpcMethod as string);
    if (script.hung.includes(rpcMethod as string)) return;
    if (script.away.includes(rpcMethod as string)) return void response.writeHead(502).end();
    const prompts = [{ name: 'greet' }];
    if (rpcMethod !== 'tools/list') return void json(response, result(id, { content: [], contents: [], prompts }));
    json(response, result(id, { tools: script.tools }));
  });
  const clock = new FakeClock();
  const host = await createHost({ mcpServers: { a: { url: server.url } } }, { clock });
  onTestFinished(async () => {
    let isClosed = false;
    void host.close().then(() => {
      isClosed = true;
    });
    // A request that is never answered is given up after a while.
    await until('the host is closed', () => isClosed);
    await server.close();
  });
  const call = () => outcomeOf(host.call('a', 'say', {}));
  expect(await call()).toBe('ok');
  return {
    ...{ script, host, call },
    redeploy: () => {
      sessions.clear();
      for (const stream of streams) stream.end();
    },
    announce: async (method: string) => {
      await until('a stream is open', () => streams.size > 0);
      for (const stream of streams) stream.write(`data: ${JSON.stringify({ jsonrpc: '2.0', method })}\n\n`);
    },
    count: (method: string) => script.asked.filter((each) => each === method).length,
    keys: (method: 'tools/list' | 'prompts/list') =>
      host
        .known('a')
        ?.lists.get(method)
        ?.items.map(({ key }) => key),
    until,
  };

  /** Lets virtual time pass until the condition holds. */
  function until(what: string, holds: () => boolean): Promise<boolean> {
    return eventually(what, () => {
      clock.advance(100);
      return holds();
    });
  }
}

test('W28 new tools of a release are listed after the renewal, also without change notifications', async () => {
  const { script, call, redeploy, keys, until, host } = await open({ tools: {} });
  script.tools = [...script.tools, { name: 'add', inputSchema: { type: 'object', properties: { a: {} } } }];
  script.capabilities = { tools: {}, prompts: {} };
  script.version = '2';
  redeploy();
  expect(await call()).toBe('ok');
  await until('the new prompts are listed', () => keys('prompts/list')?.includes('greet') === true);
  await until('the new tool was compared', () => host.pin('a', 'add') !== undefined);
  expect(JSON.parse(String(host.known('a')?.facts?.capabilities))).toEqual(script.capabilities);
  expect([host.known('a')?.facts?.serverInfo?.includes('"2"'), host.status()[0]?.run]).toEqual([true, 1]);
});

test('W28 a tool that a release changed is not called after the renewal by calls that waited', async () => {
  const { script, host, call, redeploy, count } = await open({ tools: {} });
  script.tools = [{ name: 'say', inputSchema: { type: 'object', properties: { sendTo: { type: 'string' } } } }];
  const before = count('tools/call');
  redeploy();
  const calls = Array.from({ length: 100 }, call);
  expect(new Set(await Promise.all(calls))).toEqual(new Set(['schema_changed']));
  expect([count('tools/call'), host.pin('a', 'say')?.status]).toEqual([before, 'changed']);
});

test('W28 a release that does not list its tools is called after 5 s, by calls that waited and by new ones', async () => {
  const { script, call, redeploy, until, count, host } = await open({ tools: {} });
  script.hung = ['tools/list'];
  const before = count('tools/call');
  redeploy();
  const outcomes: unknown[] = [];
  const follow = (outcome: Promise<unknown>) => void outcome.then((each) => outcomes.push(each));
  follow(call());
  await eventually('the tools are asked for', () => count('tools/list') === 2);
  follow(call());
  // Requests sent later are answered, one after the other: a call that does not wait would have reached the server by then.
  for (let i = 0; i < 3; i++) await host.request('a', 'prompts/get', '{"name":"greet"}');
  expect(count('tools/call')).toBe(before);
  await until('both calls are answered', () => outcomes.length === 2);
  expect(outcomes).toEqual(['ok', 'ok']);
});

test('W28 calls that wait for the tools of a new session are served by the next connection after a reload', async () => {
  const { script, host, call, redeploy, count, until } = await open({ tools: {} });
  script.hung = ['tools/list'];
  const before = count('tools/call');
  redeploy();
  const outcomes: unknown[] = [];
  for (const outcome of [call(), call()]) void outcome.then((each) => outcomes.push(each));
  await eventually('the tools are asked for', () => count('tools/list') === 2);
  script.hung = [];
  script.tools = [{ name: 'say', inputSchema: { type: 'object', properties: { sendTo: { type: 'string' } } } }];
  const reloaded = host.reload('a');
  await until('both calls have ended', () => outcomes.length === 2);
  await reloaded;
  // The changed tool was compared with its pin before the calls could be sent.
  expect([outcomes, count('tools/call'), host.status()[0]?.run]).toEqual([
    ['schema_changed', 'schema_changed'],
    before,
    2,
  ]);
});

test('W28 the log level of clients is sent again after the renewal', async () => {
  const { call, redeploy, count, until, host } = await open({ tools: {}, logging: {} });
  const levels = new LogLevels(host);
  host.onKnownChanged((server) => levels.changed(server));
  levels.set('s1', 'debug', embedder, ['a']);
  await until('it is sent', () => count('logging/setLevel') === 1);
  redeploy();
  expect(await call()).toBe('ok');
  await until('it is sent again', () => count('logging/setLevel') === 2);
});

test('W29 a list that could not be read after list_changed is read again', async () => {
  const { script, announce, count, until, host } = await open({ tools: { listChanged: true } });
  script.tools = [...script.tools, { name: 'add', inputSchema: { type: 'object', properties: { a: {} } } }];
  script.away = ['tools/list'];
  await announce('notifications/tools/list_changed');
  await until('a read failed', () => count('tools/list') >= 2);
  script.away = [];
  await until('it is read', () => host.pin('a', 'add') !== undefined);
});

test('W29 a subscription that the restarted server could not make is made again', async () => {
  const { script, call, redeploy, count, until, host } = await open({ tools: {}, resources: { subscribe: true } });
  await host.subscribe('a', 'r:1', fakePrincipal('ann'), () => {});
  script.away = ['resources/subscribe'];
  redeploy();
  await call();
  await until('it failed', () => count('resources/subscribe') >= 2);
  script.away = [];
  const failed = count('resources/subscribe');
  await until('it is subscribed', () => count('resources/subscribe') > failed);
});
