/** Whole requests through the router, over servers without a host. */

import { describe, expect, test } from 'vitest';
import type { Bridge } from '../../src/gateway/bridge/bridged-request.js';
import type { Client } from '../../src/gateway/exchange.js';
import { deferred } from '../../src/kernel/deferred.js';
import { HostError } from '../../src/kernel/errors.js';
import { RpcRefusal } from '../../src/session/rpc-response.js';
import { METHODS, type Method } from '../../src/wire/methods.js';
import { FakeExchange, fakeClient, principalOf } from '../fakes/fake-exchange.js';
import { FakeGateway } from '../fakes/fake-router.js';
import type { FakeCall, FakeServer } from '../fakes/fake-upstreams.js';

const legacy = fakeClient();
const modern = fakeClient({ era: 'modern' });
const at = (path: string, era: 'legacy' | 'modern' = 'legacy') => fakeClient({ path, era });
const serverInfoKey = 'io.modelcontextprotocol/serverInfo';
const hostler = { name: 'hostler', version: '1.2.3' };
const namesOf = (items: { name: string }[]) => items.map(({ name }) => name);

const odd =
  '{"x-vendor":{"big":12345678901234567890,"f":1.10},"name":"odd","description":"é\\u00e9","inputSchema":{"type":"object"}, "annotations":{"vendor":1e400}}';

const two: Record<string, FakeServer> = {
  fs: {
    tools: [odd, 'read'],
    prompts: ['greet'],
    resources: ['file:///a', 'file:///both'],
    templates: ['file:///{+path}'],
    serverInfo: '{"name":"files","version":"9","vendor":18446744073709551615}',
    instructions: 'read before you write',
  },
  web: {
    tools: ['fetch'],
    resources: ['file:///both', 'web://home'],
    templates: ['web://{page}/x'],
    era: 'modern',
    serverInfo: '{"name":"web","version":"2"}',
    ttlMs: 5_000,
    isPublic: true,
  },
};

describe('endpoints', () => {
  const { router, upstreams } = new FakeGateway(two);
  upstreams.groups.set('g', ['web']);
  upstreams.groups.set('none', []);
  upstreams.allow(({ id }, server) => id !== 'stranger' || server === 'web');
  test.each([
    ['all', { kind: 'all' }, 'somebody', true],
    ['all servers, without a visible server', { kind: 'all' }, 'stranger', true],
    ['a server', { kind: 'server', server: 'fs' }, 'somebody', true],
    ['a server that is not allowed', { kind: 'server', server: 'fs' }, 'stranger', false],
    ['an unknown server', { kind: 'server', server: 'x' }, 'somebody', false],
    ['a group', { kind: 'group', group: 'g' }, 'stranger', true],
    ['an unknown group', { kind: 'group', group: 'x' }, 'somebody', false],
    ['an empty group', { kind: 'group', group: 'none' }, 'somebody', false],
  ] as const)('%s', (_title, endpoint, id, expected) => {
    expect(router.hasEndpoint(endpoint, principalOf(id))).toBe(expected);
  });
});

