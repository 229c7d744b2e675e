/**
 * X2: no request over the network starts a program. The test sends every route and every message, known and invented, with the
 * configuration of a server in every part of the body, with every kind of key and without a key.
 * A start would show in two ways: the command would create a file, and Hostler would report a start.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { eventually } from '../eventually.js';
import { Attacked, type Json, keysAndRoles, LOW_KEY, META, messageOf } from './attacked.js';

const attacked = new Attacked();
const canaries = path.join(attacked.place.folder, 'canaries');
const keys = () => ({ none: undefined, wrong: 'x'.repeat(43), low: LOW_KEY, operator: attacked.ready.key });

let attempts = 0;
const touch = () => `touch ${path.join(canaries, `c${++attempts}`)}`;
/** The definition of a server, in the shapes that other programs accept. */
const stdio = (): Json => ({ command: '/bin/sh', args: ['-c', touch()], env: { A: 'b' }, type: 'stdio' });
const bodies: ReadonlyArray<(config: Json) => Json> = [
  (config) => config,
  (config) => ({ mcpServers: { evil: config }, servers: { evil: config }, server: config, config }),
  (config) => ({ name: 'evil', arguments: config, params: config }),
  (config) => ({ name: 'open__echo', arguments: { text: 'x', ...config, mcpServers: { open: config } } }),
  (config) => ({
    name: 'open',
    uri: `file:///bin/sh?args=${String(config.args)}`,
    ref: { type: 'ref/prompt', ...config },
  }),
  (config) => ({ notifications: { toolsListChanged: true, ...config }, resourceSubscriptions: [config] }),
  (config) => ({ inputResponses: { evil: config }, requestState: JSON.stringify(config), name: 'open__ask' }),
  (config) => ({ protocolVersion: '2025-11-25', capabilities: { ...config, sampling: config }, clientInfo: config }),
];

/** Methods of both eras, and of endpoints of other programs that did start processes. */
const methods = [
  ...['initialize', 'ping', 'server/discover', 'subscriptions/listen', 'logging/setLevel', 'completion/complete'],
  ...['tools/list', 'tools/call', 'prompts/list', 'prompts/get', 'resources/list', 'resources/templates/list'],
  ...['resources/read', 'resources/subscribe', 'resources/unsubscribe', 'roots/list', 'sampling/createMessage'],
  ...['elicitation/create', 'tasks/create', 'tasks/get', 'tasks/list', 'tasks/cancel', 'tasks/result'],
  ...['notifications/initialized', 'notifications/roots/list_changed', 'notifications/message'],
  ...[
    'spawn',
    'exec',
    'server/spawn',
    'servers/add',
    'servers/create',
    'servers/update',
    'servers/test',
    'server/start',
  ],
  ...[
    'servers/import',
    'config/set',
    'config/reload',
    'config/import',
    'admin/spawn',
    'hostler/spawn',
    'hostler/start',
  ],
  ...[
    'hostler/stop',
    'hostler/reload',
    'hostler/call',
    'hostler/config',
    'hostler/approve',
    'host.spawn',
    'rpc.discover',
  ],
  ...['mcp/servers', 'x-hostler/up', '__proto__', 'constructor', 'toString', 'tools/call\u0000', 'TOOLS/CALL', ''],
];
const routes = [
  ...['/', '/mcp', '/mcp/', '/mcp/open', '/mcp/@all', '/mcp/@nobody', '/mcp/evil', '/healthz', '/readyz', '/metrics'],
  ...['/admin', '/api', '/api/servers', '/api/v1/servers', '/servers', '/servers/test', '/spawn', '/config', '/reload'],
  ...['/mcp/test/connection', '/mcp-rest/test/tools/list', '/mcp-rest/test/connection', '/v1/mcp/server', '/stdio'],
  ...['/sse', '/message', '/messages', '/control', '/control.sock', '/import', '/api/import', '/api/templates/import'],
  ...['/mcp/../admin', '/mcp/..%2fadmin', '/mcp/open/../../spawn', '//mcp', '/MCP', '/mcp%2fopen', '/mcp/open%00'],
  ...[
    '/.well-known/mcp',
    '/.well-known/oauth-authorization-server',
    '/oauth/register',
    '/oauth/token',
    '/debug',
    '/json',
  ],
  ...['/proxy?transportType=stdio&command=/bin/sh', '/stdio?command=/bin/sh&args=-c', '/mcp?command=/bin/sh&args=x'],
  ...['/events', '/dashboard', '/ws', '/mcp/@all/open', '/mcp/__proto__', '/mcp/constructor', '/status', '/upstreams'],
];
const verbs = ['POST', 'GET', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'HEAD'];

