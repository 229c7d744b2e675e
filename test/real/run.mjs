/**
 * Tests real servers from npm, first directly and then behind one Hostler together with the malformed fixtures, and real clients in
 * front of it. Prints one JSON object, which the lane real-clients judges. Needs `dist` and test/real/install.mjs.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath, pathToFileURL } from 'node:url';
import * as v2 from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ResultSchema } from '@modelcontextprotocol/sdk/types.js';
import { createGateway } from '../../dist/gateway/index.js';
import { createHost } from '../../dist/index.js';
import { malformed } from '../fixtures/servers/malformed-lists.mjs';
import { agentClients } from './agents.mjs';
import { folderOf, installReal, isInstalled } from './install.mjs';

const limitMs = 60_000;
const manifest = JSON.parse(readFileSync(new URL('./tools/package.json', import.meta.url), 'utf8'));
const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-real-'));
const info = { name: 'hostler-lane', version: '1.0.0' };

/** Servers refuse to start without these; none is a real secret. */
const env = {
  PATH: process.env.PATH,
  HOME: folder,
  ...Object.fromEntries(
    ['GITLAB_PERSONAL_ACCESS_TOKEN', 'BRAVE_API_KEY', 'GOOGLE_MAPS_API_KEY', 'SLACK_BOT_TOKEN', 'SLACK_TEAM_ID']
      .concat(
        [
          'EVERART_API_KEY',
          'TAVILY_API_KEY',
          'EXA_API_KEY',
          'FIRECRAWL_API_KEY',
          'SUPABASE_ACCESS_TOKEN',
          'FIGMA_API_KEY',
        ],
        [
          'API_KEY',
          'PRIVATE_APP_ACCESS_TOKEN',
          'STRIPE_SECRET_KEY',
          'HEROKU_API_KEY',
          'APIFY_TOKEN',
          'SENTRY_ACCESS_TOKEN',
        ],
        ['PERPLEXITY_API_KEY', 'AIRTABLE_API_KEY', 'ES_API_KEY', 'NOTION_TOKEN'],
      )
      .map((name) => [name, 'sk_test_not_a_real_one_0000']),
  ),
  MAPBOX_ACCESS_TOKEN: 'pk.eyJ1IjoidSJ9.c2ln',
  ES_URL: 'http://127.0.0.1:9',
};
const argsOf = {
  '@modelcontextprotocol/server-filesystem': [folder],
  '@modelcontextprotocol/server-postgres': ['postgresql://127.0.0.1:9/none'],
  '@modelcontextprotocol/server-redis': ['redis://127.0.0.1:9'],
  'obsidian-mcp': [folder],
  'figma-developer-mcp': ['--stdio'],
  '@supabase/mcp-server-supabase': ['--access-token', 'sbp_0000000000000000000000000000000000000000'],
  '@stripe/mcp': ['--api-key=sk_test_00000000', '--tools=all'],
};

function entryOf(name) {
  const base = path.join(folderOf(name), 'node_modules', name);
  const { bin } = JSON.parse(readFileSync(path.join(base, 'package.json'), 'utf8'));
  const file = typeof bin === 'string' ? bin : Object.values(bin ?? {})[0];
  return { command: process.execPath, args: [path.join(base, file), ...(argsOf[name] ?? [])], env, cwd: folder };
}

const within = (promise, ms = limitMs) =>
  Promise.race([promise, new Promise((_, reject) => setTimeout(() => reject(new Error('timeout')), ms).unref())]);

/** The outcome of a call of the first tool without arguments. Its text may differ between runs. */
async function outcome(call) {
  try {
    const { isError } = await within(call(), 20_000);
    return isError ? 'isError' : 'ok';
  } catch (error) {
    return typeof error.code === 'number' ? `error ${error.code}` : String(error.message).slice(0, 60);
  }
}

async function direct(name) {
  const client = new Client(info);
  try {
    await within(client.connect(new StdioClientTransport({ ...entryOf(name), stderr: 'ignore' })));
    const { tools } = await within(client.request({ method: 'tools/list' }, ResultSchema));
    const [first] = tools;
    const call = () =>
      client.request({ method: 'tools/call', params: { name: first.name, arguments: {} } }, ResultSchema);
    return { tools: tools.map((tool) => tool.name), first: first.name, call: await outcome(call) };
  } catch (error) {
    return { failed: String(error.message).slice(0, 120) };
  } finally {
    await client.close().catch(() => {});
  }
}

const slugOf = (name) => name.replace(/^@/, '').replace(/[^a-z0-9]+/g, '-');

/** Loads a module of a package that is installed in a separate folder. */
const load = async (name) => {
  const file = path.join(folderOf(name), 'entry.mjs');
  writeFileSync(file, `export * from '${name}';\n`);
  return import(pathToFileURL(file).href);
};

/** The names of the tools that SDK 1 lists. */
async function namesAt(url) {
  const client = new Client(info);
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const { tools } = await client.listTools();
  await client.close();
  return tools.map(({ name }) => name);
}