describe('lists', () => {
  test('of all servers have the server in front of each name, and are otherwise unchanged', async () => {
    const gateway = new FakeGateway(two);
    const { result } = await gateway.ask(legacy, 'tools/list');
    const shown = odd.replace('"name":"odd"', '"name":"fs__odd"');
    expect(result).toBe(`{"tools":[${shown},{"name":"fs__read"},{"name":"web__fetch"}]}`);
  });

  test('of one server are unchanged', async () => {
    const { result } = await new FakeGateway(two).ask(at('/mcp/fs'), 'tools/list');
    expect(result).toBe(`{"tools":[${odd},{"name":"read"}]}`);
  });

  test('of a group are of its servers only', async () => {
    const gateway = new FakeGateway(two);
    gateway.upstreams.groups.set('g', ['web']);
    const { result } = await gateway.ask(at('/mcp/@g'), 'tools/list');
    expect(result).toBe('{"tools":[{"name":"web__fetch"}]}');
  });

  test('of modern clients have a cache lifetime, a cache scope and the server info', async () => {
    const gateway = new FakeGateway(two);
    const all = (await gateway.ask(modern, 'tools/list')).json();
    expect(all).toMatchObject({ resultType: 'complete', ttlMs: 0, cacheScope: 'private' });
    expect(all._meta).toEqual({ [serverInfoKey]: hostler });
    const one = (await gateway.ask(at('/mcp/web', 'modern'), 'tools/list')).json();
    expect(one).toMatchObject({ resultType: 'complete', ttlMs: 5_000, cacheScope: 'public' });
    expect(one._meta).toEqual({ [serverInfoKey]: { name: 'web', version: '2' } });
    const roled = fakeClient({ era: 'modern', path: '/mcp/web', principal: principalOf('a', 'dev') });
    expect((await gateway.ask(roled, 'tools/list')).json().cacheScope).toBe('private');
  });

  test('E5 are private while there is a key or a role, and public again without', async () => {
    const gateway = new FakeGateway(two);
    const scope = async () => (await gateway.ask(at('/mcp/web', 'modern'), 'tools/list')).json().cacheScope;
    const scopes = [await scope()];
    gateway.mayBePublic = false;
    scopes.push(await scope());
    gateway.mayBePublic = true;
    scopes.push(await scope());
    expect(scopes).toEqual(['public', 'private', 'public']);
  });

  test('show a resource that two servers list for both', async () => {
    const gateway = new FakeGateway(two);
    const { resources } = (await gateway.ask(legacy, 'resources/list')).json();
    expect(resources).toEqual([
      { uri: 'file:///a' },
      { uri: 'hostler://fs/file:///both' },
      { uri: 'hostler://web/file:///both' },
      { uri: 'web://home' },
    ]);
    const { resourceTemplates } = (await gateway.ask(legacy, 'resources/templates/list')).json();
    expect(resourceTemplates).toEqual([{ uriTemplate: 'file:///{+path}' }, { uriTemplate: 'web://{page}/x' }]);
    expect(namesOf((await gateway.ask(legacy, 'prompts/list')).json().prompts)).toEqual(['fs__greet']);
  });

  test('are built once, and again only for changes', async () => {
    const gateway = new FakeGateway(two);
    const first = await gateway.ask(legacy, 'tools/list');
    expect((await gateway.ask(legacy, 'tools/list')).result).toBe(first.result);
    gateway.upstreams.set('web', { tools: ['fetch', 'search'] });
    expect(namesOf((await gateway.ask(legacy, 'tools/list')).json().tools)).toEqual([
      'fs__odd',
      'fs__read',
      'web__fetch',
      'web__search',
    ]);
    gateway.upstreams.remove('fs');
    expect(namesOf((await gateway.ask(legacy, 'tools/list')).json().tools)).toEqual(['web__fetch', 'web__search']);
  });

  test('contain the state of servers that are not ready, and of no others', async () => {
    const gateway = new FakeGateway(two);
    gateway.upstreams.setState('fs', 'parked');
    const { tools } = (await gateway.ask(legacy, 'tools/list')).json();
    expect(tools.map(({ _meta }: { _meta?: unknown }) => _meta)).toEqual([
      { 'hostler/state': 'parked' },
      { 'hostler/state': 'parked' },
      undefined,
    ]);
    gateway.upstreams.setState('fs', 'ready');
    expect((await gateway.ask(legacy, 'tools/list')).json().tools[0]._meta).toBeUndefined();
  });

  test('contain exactly what a principal may see, also right after the rules changed', async () => {
    const gateway = new FakeGateway(two);
    await gateway.ask(legacy, 'tools/list');
    gateway.upstreams.allow((_principal, server, tool) => server === 'fs' && tool !== 'odd');
    expect(namesOf((await gateway.ask(legacy, 'tools/list')).json().tools)).toEqual(['fs__read']);
    expect((await gateway.ask(legacy, 'tools/call', '{"name":"fs__odd"}')).failure?.code).toBe(-32602);
    expect((await gateway.ask(legacy, 'tools/call', '{"name":"web__fetch"}')).failure?.code).toBe(-32602);
    expect(gateway.upstreams.calls).toEqual([]);
  });

  test('hide tools that the operator denies, and show the names that the operator gave', async () => {
    const tools = { deny: ['rm*'], rename: { read: 'lies' } };
    const gateway = new FakeGateway({ fs: { tools: ['read', 'rm', 'rm_all'], definition: { tools } } });
    expect((await gateway.ask(legacy, 'tools/list')).result).toBe('{"tools":[{"name":"fs__lies"}]}');
    expect((await gateway.ask(at('/mcp/fs'), 'tools/list')).result).toBe('{"tools":[{"name":"lies"}]}');
    await gateway.ask(at('/mcp/fs'), 'tools/call', '{"name":"lies"}');
    expect(gateway.upstreams.calls.map(({ tool }) => tool)).toEqual(['read']);
    expect((await gateway.ask(at('/mcp/fs'), 'tools/call', '{"name":"rm"}')).failure?.code).toBe(-32602);
    expect((await gateway.ask(at('/mcp/fs'), 'tools/call', '{"name":"read"}')).failure?.code).toBe(-32602);
  });

  test('have pages whose cursors stay valid while the list changes', async () => {
    const many = Array.from({ length: 4_500 }, (_, i) => `t${i}`);
    const gateway = new FakeGateway({ s: { tools: many } });
    const read = async (cursor: string | undefined) =>
      (await gateway.ask(legacy, 'tools/list', cursor && JSON.stringify({ cursor }))).json();
    const seen: string[] = [];
    let cursor: string | undefined;
    const cursors: string[] = [];
    do {
      const page = await read(cursor);
      seen.push(...namesOf(page.tools));
      cursor = page.nextCursor;
      if (cursor) cursors.push(cursor);
    } while (cursor);
    expect(seen).toEqual(many.map((name) => `s__${name}`).sort());
    expect(cursors).toHaveLength(2);
    gateway.upstreams.setState('s', 'parked');
    expect((await read(cursors[0])).tools).toHaveLength(2_000);
    gateway.upstreams.set('s', { tools: ['new', ...many] });
    expect(namesOf((await read(cursors[0])).tools)).toEqual(seen.slice(2_000, 4_000));
    for (const wrong of ['"x"', '7', '""', 'null']) {
      expect((await gateway.ask(legacy, 'tools/list', `{"cursor":${wrong}}`)).failure).toMatchObject({
        code: -32602,
        message: 'invalid cursor',
      });
    }
  });

  test('W5 lists and unknown tools wait for the startup listing of all servers, initialize and server/discover do not', async () => {
    const gateway = new FakeGateway({ s: { tools: [], capabilities: null }, ...two });
    const { promise, resolve } = deferred();
    gateway.upstreams.listing = promise;
    const list = gateway.send(legacy, 'tools/list');
    const call = gateway.send(legacy, 'tools/call', '{"name":"s__t"}');
    expect([list.ends, call.ends]).toEqual([0, 0]);
    for (const path of ['/mcp', '/mcp/s', '/mcp/@some']) {
      expect(gateway.send(at(path), 'initialize', '{}').ends).toBe(1);
      expect(gateway.send(fakeClient({ path, era: 'modern' }), 'server/discover', '{}').ends).toBe(1);
    }
    // Servers that were seen before are fully known.
    expect(gateway.send(at('/mcp/fs'), 'tools/list').ends).toBe(1);
    expect(gateway.send(at('/mcp/fs'), 'initialize', '{}').ends).toBe(1);
    expect(gateway.send(at('/mcp/fs'), 'tools/call', '{"name":"nope"}').ends).toBe(1);
    gateway.upstreams.set('s', { tools: ['t'] });
    gateway.upstreams.listing = undefined;
    resolve();
    expect(namesOf((await list.ended).json().tools)).toContain('s__t');
    expect((await call.ended).result).toBe('{"content":[]}');
  });
});

