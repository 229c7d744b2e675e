/**
 * A host with a server that gives each account its own answers and allows them to be cached: cached answers of one account are never
 * given to the next account. The server counts the requests.
 */
import type { ServerResponse } from 'node:http';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createHost, type Host } from '../../src/host/host.js';
import type { AuthToken } from '../../src/transports/http/auth-token.js';
import { eventually } from '../eventually.js';
import { bearer, FakeAuthProvider } from '../fakes/auth-provider.js';
import { json, type Received, result, rpcError, startServer, type TestServer } from '../fakes/http-server.js';

let server: TestServer;
/** Tokens that the server refuses. */
const expired = new Set<string>();
/** While this is set, requests with this method wait. */
let holding: { readonly method: string; readonly held: (() => void)[] } | undefined;
let host: Host;
let provider: FakeAuthProvider;

const keep = { resultType: 'complete', ttlMs: 600_000, cacheScope: 'private' };
const tool = { name: 'whoami', inputSchema: { type: 'object' }, annotations: { readOnlyHint: true } };

/** Every answer contains the token of its request. */
function answerFor(token: string, { rpcMethod }: Received): object | undefined {
  switch (rpcMethod) {
    case 'server/discover':
      return { supportedVersions: ['2026-07-28'], capabilities: { tools: {}, resources: {} } };
    case 'tools/list':
      return { ...keep, tools: [tool] };
    case 'tools/call':
      return { ...keep, content: [{ type: 'text', text: token }] };
    case 'resources/list':
      return { ...keep, resources: [{ uri: `note://${token}`, name: token }] };
    case 'resources/read':
      return { ...keep, contents: [{ uri: 'note://mine', text: token }] };
    default:
      return undefined;
  }
}

function answer(got: Received, response: ServerResponse): void {
  const token = /^Bearer (.*)$/.exec(got.headers.authorization ?? '')?.[1] ?? 'nobody';
  if (expired.has(token)) return void json(response, rpcError(got.id, -32_001), 401);
  const value = answerFor(token, got);
  const end = () => void json(response, value ? result(got.id, value) : rpcError(got.id, -32_601));
  if (holding && holding.method === got.rpcMethod) holding.held.push(end);
  else end();
}

beforeAll(async () => {
  server = await startServer(answer);
});
afterAll(() => server.close());
beforeEach(() => {
  server.received.length = 0;
  expired.clear();
  holding = undefined;
});
afterEach(() => host.close());

const entry = (more: object = {}) => ({ url: server.url, pins: 'off', trustAnnotations: true, ...more });

async function open(token: AuthToken): Promise<Host> {
  provider = new FakeAuthProvider(token);
  host = await createHost({ mcpServers: { s: entry() } }, { authProvider: () => provider });
  return host;
}

const call = async (): Promise<string> => {
  const { content } = (await host.call('s', 'whoami')).json() as { content: { text: string }[] };
  return content[0]?.text ?? '';
};
const list = async (): Promise<string> => {
  const [first] = await host.list('s', 'resources/list');
  return first?.key.slice('note://'.length) ?? '';
};
const read = async (): Promise<string> => {
  const { contents } = (await host.read('s', 'note://mine')).json() as { contents: { text: string }[] };
  return contents[0]?.text ?? '';
};
const askAll = async (): Promise<string[]> => [await call(), await list(), await read()];
const asked = (method: string): number => server.received.filter(({ rpcMethod }) => rpcMethod === method).length;
/** The number of calls and reads; lists are not counted, because the host reads them too. */
const counts = (): number[] => [asked('tools/call'), asked('resources/read')];

const ann = bearer('ann');
const bob = bearer('bob');