const startsOf = async (): Promise<number> => {
  const { text } = await attacked.send({ method: 'GET', path: '/metrics', key: attacked.ready.key });
  const lines = text.split('\n').filter((line) => /^hostler_\w*starts?\w*_total\{|^hostler_\w*starts?\w*\{/.test(line));
  expect(lines.length).toBeGreaterThan(0);
  return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
};
const childrenOf = (pid: number): string =>
  readdirSync(`/proc/${pid}/task`)
    .map((thread) => readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8').trim())
    .join(' ')
    .trim();
const canaryFiles = () => readdirSync(canaries);

beforeAll(async () => {
  mkdirSync(canaries);
  await attacked.up({
    mcpServers: { open: attacked.stdioServer('open', 'modern') },
    groups: { all: ['open'] },
    ...keysAndRoles,
  });
  await attacked.modern('tools/call', { name: 'open__echo', arguments: { text: 'up' } }, { key: attacked.ready.key });
  await eventually('it runs', () => childrenOf(attacked.ready.pid) !== '');
});
afterAll(() => attacked.remove());

test('X2 no route takes a command: 0 spawns over every path, verb and key', async () => {
  const [starts, children] = [await startsOf(), childrenOf(attacked.ready.pid)];
  const good: string[] = [];
  for (const route of routes)
    for (const verb of verbs)
      await Promise.all(
        Object.entries(keys()).map(async ([who, key]) => {
          const hasBody = verb !== 'GET' && verb !== 'HEAD';
          const config = stdio();
          const body = hasBody
            ? JSON.stringify({ ...config, mcpServers: { evil: config }, transport: config })
            : undefined;
          const { status } = await attacked.send({ method: verb, path: route, key, ...(body && { body }) });
          if (status < 300) good.push(`${verb} ${route} ${who}`);
        }),
      );
  // The pages that are served, each with its callers; all of them are read-only.
  const pages = (page: string, ...who: string[]) =>
    who.flatMap((each) => [`GET ${page} ${each}`, `HEAD ${page} ${each}`]);
  const everybody = ['none', 'wrong', 'low', 'operator'];
  expect(good.sort()).toEqual(
    [...pages('/healthz', ...everybody), ...pages('/readyz', ...everybody), ...pages('/metrics', 'operator')].sort(),
  );
  expect(canaryFiles()).toEqual([]);
  expect([await startsOf(), childrenOf(attacked.ready.pid)]).toEqual([starts, children]);
}, 30_000);

test('X2 no message takes a command: 0 spawns over every method of either era, key and place in the body', async () => {
  const [starts, children] = [await startsOf(), childrenOf(attacked.ready.pid)];
  const unknown = new Set<string>();
  const sessions = await Promise.all(
    Object.values(keys()).map((key) => attacked.session({ key }).catch(() => ({ 'mcp-session-id': 'none' }))),
  );
  const endpoints = ['/mcp', '/mcp/open', '/mcp/@all'];
  for (const [at, method] of methods.entries()) {
    const sent = bodies.flatMap((body, i) =>
      Object.values(keys()).map(async (key, who) => {
        const params: Json = body(stdio());
        const place = endpoints[(at + i) % endpoints.length] as string;
        const withMeta = { ...params, _meta: { ...META, 'hostler/spawn': stdio(), mcpServers: { evil: stdio() } } };
        const isListening = method === 'subscriptions/listen';
        const asked = JSON.stringify({
          jsonrpc: '2.0',
          id: 1,
          method,
          params: withMeta,
          command: '/bin/sh',
          ...stdio(),
        });
        const name = params.name ?? params.uri;
        const headers = {
          'mcp-protocol-version': '2026-07-28',
          'mcp-method': Buffer.from(method).toString('latin1').replace(/\0/g, ''),
          ...(typeof name === 'string' && { 'mcp-name': name }),
          ...Object.fromEntries(Object.entries(stdio()).map(([key]) => [`mcp-param-${key}`, '/bin/sh'])),
        };
        const legacy = attacked.send({
          path: '/mcp',
          key,
          headers: sessions[who] as Json & Record<string, string>,
          body: JSON.stringify({ jsonrpc: '2.0', id: `${at}-${i}`, method, params }),
        });
        // A granted stream lasts; a bad request is refused before that.
        const modern = isListening && i === 5 ? undefined : attacked.send({ path: place, key, headers, body: asked });
        for (const reply of [await legacy, await modern]) {
          const error = reply?.text.startsWith('{') ? messageOf(reply).error : undefined;
          if (reply?.status === 200 && !error) unknown.add(method);
          if (key === undefined || key.startsWith('xxx')) expect(reply?.status ?? 401).toBe(401);
        }
      }),
    );
    await Promise.all(sent);
  }
  // Only methods of the protocol are answered with a result.
  expect(
    [...unknown].filter((method) => /spawn|exec|servers|config|hostler|admin|task|proto|constr|toStr/.test(method)),
  ).toEqual([]);
  expect([...unknown]).toEqual(expect.arrayContaining(['tools/list', 'tools/call']));
  expect(attempts).toBeGreaterThan(3_000);
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect(canaryFiles()).toEqual([]);
  expect([await startsOf(), childrenOf(attacked.ready.pid)]).toEqual([starts, children]);
  const { servers } = JSON.parse((await attacked.place.hostler('status', '--json')).stdout) as { servers: Json[] };
  expect(servers.map(({ server, name }) => server ?? name)).toEqual(['open']);
}, 60_000);

test('X2 the canary file appears if a command is run', async () => {
  const { execFileSync } = await import('node:child_process');
  const { command, args } = stdio() as { command: string; args: string[] };
  execFileSync(command, args);
  expect(existsSync(path.join(canaries, canaryFiles()[0] as string))).toBe(true);
});