describe('the handshake', () => {
  test('of one server has its own texts', async () => {
    const capabilities =
      '{"tools":{"vendor":1},"resources":{"subscribe":true,"listChanged":false},"tasks":{"list":{}},"experimental":{"x":12345678901234567890},"extensions":{"io.modelcontextprotocol/tasks":{},"a/b":{}}}';
    const gateway = new FakeGateway({ fs: { ...two.fs, capabilities } });
    const { result } = await gateway.ask(at('/mcp/fs'), 'initialize', '{}');
    expect(result).toBe(
      '{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true,"vendor":1},"resources":{"subscribe":true,"listChanged":true},"experimental":{"x":12345678901234567890},"extensions":{"a/b":{}}},"serverInfo":{"name":"files","version":"9","vendor":18446744073709551615},"instructions":"read before you write"}',
    );
  });

  test('of all servers offers everything that the gateway can relay', async () => {
    const gateway = new FakeGateway(two);
    const said = (await gateway.ask(legacy, 'initialize', '{}')).json();
    expect(said.capabilities).toEqual({
      tools: { listChanged: true },
      prompts: { listChanged: true },
      resources: { subscribe: true, listChanged: true },
      completions: {},
      logging: {},
    });
    expect(said.serverInfo).toEqual(hostler);
    expect(said.instructions).toContain('fs: read before you write');
    expect(said.instructions).toContain('\n\nweb');
  });

  test('W5 of a server that was never seen offers everything that the gateway can relay, and its lists are empty', async () => {
    const gateway = new FakeGateway({ s: { capabilities: null } });
    const said = (await gateway.ask(at('/mcp/s'), 'initialize', '{}')).json();
    const { capabilities } = (await gateway.ask(legacy, 'initialize', '{}')).json();
    expect(said).toEqual({ protocolVersion: '2025-11-25', capabilities, serverInfo: hostler });
    for (const list of ['tools', 'prompts', 'resources'])
      expect((await gateway.ask(at('/mcp/s'), `${list}/list`)).json()).toEqual({ [list]: [] });
    expect((await gateway.ask(at('/mcp/s'), 'logging/setLevel', '{"level":"info"}')).result).toBe('{}');
  });

  test('of the modern era is server/discover', async () => {
    const said = (await new FakeGateway(two).ask(at('/mcp/fs', 'modern'), 'server/discover', '{}')).json();
    expect(said).toMatchObject({ resultType: 'complete', ttlMs: 0, cacheScope: 'private' });
    expect(said.supportedVersions).toEqual(['2026-07-28', '2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05']);
    expect(said._meta[serverInfoKey].name).toBe('files');
    expect(said.instructions).toBe('read before you write');
  });

  test.each([
    ['modern', 'initialize'],
    ['modern', 'ping'],
    ['modern', 'logging/setLevel'],
    ['modern', 'resources/subscribe'],
    ['modern', 'resources/unsubscribe'],
    ['modern', 'tasks/get'],
    ['modern', 'constructor'],
    ['legacy', 'server/discover'],
    ['legacy', 'subscriptions/listen'],
    ['legacy', 'toString'],
  ] as const)('a %s client gets no answer to %s', async (era, method) => {
    const { failure } = await new FakeGateway(two).ask(fakeClient({ era }), method, '{}');
    expect(failure).toEqual({ code: -32601, message: 'method not found' });
  });

  test('a result that is not an object is an internal error', async () => {
    const gateway = new FakeGateway(two);
    gateway.upstreams.onCall = async () => '[]';
    const { failure } = await gateway.ask(fakeClient({ era: 'modern' }), 'tools/call', '{"name":"web__fetch"}');
    expect(failure?.code).toBe(-32603);
  });

  test('a ping of a legacy client is answered', async () => {
    expect((await new FakeGateway({}).ask(legacy, 'ping')).result).toBe('{}');
  });
});

