/**
 * The complete gateway: real servers of both eras behind one host, router, bridge and HTTP, and official clients of
 * both eras at the other end.
 */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createBridge } from '../../src/gateway/eras/eras.js';
import { createHttpIngress, type HttpIngress } from '../../src/gateway/http/http-ingress.js';
import { createRouter, type GatewayRouter } from '../../src/gateway/routing/router.js';
import type { Upstreams } from '../../src/gateway/upstreams.js';
import { createHost, type Host } from '../../src/host/host.js';
import { systemClock } from '../../src/kernel/clock.js';
import type { HostError } from '../../src/kernel/errors.js';
import { systemRandom } from '../../src/kernel/random.js';
import { type StdioFixture, stdioFixtures } from '../fixtures/fixture-servers.js';
import {
  connectSdk1Client,
  connectSdk2Client,
  type Heard,
  type Json,
  type SdkClient,
} from '../fixtures/sdk-clients.js';
import { numbersText } from '../fixtures/servers/raw-texts.mjs';

let host: Host;
let router: GatewayRouter;
let ingress: HttpIngress;
const problems: unknown[] = [];
const onProblem = (error: unknown) => problems.push(error);

const entry = (name: string) => {
  const { command, args, env } = stdioFixtures.find((fixture) => fixture.name === name) as StdioFixture;
  return { command, args, env };
};
const servers = ['old', 'new', 'raw'];

beforeAll(async () => {
  const mcpServers = {
    // The test clients run one after the other. A shared legacy server's question is refused for 30 s after a call of another client.
    old: { ...entry('sdk1-stdio'), isolation: 'per-client' },
    new: entry('sdk2-stdio-modern'),
    raw: { ...entry('raw-stdio-legacy'), isolation: 'per-client' },
  };
  const capabilities = { elicitation: { form: {}, url: {} }, roots: {}, sampling: {} };
  host = await createHost(
    { mcpServers },
    { learnAtBoot: true, client: { name: 'hostler', version: '0', capabilities }, onProblem },
  );
  const upstreams: Upstreams = host;
  const shared = { clock: systemClock, random: systemRandom };
  router = createRouter({
    upstreams,
    bridge: createBridge(shared),
    clock: systemClock,
    serverInfo: { name: 'hostler', version: '0' },
    onProblem,
  });
  ingress = await createHttpIngress({
    ...shared,
    router,
    authenticate: () => ({ id: 'tester', role: undefined, scopes: [] }),
    listen: { host: '127.0.0.1', port: 0 },
    onProblem,
  });
  await ingress.listen();
  // A list does not wait for a server that starts slowly.
  await host.whenAllListed();
});

afterAll(async () => {
  router?.close();
  await ingress?.close(1_000);
  await host?.close();
  // Three servers with the same resources: only that is reported.
  expect(problems.filter((problem) => (problem as HostError).details?.reason !== 'shared_uri')).toEqual([]);
});

type Connect = (url: string, heard: Heard) => Promise<SdkClient>;
const clients: readonly (readonly [name: string, era: 'legacy' | 'modern', connect: Connect])[] = [
  ['SDK 1', 'legacy', (url, heard) => connectSdk1Client({ kind: 'streamable-http', url }, heard)],
  ['SDK 2, legacy', 'legacy', (url, heard) => connectSdk2Client({ kind: 'streamable-http', url }, heard, 'legacy')],
  ['SDK 2, modern', 'modern', (url, heard) => connectSdk2Client({ kind: 'streamable-http', url }, heard, 'modern')],
];

const said = (result: Json) => (result.content as { text: string }[])[0]?.text;

