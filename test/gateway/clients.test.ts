/**
 * Third-party clients of `hostler up`, with third-party servers behind it: each uses all its abilities, at the endpoint of one
 * server and at the endpoint of all servers.
 * Not here: the clients (outside-clients.ts).
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ensureConformanceTools } from '../../scripts/bootstrap.mjs';
import { startHostler } from '../conformance/gateway.mjs';
import { entryPoint, type RealServers, realServers } from '../fixtures/real-servers.js';
import { type Deeds, documentUri, exercise, outsideClients } from './outside-clients.js';

const installMs = 300_000;
const clientMs = 90_000;
const everything = entryPoint('@modelcontextprotocol/server-everything');
const document = readFileSync(path.join(path.dirname(everything), 'docs', 'architecture.md'), 'utf8');

let servers: RealServers;
let hostler: Awaited<ReturnType<typeof startHostler>>;

beforeAll(async () => {
  await ensureConformanceTools();
  servers = realServers();
  const chosen = servers.servers.filter(({ name }) => name === 'everything' || name === 'memory');
  hostler = await startHostler(
    Object.fromEntries(chosen.map(({ name, command, args, env }) => [name, { command, args, env }])),
  );
}, installMs);

afterAll(async () => {
  await hostler?.stop();
  servers?.remove();
});

/** The expected results, for the abilities of this client. */
function expected(deeds: Deeds, prefix: string): Deeds {
  return {
    tools: deeds.tools,
    echo: 'Echo: hi',
    ...(deeds.resources && { resources: deeds.resources }),
    ...(deeds.document !== undefined && { document }),
    ...(deeds.prompts && {
      prompts: ['simple-prompt', 'args-prompt', 'completable-prompt', 'resource-prompt'].map((name) => prefix + name),
    }),
    ...(deeds.prompt !== undefined && { prompt: "What's weather in Paris?" }),
    ...(deeds.completion && { completion: ['Engineering'] }),
    ...(deeds.updated !== undefined && { updated: documentUri }),
  };
}

const sorted = (deeds: Deeds): Deeds => ({ ...deeds, ...(deeds.prompts && { prompts: [...deeds.prompts].sort() }) });

describe.each(outsideClients.map((client) => [client.name, client] as const))('%s', (_name, client) => {
  test(
    'uses one server by its own names',
    async () => {
      const deeds = await exercise(client, `${hostler.url}/everything`, '');
      expect(sorted(deeds)).toEqual(sorted(expected(deeds, '')));
      expect(deeds.tools).toEqual(expect.arrayContaining(['echo', 'get-sum', 'trigger-long-running-operation']));
      expect(deeds.tools.filter((name) => name.includes('__'))).toEqual([]);
      if (deeds.resources) expect(deeds.resources).toContain(documentUri);
    },
    clientMs,
  );

  test(
    'uses all servers at once, each name with its server in front',
    async () => {
      const deeds = await exercise(client, hostler.url, 'everything__');
      expect(sorted(deeds)).toEqual(sorted(expected(deeds, 'everything__')));
      expect(deeds.tools).toEqual(expect.arrayContaining(['everything__echo', 'memory__read_graph']));
      expect(deeds.tools.filter((name) => !/^(everything|memory)__/.test(name))).toEqual([]);
      if (deeds.resources) expect(deeds.resources).toContain(documentUri);
    },
    clientMs,
  );
});