describe('tool calls', () => {
  const big = '{"content":[{"type":"vendor/new","n":12345678901234567890}],"x":{"y":[1.0]}}';

  test('are sent to the tool of the server, and the result is returned unchanged', async () => {
    const gateway = new FakeGateway(two);
    gateway.upstreams.onCall = () => big;
    const params = '{"name":"fs__odd","arguments":{"id":9007199254740993,"s":"\\u00e9"}}';
    const exchange = await gateway.ask(legacy, 'tools/call', params);
    expect(exchange.result).toBe(big);
    expect(exchange.ends).toBe(1);
    const [call] = gateway.upstreams.calls;
    expect(call).toMatchObject({ server: 'fs', tool: 'odd', args: '{"id":9007199254740993,"s":"\\u00e9"}' });
    expect(call?.options).toMatchObject({ principal: legacy.principal, instance: legacy.id, signal: exchange.signal });
    expect(call?.options.meta).toBeUndefined();
    expect(call?.options.onProgress).toBeUndefined();
    expect(call?.options.deadlineMs).toBeUndefined();
  });

  test('without arguments have empty ones', async () => {
    const gateway = new FakeGateway(two);
    await gateway.ask(legacy, 'tools/call', '{"name":"fs__read"}');
    expect(gateway.upstreams.calls[0]?.args).toBe('{}');
  });

  test.each([
    ['no params', undefined],
    ['no name', '{}'],
    ['a name that is no string', '{"name":7}'],
    ['an unknown tool', '{"name":"fs__nope"}'],
    ['a tool name without its server', '{"name":"read"}'],
    ['arguments that are no object', '{"name":"fs__read","arguments":[]}'],
    ['arguments twice', '{"name":"fs__read","arguments":{},"arguments":{"a":1}}'],
    ['a name twice, once with escapes', '{"name":"fs__read","n\\u0061me":"fs__odd"}'],
    ['a _meta that is no object', '{"name":"fs__read","_meta":[]}'],
    ['a _meta with a duplicate key', '{"name":"fs__read","_meta":{"a":1,"a":2}}'],
  ])('with %s are refused before anything is sent', async (_title, params) => {
    const gateway = new FakeGateway(two);
    const { failure } = await gateway.ask(legacy, 'tools/call', params);
    expect(failure?.code).toBe(-32602);
    expect(gateway.upstreams.calls).toEqual([]);
  });

  test('of a server whose tools are not known are sent to it unchecked', async () => {
    const gateway = new FakeGateway({ s: { capabilities: null } });
    await gateway.ask(legacy, 'tools/call', '{"name":"s__t"}');
    await gateway.ask(at('/mcp/s'), 'tools/call', '{"name":"t"}');
    expect(gateway.upstreams.calls.map(({ tool }) => tool)).toEqual(['t', 't']);
    gateway.upstreams.set('s', { prompts: [] });
    expect((await gateway.ask(legacy, 'tools/call', '{"name":"s__t"}')).failure?.code).toBe(-32602);
    expect(gateway.upstreams.calls).toHaveLength(2);
  });

  test('of a modern client to a legacy server return a complete result, with the name of the server', async () => {
    const gateway = new FakeGateway(two);
    gateway.upstreams.onCall = () => big;
    const { result } = await gateway.ask(modern, 'tools/call', '{"name":"fs__read"}');
    const info = two.fs?.serverInfo;
    expect(result).toBe(`{"resultType":"complete","_meta":{"${serverInfoKey}":${info}},${big.slice(1)}`);
  });

  test('of a legacy client to a modern server return a result without modern members', async () => {
    const gateway = new FakeGateway(two);
    gateway.upstreams.onCall = () => '{"resultType":"complete","content":[],"ttlMs":5,"cacheScope":"public","n":1.10}';
    expect((await gateway.ask(legacy, 'tools/call', '{"name":"web__fetch"}')).result).toBe('{"content":[],"n":1.10}');
  });

  test('are translated to the present era of the server', async () => {
    const gateway = new FakeGateway(two);
    gateway.upstreams.onCall = () => '{"resultType":"complete","content":[]}';
    const call = () => gateway.ask(legacy, 'tools/call', '{"name":"fs__read"}');
    expect((await call()).result).toBe('{"resultType":"complete","content":[]}');
    gateway.upstreams.set('fs', { ...two.fs, era: 'modern' });
    expect((await call()).result).toBe('{"content":[]}');
  });

  test('between a modern client and a modern server are not changed', async () => {
    const gateway = new FakeGateway(two);
    const text = '{"resultType":"task","taskId":"1","ttlMs":5}';
    gateway.upstreams.onCall = () => text;
    expect((await gateway.ask(modern, 'tools/call', '{"name":"web__fetch"}')).result).toBe(text);
  });

  test('forward the rest of _meta, but not the envelope', async () => {
    const gateway = new FakeGateway(two);
    const meta =
      '{"io.modelcontextprotocol/protocolVersion":"2026-07-28","traceparent":"00-1","io.modelcontextprotocol/clientCapabilities":{},"progressToken":"p","x/y":{"n":12345678901234567890}}';
    await gateway.ask(modern, 'tools/call', `{"name":"fs__read","_meta":${meta}}`);
    expect(gateway.upstreams.calls[0]?.options.meta).toBe('"traceparent":"00-1","x/y":{"n":12345678901234567890}');
  });

  test.each([['"tok"'], ['12345678901234567890']])('get progress under their own token %s', async (token) => {
    const gateway = new FakeGateway(two);
    gateway.upstreams.onCall = ({ options }) => {
      options.onProgress?.(Buffer.from('{"progressToken":77,"progress":1,"x":1.0}'));
      return '{"content":[]}';
    };
    const params = `{"name":"fs__read","_meta":{"progressToken":${token}}}`;
    const { heard } = await gateway.ask(legacy, 'tools/call', params);
    expect(heard).toEqual([
      { method: 'notifications/progress', params: `{"progressToken":${token},"progress":1,"x":1.0}` },
    ]);
  });

  test('get logs of the level that their client requested', async () => {
    const gateway = new FakeGateway(two);
    gateway.upstreams.onCall = ({ options }) => {
      for (const level of ['debug', 'warning', 'vendor']) {
        options.onServerNotification?.('notifications/message', Buffer.from(`{"level":"${level}","data":1}`));
      }
      options.onServerNotification?.('notifications/other', Buffer.from('{}'));
      return '{"content":[]}';
    };
    const levelsHeard = async (client: typeof legacy, meta = '{}') => {
      const exchange = await gateway.ask(client, 'tools/call', `{"name":"web__fetch","_meta":${meta}}`);
      return exchange.heard.map(({ params }) => JSON.parse(String(params)).level);
    };
    expect(await levelsHeard(legacy)).toEqual(['debug', 'warning', 'vendor']);
    expect(await levelsHeard(modern)).toEqual([]);
    expect(await levelsHeard(modern, '{"io.modelcontextprotocol/logLevel":"info"}')).toEqual(['warning']);
    expect(gateway.upstreams.calls.at(-1)?.options.meta).toBe('"io.modelcontextprotocol/logLevel":"info"');
    expect((await gateway.ask(legacy, 'logging/setLevel', '{"level":"error"}')).result).toBe('{}');
    expect(await levelsHeard(legacy)).toEqual([]);
    expect((await gateway.ask(legacy, 'logging/setLevel', '{"level":"loud"}')).failure?.code).toBe(-32602);
  });

  test.each([
    ['tools/call', '{"name":"late__tool"}'],
    ['prompts/get', '{"name":"late__prompt"}'],
    ['tools/list', '{}'],
  ])('that waited are answered, whatever fails meanwhile: %s', async (method, params) => {
    const gateway = new FakeGateway({ ...two, late: { tools: [], capabilities: null } });
    const { promise, resolve } = deferred();
    gateway.upstreams.listing = promise;
    const exchange = gateway.send(legacy, method, params);
    gateway.upstreams.set('late', { tools: ['tool'], prompts: ['prompt'] });
    gateway.upstreams.known = () => {
      throw new Error('broken');
    };
    resolve();
    expect((await exchange.ended).failure).toMatchObject({ code: -32603 });
    expect(gateway.problems).toMatchObject([{ message: 'broken' }]);
  });

  test('of a session that was never opened leave nothing behind when it ends', async () => {
    const gateway = new FakeGateway(two);
    gateway.upstreams.onCall = ({ options }) => {
      options.onServerNotification?.('notifications/message', Buffer.from('{"level":"info","data":1}'));
      return '{"content":[]}';
    };
    const heard = async () => (await gateway.ask(legacy, 'tools/call', '{"name":"web__fetch"}')).heard.length;
    await gateway.ask(legacy, 'logging/setLevel', '{"level":"error"}');
    expect(await heard()).toBe(0);
    gateway.router.endedBeforeOpen(legacy);
    expect([gateway.upstreams.endedInstances, await heard()]).toEqual([[legacy.id], 1]);
  });

  test('forward the answers of the client to the bridge', async () => {
    const gateway = new FakeGateway(two);
    const params = '{"name":"web__fetch","inputResponses":{"a":{"n":1.0}},"requestState":"s\\u0041"}';
    await gateway.ask(modern, 'tools/call', params);
    expect(gateway.upstreams.calls.map(({ options }) => options.members)).toEqual([
      '"inputResponses":{"a":{"n":1.0}},"requestState":"sA"',
    ]);
  });
});