describe('E1 cacheable answers', () => {
  test('E1 are returned again while the account is the same', async () => {
    await open(ann);
    expect([await askAll(), await askAll(), counts()]).toEqual([
      ['ann', 'ann', 'ann'],
      ['ann', 'ann', 'ann'],
      [1, 1],
    ]);
  });

  test('E1 are not returned for another account, whether its login was reported or not', async () => {
    await open(ann);
    await askAll();
    provider.login(bob);
    expect(await askAll()).toEqual(['bob', 'bob', 'bob']);
    provider.token = bearer('cid');
    expect(await askAll()).toEqual(['cid', 'cid', 'cid']);
    expect([await askAll(), counts()]).toEqual([
      ['cid', 'cid', 'cid'],
      [3, 3],
    ]);
  });

  test('E1 stay valid after a refresh, by a recovery or by the name of the grant', async () => {
    await open(ann);
    await askAll();
    expired.add('ann');
    provider.onRecover = async () => {
      provider.token = bearer('ann-2');
      return true;
    };
    // The old token is refused on a request that is not cached.
    await host.request('s', 'prompts/get', '{"name":"x"}').catch(() => {});
    await eventually('the token is renewed', () =>
      server.received.some(({ headers }) => headers.authorization === 'Bearer ann-2'),
    );
    expect([await askAll(), counts()]).toEqual([
      ['ann', 'ann', 'ann'],
      [1, 1],
    ]);
    await host.close();
    expired.clear();
    await open({ ...ann, grant: 'login-1' });
    await askAll();
    provider.login({ ...bearer('ann-3'), grant: 'login-1' });
    expect(await askAll()).toEqual(['ann', 'ann', 'ann']);
    provider.login({ ...bearer('ann-4'), grant: 'login-2' });
    expect(await askAll()).toEqual(['ann-4', 'ann-4', 'ann-4']);
  });

  test('E1 are not returned for another static token, and lists are read with the new token', async () => {
    const headers = (token: string) => ({
      mcpServers: { s: entry({ headers: { authorization: `Bearer ${token}` } }) },
    });
    host = await createHost(headers('ann'));
    expect(await askAll()).toEqual(['ann', 'ann', 'ann']);
    await host.reconfigure(headers('bob'));
    expect([await askAll(), counts()]).toEqual([
      ['bob', 'bob', 'bob'],
      [2, 2],
    ]);
  });
});

test.each([
  ['tools/call', call],
  ['resources/read', read],
  ['resources/list', list],
] as const)('E1 the answer to a %s that was sent before the login is neither kept nor shared', async (method, ask) => {
  await open(ann);
  await host.start('s');
  await eventually('its lists were read', () => asked('resources/list') > 0);
  const held: (() => void)[] = [];
  holding = { method, held };
  const old = ask();
  await eventually('it was sent', () => held.length === 1);
  provider.login(bob);
  const before = asked(method);
  const next = ask();
  await eventually('the new account asks for itself', () => asked(method) > before);
  holding = undefined;
  for (const end of held) end();
  expect([await old, await next, await ask()]).toEqual(['ann', 'bob', 'bob']);
});

test('E1 the lists of a gateway are read again for the new account', async () => {
  await open(ann);
  await host.start('s');
  const shown = () => host.known('s')?.lists.get('resources/list')?.items[0]?.key;
  await eventually('the resources of ann are known', () => shown() === 'note://ann');
  provider.login(bob);
  await eventually('the resources of bob are known', () => shown() === 'note://bob');
});

describe('E1 the lists that a gateway shows of an idle server are read again', () => {
  const shown = () => host.known('s')?.lists.get('resources/list')?.items[0]?.key;
  const atRest = async () => {
    host.learnTools();
    await eventually('the resources of ann are known', () => shown() === 'note://ann');
    await eventually('it is at rest', () => host.status()[0]?.state === 'registered');
  };

  test('for another static token', async () => {
    const headers = (token: string) => ({
      mcpServers: { s: entry({ headers: { authorization: `Bearer ${token}` }, keepAlive: 20 }) },
    });
    host = await createHost(headers('ann'));
    await atRest();
    await host.reconfigure(headers('bob'));
    expect(shown()).toBeUndefined();
    await eventually('the resources of bob are known', () => shown() === 'note://bob');
  });

  test('after a login', async () => {
    provider = new FakeAuthProvider(ann);
    host = await createHost({ mcpServers: { s: entry({ keepAlive: 20 }) } }, { authProvider: () => provider });
    await atRest();
    provider.login(bob);
    await eventually('the resources of bob are known', () => shown() === 'note://bob');
  });
});

test('E1 tools that were read for the old account while the server was connecting are read again', async () => {
  const held: (() => void)[] = [];
  holding = { method: 'tools/list', held };
  await open(ann);
  const started = host.start('s');
  await eventually('its tools are being read', () => held.length === 1);
  provider.login(bob);
  holding = undefined;
  for (const end of held) end();
  await started;
  const ofBob = () =>
    server.received.some(
      ({ rpcMethod, headers }) => rpcMethod === 'tools/list' && headers.authorization === 'Bearer bob',
    );
  await eventually('they are read for the new account', ofBob);
});