describe.each(clients)('%s', (_name, era, connect) => {
  let client: SdkClient;
  const heard: Heard = [];
  const call = (name: string, args: Json = {}, options = {}) =>
    client.request('tools/call', { name, arguments: args }, options);

  beforeAll(async () => {
    client = await connect(ingress.url, heard);
  });
  afterAll(() => client?.close());

  test('sees all servers at one endpoint, and each by itself', async () => {
    const { tools } = (await client.request('tools/list')) as { tools: { name: string }[] };
    expect(tools.map(({ name }) => name)).toEqual(expect.arrayContaining(servers.map((name) => `${name}__echo`)));
    const one = await connect(`${ingress.url}/old`, []);
    const own = (await one.request('tools/list')) as { tools: { name: string }[] };
    expect(own.tools.map(({ name }) => name)).toContain('echo');
    expect(one.serverName).toBe('hostler-fixture');
    await one.close();
    await expect(connect(`${ingress.url}/nobody`, [])).rejects.toThrow();
  });

  describe.each(servers)('with the server %s', (server) => {
    test('calls a tool, also when the server has a question', async () => {
      expect(said(await call(`${server}__echo`, { text: 'hi' }))).toBe('hi');
      expect(said(await call(`${server}__ask`))).toBe('{"action":"accept","content":{"name":"Ann"}}');
    });

    test('gets progress and errors', async () => {
      const before = heard.length;
      await call(`${server}__progress`, { steps: 3 }, { onprogress: () => {} });
      const steps = heard.slice(before).filter(({ method }) => method === 'notifications/progress');
      expect(steps.map(({ params }) => params?.progress)).toEqual([1, 2, 3]);
      expect(await call(`${server}__fail`)).toMatchObject({ isError: true });
      await expect(call(`${server}__nope`)).rejects.toMatchObject({ code: -32602 });
    });

    test('gets the prompt of that server', async () => {
      const got = await client.request('prompts/get', { name: `${server}__greet`, arguments: { who: 'Bo' } });
      expect(JSON.stringify(got)).toContain('Bo');
    });
  });

  test('reads listed resources and resources of a template, and gets an error for others', async () => {
    const read = (uri: string) => client.request('resources/read', { uri });
    expect(JSON.stringify(await read('hostler://old/fixture://one'))).toContain('fixture://one');
    expect(JSON.stringify(await read('hostler://new/fixture://item/7'))).toContain('item 7');
    for (const uri of ['fixture://one', 'fixture://item/7'])
      await expect(read(uri)).rejects.toThrow(/ambiguous.*'new' and 'old' and 'raw'/);
    await expect(read('nobody://')).rejects.toThrow(/not found/);
    // The code as received: a client may convert it.
    const { error } = heard.at(-1) as { error?: { code: number } };
    expect(error?.code).toBe(era === 'modern' ? -32602 : -32002);
  });
});

test.each([
  ['legacy', {}],
  ['modern', { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/call', 'mcp-name': 'numbers' }],
])('numbers beyond a double reach a %s client to the digit', async (era, headers) => {
  const envelope = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientCapabilities': {},
  };
  const params = { name: 'numbers', arguments: {}, ...(era === 'modern' ? { _meta: envelope } : {}) };
  const url = `${ingress.url}/raw`;
  const post = (body: unknown, more: Record<string, string>) =>
    fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...more },
      body: JSON.stringify(body),
    });
  const session: Record<string, string> = { ...headers };
  if (era === 'legacy') {
    const clientInfo = { name: 't', version: '0' };
    const hello = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo };
    const opened = await post({ jsonrpc: '2.0', id: 0, method: 'initialize', params: hello }, {});
    await opened.text();
    session['mcp-session-id'] = opened.headers.get('mcp-session-id') as string;
    await (await post({ jsonrpc: '2.0', method: 'notifications/initialized' }, session)).text();
  }
  const answer = await (await post({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }, session)).text();
  expect(answer).toContain(numbersText);
});

test('when a server dies in the middle of a call, the client gets a result that a model can act on', async () => {
  const client = await connectSdk2Client({ kind: 'streamable-http', url: ingress.url }, [], 'legacy');
  const result = await client.request('tools/call', { name: 'raw__exit', arguments: { code: 3 } });
  expect(result).toMatchObject({ isError: true });
  const facts = (result._meta as Json)['hostler/error'];
  expect(facts).toMatchObject({ code: 'outcome_uncertain', retryable: false, server: 'raw', tool: 'exit' });
  expect(facts).toHaveProperty('requestId');
  const again = await client.request('tools/call', { name: 'raw__echo', arguments: { text: 'back' } });
  expect(said(again)).toBe('back');
  await client.close();
});