describe('a call that was parked', () => {
  test('ends when its client is gone, has another role, or the gateway stops', () => {
    const ends: ((client: Client) => boolean)[] = [];
    let closed = 0;
    const bridge: Bridge = {
      relay: (request) => request.send({}),
      endWaiting: (isMeant) => void ends.push(isMeant),
      close: () => void closed++,
    };
    const { router } = new FakeGateway(two, bridge);
    const other = { ...modern, id: 'other', principal: { id: 'other', role: 'reader', scopes: [] } };
    const isEnded = () => [modern, other].map((client) => ends.at(-1)?.(client));
    router.endedBeforeOpen({ id: 'other' });
    expect(isEnded()).toEqual([false, true]);
    router.keysChanged((principal) => (principal === other.principal ? undefined : principal));
    expect(isEnded()).toEqual([false, true]);
    router.keysChanged((principal) => ({ ...principal, role: 'writer' }));
    expect(isEnded()).toEqual([true, true]);
    expect(closed).toBe(0);
    router.close();
    expect(closed).toBe(1);
  });

  test('continues for the new exchange, with its token and log level', async () => {
    const { promise, resolve } = deferred();
    let moved: ((exchange: FakeExchange) => void) | undefined;
    const bridge: Bridge = {
      relay: (request) => {
        moved = (exchange) => request.moveTo?.(exchange);
        return request.send({});
      },
    };
    const gateway = new FakeGateway(two, bridge);
    const tell = ({ options }: FakeCall, n: number) => {
      options.onProgress?.(Buffer.from(`{"progressToken":77,"progress":${n}}`));
      options.onServerNotification?.('notifications/message', Buffer.from(`{"level":"info","data":${n}}`));
    };
    gateway.upstreams.onCall = async (call) => {
      tell(call, 1);
      await promise;
      tell(call, 2);
      return '{"content":[]}';
    };
    const meta = (token: string, level: string) =>
      `{"name":"fs__read","_meta":{"progressToken":"${token}","io.modelcontextprotocol/logLevel":"${level}"}}`;
    const first = gateway.send(modern, 'tools/call', meta('one', 'info'));
    const second = new FakeExchange(modern, 'tools/call', meta('two', 'error'));
    moved?.(second);
    resolve();
    await first.ended;
    expect(first.heard.map(({ params }) => params)).toEqual([
      '{"progressToken":"one","progress":1}',
      '{"level":"info","data":1}',
    ]);
    expect(second.heard.map(({ params }) => params)).toEqual(['{"progressToken":"two","progress":2}']);
  });
});