const clients = {
  'SDK 1': async (url) => {
    const client = new Client(info);
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    const { tools } = await client.listTools();
    const { content } = await client.callTool({ name: 'no-schema__good' });
    await client.close();
    return [tools.length, content.length];
  },
  'SDK 2': async (url) => {
    const client = new v2.Client(info);
    await client.connect(new v2.StreamableHTTPClientTransport(new URL(url)));
    const { tools } = await client.listTools();
    const { content } = await client.callTool({ name: 'no-schema__good' });
    await client.close();
    return [tools.length, content.length];
  },
  '@ai-sdk/mcp': async (url) => {
    const module = await load('@ai-sdk/mcp');
    const create = module.createMCPClient ?? module.experimental_createMCPClient;
    const client = await create({ transport: { type: 'http', url } });
    const tools = await client.tools();
    const { content } = await tools['no-schema__good'].execute({}, { messages: [], toolCallId: '1' });
    await client.close();
    return [Object.keys(tools).length, content.length];
  },
  '@langchain/mcp-adapters': async (url) => {
    const { MultiServerMCPClient } = await load('@langchain/mcp-adapters');
    const client = new MultiServerMCPClient({ mcpServers: { hostler: { transport: 'http', url } } });
    const tools = await client.getTools();
    const found = tools.find(({ name }) => name.endsWith('no-schema__good'));
    const answer = await found.invoke({});
    await client.close();
    return [tools.length, answer === undefined ? 0 : 1];
  },
  '@openai/agents': async (url) => {
    const { MCPServerStreamableHttp } = await load('@openai/agents');
    const server = new MCPServerStreamableHttp({ url, name: 'hostler' });
    await server.connect();
    const tools = await server.listTools();
    const content = await server.callTool('no-schema__good', {});
    await server.close();
    return [tools.length, content.length];
  },
  mcporter: async (url) => {
    const { createRuntime } = await load('mcporter');
    const runtime = await createRuntime({
      servers: [{ name: 'hostler', command: { kind: 'http', url: new URL(url) } }],
    });
    const tools = await runtime.listTools('hostler');
    const answer = await runtime.callTool('hostler', 'no-schema__good', { args: {} });
    await runtime.close();
    return [tools.length, answer?.content?.length ?? 0];
  },
  ...agentClients(folder, 'no-schema__good', namesAt),
};

const notInstalled = await installReal();
const names = Object.keys(manifest.servers).filter(isInstalled);
const rows = new Map();
for (let i = 0; i < names.length; i += 2)
  await Promise.all(names.slice(i, i + 2).map(async (name) => rows.set(name, { direct: await direct(name) })));

const script = fileURLToPath(new URL('../fixtures/servers/malformed-stdio.mjs', import.meta.url));
const faulty = Object.fromEntries(
  Object.keys(malformed).map((name) => [name, { command: process.execPath, args: [script, name] }]),
);
const working = names.filter((name) => !rows.get(name).direct.failed);
const mcpServers = { ...faulty, ...Object.fromEntries(working.map((name) => [slugOf(name), entryOf(name)])) };
const host = await createHost({ mcpServers }, { learnAtBoot: true });
await within(host.whenAllListed() ?? Promise.resolve(), 240_000).catch(() => {});
const settings = { listen: { host: '127.0.0.1', port: 0 }, keys: {}, auth: 'none', version: '0' };
const gateway = await createGateway({ host, settings, dataDir: folder, onProblem: () => {} });
await gateway.listen();

for (const name of working) {
  const slug = slugOf(name);
  const row = rows.get(name);
  const shown =
    host
      .known(slug)
      ?.lists.get('tools/list')
      ?.items.map(({ key }) => key) ?? [];
  const { notes, lastError } = host.status().find((each) => each.name === slug);
  const client = new Client(info);
  await client.connect(new StreamableHTTPClientTransport(new URL(`${gateway.url}/${slug}`)));
  const params = { name: row.direct.first, arguments: {} };
  const call = await outcome(() => client.request({ method: 'tools/call', params }, ResultSchema));
  await client.close();
  row.hostler = { tools: shown.length, missing: row.direct.tools.filter((tool) => !shown.includes(tool)), call, notes };
  if (shown.length === 0) row.hostler.error = lastError?.message;
}
const listed = {};
for (const [name, list] of Object.entries(clients)) {
  try {
    const [tools, content] = await within(list(gateway.url), 120_000);
    listed[name] = { tools, called: content > 0 };
  } catch (error) {
    listed[name] = { failed: String(error?.stderr || (error?.message ?? error)).slice(0, 200) };
  }
}
const total = host
  .names()
  .reduce((sum, name) => sum + (host.known(name)?.lists.get('tools/list')?.items.length ?? 0), 0);
console.log(JSON.stringify({ total, notInstalled, servers: Object.fromEntries(rows), clients: listed }));
await gateway.close(0);
await host.close();
rmSync(folder, { recursive: true, force: true });
process.exit(0);
