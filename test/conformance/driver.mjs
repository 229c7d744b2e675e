/**
 * The client that the suite's client scenarios run: `node driver.mjs <url of the suite's server>`. Starts `hostler up` with that
 * URL as its only server, drives it as a client would, and stops it: what the suite then sees is Hostler's upstream side.
 * HOSTLER_CONFORMANCE_DIRECT=1 leaves Hostler out, to check the driver itself.
 * Not here: starting Hostler (gateway.mjs).
 *
 * Invariant: every tool that is listed is called, whatever its name: a tool that must not be called must not be listed.
 */
import process from 'node:process';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { startHostler } from './gateway.mjs';

const url = process.argv.at(-1);
const version = process.env.MCP_CONFORMANCE_PROTOCOL_VERSION ?? '2025-11-25';
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT || '{}');
const isVerbose = process.env.HOSTLER_CONFORMANCE_VERBOSE === '1';
const isDirect = process.env.HOSTLER_CONFORMANCE_DIRECT === '1';
const firstModern = '2026-07-28';

/** Takes any result as it is: the SDK's own schemas would drop and refuse. */
const anything = { '~standard': { version: 1, vendor: 'hostler-test', validate: (value) => ({ value }) } };

/** What a user who changes nothing sends: the defaults, and something fitting where there are none. */
function filledIn({ properties = {} }) {
  const samples = { boolean: true, string: 'x', number: 1, integer: 1, array: [], object: {} };
  return Object.fromEntries(
    Object.entries(properties).map(([name, schema]) => [
      name,
      schema.default ?? schema.enum?.[0] ?? samples[schema.type],
    ]),
  );
}

/** The calls to make of one tool; the scenario may say. */
function callsOf(tool, tools) {
  const told = context.toolCalls?.filter(({ name }) => name === tool.name) ?? [];
  if (told.length > 0) return told.map((call) => call.arguments);
  if (tool.name === 'add_numbers') return [{ a: 5, b: 3 }];
  if (tool.name === 'json_schema_echo') {
    return [{ schema: tools.find(({ name }) => name === 'json_schema_2020_12_tool')?.inputSchema }];
  }
  return [filledIn(tool.inputSchema ?? {})];
}

async function drive(client) {
  const ask = (method, params = {}) => client.request({ method, params }, anything);
  const attempt = async (what, work) => {
    try {
      return await work();
    } catch (error) {
      process.stderr.write(`driver: ${what}: ${error.message}\n`);
      return undefined;
    }
  };
  // Even where the server has no tools: the answer shows that it was met.
  const raw = await attempt('tools/list', () => ask('tools/list'));
  const { tools: hasTools, resources: hasResources, prompts: hasPrompts } = client.getServerCapabilities() ?? {};
  if (hasTools !== undefined) {
    // The SDK repeats arguments in headers only for tools it has listed itself.
    await attempt('listTools', () => client.listTools());
    for (const tool of raw?.tools ?? []) {
      for (const args of callsOf(tool, raw.tools)) {
        await attempt(tool.name, () => client.callTool({ name: tool.name, arguments: args }));
      }
    }
  }
  if (hasResources !== undefined) {
    const listed = await attempt('resources/list', () => ask('resources/list'));
    for (const { uri } of listed?.resources ?? []) await attempt(uri, () => ask('resources/read', { uri }));
  }
  if (hasPrompts !== undefined) {
    const listed = await attempt('prompts/list', () => ask('prompts/list'));
    for (const { name } of listed?.prompts ?? []) await attempt(name, () => ask('prompts/get', { name }));
  }
}

const log = isVerbose ? (text) => process.stderr.write(text) : undefined;
const hostler = isDirect ? undefined : await startHostler({ mock: { url, lazy: false } }, { log });
try {
  const client = new Client(
    { name: 'hostler-conformance-driver', version: '1.0.0' },
    {
      capabilities: { elicitation: {}, sampling: {}, roots: {} },
      versionNegotiation: { mode: version >= firstModern ? { pin: version } : 'legacy' },
    },
  );
  client.setRequestHandler('elicitation/create', ({ params }) => ({
    action: 'accept',
    content: filledIn(params.requestedSchema ?? {}),
  }));
  client.setRequestHandler('roots/list', () => ({ roots: [] }));
  client.setRequestHandler('sampling/createMessage', () => ({
    role: 'assistant',
    model: 'none',
    content: { type: 'text', text: 'x' },
  }));
  await client.connect(new StreamableHTTPClientTransport(new URL(hostler === undefined ? url : `${hostler.url}/mock`)));
  await drive(client);
  await client.close();
} finally {
  await hostler?.stop();
}
// Streams of a client that was closed may linger; everything is done.
process.exit(0);