describe('tool calls that fail', () => {
  const failing = (error: unknown) => {
    const gateway = new FakeGateway(two);
    gateway.upstreams.onCall = () => Promise.reject(error);
    return gateway;
  };
  const parked = new HostError('server_parked', "server 'fs' is parked", {
    retryAfterMs: 1_500,
    requestId: 'r1',
    hint: 'use another tool meanwhile',
  });

  test('because a server is missing are results that a model can act on', async () => {
    const { result } = await failing(parked).ask(legacy, 'tools/call', '{"name":"fs__read"}');
    expect(JSON.parse(String(result))).toEqual({
      content: [{ type: 'text', text: "server 'fs' is parked; use another tool meanwhile; try again in 2 s." }],
      isError: true,
      _meta: {
        'hostler/error': {
          code: 'server_parked',
          retryable: true,
          retryAfterMs: 1_500,
          server: 'fs',
          tool: 'read',
          requestId: 'r1',
        },
      },
    });
  });

  test('return a modern result to a modern client', async () => {
    const said = (await failing(parked).ask(modern, 'tools/call', '{"name":"fs__read"}')).json();
    expect(said).toMatchObject({ resultType: 'complete', isError: true });
    expect(said._meta[serverInfoKey].name).toBe('files');
  });

  test('with an error of the server keep its code and text', async () => {
    const error = new HostError('tool_error', 'fs/read: no such thing', { rpcCode: -32050 });
    const { failure } = await failing(error).ask(legacy, 'tools/call', '{"name":"fs__read"}');
    expect(failure).toEqual({ code: -32050, message: 'no such thing' });
  });

  test('with an error of the server keep its data if the code is known', async () => {
    const bytes = Buffer.from('{"code":-32602,"message":"bad","data":{"n":1.0}}');
    const cause = new RpcRefusal(bytes);
    const error = new HostError('invalid_arguments', 'fs/read: bad', { rpcCode: -32602, cause });
    const { failure } = await failing(error).ask(legacy, 'tools/call', '{"name":"fs__read"}');
    expect({ ...failure, data: String(failure?.data) }).toEqual({ code: -32602, message: 'bad', data: '{"n":1.0}' });
  });

  test('with an internal error report it only to the operator', async () => {
    const gateway = failing(new TypeError('secret'));
    const { failure } = await gateway.ask(legacy, 'tools/call', '{"name":"fs__read"}');
    expect(failure).toEqual({ code: -32603, message: 'internal error' });
    expect(gateway.problems).toHaveLength(1);
  });

  test('because the client disconnected end without a report', async () => {
    const { failure } = await failing(new HostError('cancelled', 'cancelled')).ask(
      legacy,
      'tools/call',
      '{"name":"fs__read"}',
    );
    expect(failure?.code).toBe(-31021);
  });

  test('in a failing router still end', async () => {
    const gateway = new FakeGateway(two);
    gateway.upstreams.known = () => {
      throw new Error('broken');
    };
    gateway.router.hasEndpoint({ kind: 'all' }, legacy.principal);
    const { failure } = await gateway.ask(legacy, 'tools/list');
    expect(failure?.code).toBe(-32603);
  });
});

