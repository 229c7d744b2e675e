/**
 * Servers with faulty lists behind one endpoint: the validating clients of both SDK generations see every other item, and can
 * call every tool that they see.
 */

import { fileURLToPath } from 'node:url';
import * as v2 from '@modelcontextprotocol/client';
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as Transport1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createBridge } from '../../src/gateway/eras/eras.js';
import { createHttpIngress, type HttpIngress } from '../../src/gateway/http/http-ingress.js';
import { createRouter, type GatewayRouter } from '../../src/gateway/routing/router.js';
import { createHost, type Host } from '../../src/host/host.js';
import { systemClock } from '../../src/kernel/clock.js';
import { systemRandom } from '../../src/kernel/random.js';
import { connectSdk1Client } from '../fixtures/sdk-clients.js';
import { listsOf, malformed } from '../fixtures/servers/malformed-lists.mjs';

const script = fileURLToPath(new URL('../fixtures/servers/malformed-stdio.mjs', import.meta.url));
const names = Object.keys(malformed) as (keyof typeof malformed)[];
const info = { name: 'validating', version: '1.0.0' };
const told: string[] = [];

let host: Host;
let router: GatewayRouter;
let ingress: HttpIngress;

beforeAll(async () => {
  const entryOf = (name: string) => ({ command: process.execPath, args: [script, name] });
  const mcpServers = {
    ...Object.fromEntries(names.map((name) => [name, entryOf(name)])),
    untouched: { ...entryOf('schema-without-type'), repair: false },
  };
  // One of the faulty lists is not repaired, outside of the tested endpoint.
  host = await createHost({ mcpServers, groups: { faulty: names } }, { learnAtBoot: true });
  host.on('repaired', ({ server, notes }) => told.push(`${server}: ${notes.join('; ')}`));
  const shared = { clock: systemClock, random: systemRandom };
  router = createRouter({ ...shared, upstreams: host, bridge: createBridge(shared), serverInfo: info });
  const authenticate = () => ({ id: 'tester', role: undefined, scopes: [] });
  ingress = await createHttpIngress({ ...shared, router, authenticate, listen: { host: '127.0.0.1', port: 0 } });
  await ingress.listen();
  await host.whenAllListed();
});

afterAll(async () => {
  router?.close();
  await ingress?.close(1_000);
  await host?.close();
});

const url = (path: string) => new URL(`${ingress.url}${path}`);

type Validating = Pick<v2.Client, 'close'> & {
  lists(): Promise<Record<'tools' | 'prompts' | 'resources' | 'resourceTemplates', unknown[]>>;
  call(name: string): Promise<unknown>;
};

async function sdk1(path: string): Promise<Validating> {
  const client = new Client1(info);
  await client.connect(new Transport1(url(path)) as Transport);
  return {
    close: () => client.close(),
    call: async (name) => (await client.callTool({ name })).content,
    lists: async () => ({
      tools: (await client.listTools()).tools,
      prompts: (await client.listPrompts()).prompts,
      resources: (await client.listResources()).resources,
      resourceTemplates: (await client.listResourceTemplates()).resourceTemplates,
    }),
  };
}

async function sdk2(path: string, mode: 'legacy' | { pin: string }): Promise<Validating> {
  const client = new v2.Client(info, { versionNegotiation: { mode } });
  await client.connect(new v2.StreamableHTTPClientTransport(url(path)));
  return {
    close: () => client.close(),
    call: async (name) => (await client.callTool({ name })).content,
    lists: async () => ({
      tools: (await client.listTools()).tools,
      prompts: (await client.listPrompts()).prompts,
      resources: (await client.listResources()).resources,
      resourceTemplates: (await client.listResourceTemplates()).resourceTemplates,
    }),
  };
}

const clients: Readonly<Record<string, (path: string) => Promise<Validating>>> = {
  'SDK 1': sdk1,
  'SDK 2, legacy': (path) => sdk2(path, 'legacy'),
  'SDK 2, modern': (path) => sdk2(path, { pin: '2026-07-28' }),
};

/** The number of items in the fixtures, without the items that are left out. */
const countOf = (list: 'tools' | 'prompts' | 'resources' | 'resourceTemplates') =>
  names.flatMap((name) => {
    const { leftOut = [] } = malformed[name] as { leftOut?: string[] };
    const member = { tools: 'name', prompts: 'name', resources: 'uri', resourceTemplates: 'uriTemplate' }[list];
    return (listsOf(name)[list] as Record<string, unknown>[]).filter((item) => {
      const key = typeof item[member] === 'string' ? (item[member] as string) : '';
      return !leftOut.includes(key);
    });
  }).length;

test.each(Object.keys(clients))('%s lists all remaining items, and can call each tool', async (name) => {
  const client = await (clients[name] as (typeof clients)[string])('/@faulty');
  const { tools, ...others } = await client.lists();
  const shown = (tools as { name: string }[]).map((tool) => tool.name);
  expect(names.length).toBeGreaterThanOrEqual(20);
  expect(shown).toHaveLength(countOf('tools'));
  for (const [list, items] of Object.entries(others))
    expect([list, items.length]).toEqual([list, countOf(list as never)]);
  for (const tool of shown) expect(tool).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
  // The result of the tool with a list as its output is valid only for modern clients.
  const callable = name === 'SDK 2, modern' ? shown : shown.filter((tool) => tool !== 'output-list__bad');
  for (const tool of callable) expect(await client.call(tool)).toMatchObject([{ type: 'text' }]);
  await client.close();
});

test.each(names)('%s: the endpoint of the server alone can be listed, too', async (name) => {
  const client = new Client1(info);
  await client.connect(new Transport1(url(`/${name}`)) as Transport);
  expect((await client.listTools()).tools.map((tool) => tool.name)).toContain('good');
  await client.close();
});

test('`repair: false` relays what the server sent, byte for byte, as does a list without faults', async () => {
  const client = await connectSdk1Client({ kind: 'streamable-http', url: `${ingress.url}/untouched` }, []);
  expect((await client.request('tools/list')).tools).toEqual(listsOf('schema-without-type').tools);
  await client.close();
  const sent = listsOf('schema-without-type').tools.map((tool) => JSON.stringify(tool));
  const shown = (name: string) =>
    host
      .known(name)
      ?.lists.get('tools/list')
      ?.items.map(({ raw }) => String(raw));
  expect(shown('untouched')).toEqual(sent);
  expect(shown('output-list')).toEqual(listsOf('output-list').tools.map((tool) => JSON.stringify(tool)));
});

test('repairs are reported once in the log, and in status and why', () => {
  const rows = new Map(host.status().map((row) => [row.name, row.notes]));
  expect(rows.get('schema-without-type')).toEqual(['1 tool repaired in lists: bad (inputSchema.type)']);
  expect(rows.get('untouched')).toEqual([]);
  expect(told.filter((line) => line.startsWith('schema-without-type:'))).toHaveLength(1);
  expect(host.explain('schema-without-type', 'bad').repair).toEqual({ fields: ['inputSchema.type'], isLeftOut: false });
  expect(host.explain('schema-text', 'bad')).toMatchObject({ visible: false, repair: { isLeftOut: true } });
});

test('pins have the hash of the text that the server sent', async () => {
  const [repaired, untouched] = ['schema-without-type', 'untouched'].map((name) => host.pin(name, 'bad')?.hash);
  expect(repaired).toBe(untouched);
});