describe('other requests', () => {
  test('prompts are found by their listed name, all else is unchanged', async () => {
    const gateway = new FakeGateway(two);
    gateway.upstreams.onRequest = () => '{"messages":[],"n":12345678901234567890}';
    const params = '{"name":"fs__greet","arguments":{"a":"1"},"_meta":{"progressToken":1,"traceparent":"00"},"v":1.0}';
    const { result } = await gateway.ask(modern, 'prompts/get', params);
    const [request] = gateway.upstreams.requests;
    expect(request).toMatchObject({ server: 'fs', params: '{"name":"greet","arguments":{"a":"1"},"v":1.0}' });
    expect(request?.options.meta).toBe('"traceparent":"00"');
    expect(JSON.parse(String(result)).resultType).toBe('complete');
    expect(result).toContain('"n":12345678901234567890');
    expect((await gateway.ask(legacy, 'prompts/get', '{"name":"greet"}')).failure?.code).toBe(-32602);
  });

  test.each([
    ['file:///a', 'fs'],
    ['web://home', 'web'],
    ['file:///any/where', 'fs'],
    ['web://1/x', 'web'],
  ])('%s is read at %s', async (uri, server) => {
    const gateway = new FakeGateway(two);
    await gateway.ask(legacy, 'resources/read', JSON.stringify({ uri }));
    expect(gateway.upstreams.requests).toMatchObject([{ server, params: JSON.stringify({ uri }) }]);
  });

  test('a method that is only forwarded needs nothing but its row in the table of methods', async () => {
    const method = 'resources/inspect';
    const rows = METHODS as Map<string, Method>;
    rows.set(method, { handledBy: 'passthrough', target: 'resource' });
    try {
      const gateway = new FakeGateway(two);
      gateway.upstreams.onRequest = () => '{"size":1}';
      const { result } = await gateway.ask(legacy, method, '{"uri":"web://home"}');
      expect([result, gateway.upstreams.requests]).toMatchObject(['{"size":1}', [{ server: 'web', method }]]);
    } finally {
      rows.delete(method);
    }
  });

  test('an unknown resource is not found, with the error of the client’s era', async () => {
    const gateway = new FakeGateway(two);
    const uri = 'none://';
    const old = await gateway.ask(legacy, 'resources/read', JSON.stringify({ uri }));
    expect(old.failure).toEqual({ code: -32002, message: 'resource not found', data: JSON.stringify({ uri }) });
    expect((await gateway.ask(modern, 'resources/read', JSON.stringify({ uri }))).failure?.code).toBe(-32602);
  });

  test('the only server with resources also gets requests for unlisted resources', async () => {
    const gateway = new FakeGateway({ a: { tools: [] }, b: { resources: [] } });
    await gateway.ask(legacy, 'resources/read', '{"uri":"x://y"}');
    expect(gateway.upstreams.requests.map(({ server }) => server)).toEqual(['b']);
  });

  test.each([
    ['legacy', 'web', -32602, -32002],
    ['modern', 'fs', -32002, -32602],
    ['legacy', 'fs', -32602, -32602],
    ['modern', 'web', -32021, -32021],
    ['modern', 'fs', -32042, -32603],
    ['legacy', 'web', -32022, -32603],
  ] as const)('a %s client that reads at %s, which answers %i, gets %i', async (era, server, code, told) => {
    const gateway = new FakeGateway(two);
    gateway.upstreams.onRequest = () => ({ error: `{"code":${code},"message":"m","data":{"n":1.0}}` });
    const uri = server === 'fs' ? 'file:///a' : 'web://home';
    const { failure } = await gateway.ask(fakeClient({ era }), 'resources/read', JSON.stringify({ uri }));
    expect({ ...failure, data: String(failure?.data) }).toEqual({ code: told, message: 'm', data: '{"n":1.0}' });
  });

  test('a resource that a modern client reads from a legacy server may not be cached', async () => {
    const gateway = new FakeGateway(two);
    gateway.upstreams.onRequest = () => '{"contents":[{"uri":"file:///a","n":1.0}]}';
    const { result } = await gateway.ask(modern, 'resources/read', '{"uri":"file:///a"}');
    expect(JSON.parse(String(result))).toMatchObject({ resultType: 'complete', ttlMs: 0, cacheScope: 'private' });
    expect(result).toContain('{"contents":[{"uri":"file:///a","n":1.0}]}'.slice(1));
  });

  test('a refusal of the host is an error with its facts', async () => {
    const gateway = new FakeGateway(two);
    gateway.upstreams.onRequest = () => Promise.reject(new HostError('overloaded', 'the queue is full'));
    const { failure } = await gateway.ask(legacy, 'prompts/get', '{"name":"fs__greet"}');
    expect(failure).toEqual({
      code: -31015,
      message: 'the queue is full.',
      data: '{"code":"overloaded","retryable":true,"server":"fs"}',
    });
  });

  test('the answers of a modern client are forwarded once, by the bridge', async () => {
    const gateway = new FakeGateway(two);
    const params = '{"name":"fs__greet","inputResponses":{"a":{}},"requestState":"s"}';
    await gateway.ask(modern, 'prompts/get', params);
    const [request] = gateway.upstreams.requests;
    expect(request?.params).toBe('{"name":"greet"}');
    expect(request?.options.members).toBe('"inputResponses":{"a":{}},"requestState":"s"');
  });

  test('completions go to the server of the prompt or the template', async () => {
    const gateway = new FakeGateway(two);
    gateway.upstreams.onRequest = () => '{"completion":{"values":[]}}';
    const complete = (ref: string) =>
      gateway.ask(legacy, 'completion/complete', `{"ref":${ref},"argument":{"name":"a","value":"b"}}`);
    await complete('{"type":"ref/prompt","name":"fs__greet","title":"T"}');
    await complete('{"type":"ref/resource","uri":"web://{page}/x"}');
    expect(gateway.upstreams.requests.map(({ server, params }) => [server, params])).toEqual([
      ['fs', '{"ref":{"type":"ref/prompt","name":"greet","title":"T"},"argument":{"name":"a","value":"b"}}'],
      ['web', '{"ref":{"type":"ref/resource","uri":"web://{page}/x"},"argument":{"name":"a","value":"b"}}'],
    ]);
    expect((await complete('{"type":"ref/prompt","name":"greet"}')).failure?.code).toBe(-32602);
    expect((await complete('7')).failure?.code).toBe(-32602);
  });

  test('E5 a resource that a modern server marks as public is private while there is a key or a role', async () => {
    const gateway = new FakeGateway(two);
    const answer = '{"resultType":"complete","contents":[],"ttlMs":9,"cacheScope":"public"}';
    gateway.upstreams.onRequest = () => answer;
    const read = async () => (await gateway.ask(modern, 'resources/read', '{"uri":"web://home"}')).result;
    expect(await read()).toBe(answer);
    gateway.mayBePublic = false;
    expect(await read()).toBe(answer.replace('public', 'private'));
  });
});

describe('mirrored arguments', () => {
  const schema = '{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}';
  test('are those of the shown tool', () => {
    const { router } = new FakeGateway({ s: { tools: [`{"name":"t","inputSchema":${schema}}`, 'u'] } });
    const { principal } = legacy;
    const expected = [{ name: 'Region', path: ['region'] }];
    expect(router.mirroredArguments({ kind: 'all' }, principal, 's__t')).toEqual(expected);
    expect(router.mirroredArguments({ kind: 'server', server: 's' }, principal, 't')).toEqual(expected);
    expect(router.mirroredArguments({ kind: 'all' }, principal, 's__u')).toBeUndefined();
    expect(router.mirroredArguments({ kind: 'all' }, principal, 't')).toBeUndefined();
  });
});
