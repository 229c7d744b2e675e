/**
 * The client that the suite's client scenarios run: `node driver.mjs <url of the suite's server>`. Starts `hostler up` with that
 * URL as its only server, sends it requests as a client would, and stops it. So the suite tests the upstream side of Hostler.
 * With HOSTLER_CONFORMANCE_DIRECT=1 the official client takes the place of Hostler, to check the driver and to compare.
 * Not here: starting Hostler (gateway.mjs), logging in (auth-operator.mjs, sdk-provider.mjs).
 *
 * Invariant: every listed tool is called, so a tool that must not be called must not be listed.
 */
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { authEntry, isAuthScenario, issuerOf, logIn } from './auth-operator.mjs';
import { startHostler } from './gateway.mjs';
import { sdkProvider } from './sdk-provider.mjs';

const url = process.argv.at(-1);
const version = process.env.MCP_CONFORMANCE_PROTOCOL_VERSION ?? '2025-11-25';
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT || '{}');
const isVerbose = process.env.HOSTLER_CONFORMANCE_VERBOSE === '1';
const isDirect = process.env.HOSTLER_CONFORMANCE_DIRECT === '1';
const firstModern = '2026-07-28';
const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? '';
/** A person who has logged in this often does not try again. */
const loginsMax = 3;
const grantMs = 2_500;

/** Accepts any result unchanged: the schemas of the SDK would drop members or refuse the result. */
const anything = { '~standard': { version: 1, vendor: 'hostler-test', validate: (value) => ({ value }) } };

/** The answer of a user who changes nothing: the defaults, or a valid value if there is none. */
function filledIn({ properties = {} }) {
  const samples = { boolean: true, string: 'x', number: 1, integer: 1, array: [], object: {} };
  return Object.fromEntries(
    Object.entries(properties).map(([name, schema]) => [
      name,
      schema.default ?? schema.enum?.[0] ?? samples[schema.type],
    ]),
  );
}

/** The calls of one tool, which the scenario may specify. */
function callsOf(tool, tools) {
  const told = context.toolCalls?.filter(({ name }) => name === tool.name) ?? [];
  if (told.length > 0) return told.map((call) => call.arguments);
  if (tool.name === 'add_numbers') return [{ a: 5, b: 3 }];
  if (tool.name === 'json_schema_echo') {
    return [{ schema: tools.find(({ name }) => name === 'json_schema_2020_12_tool')?.inputSchema }];
  }
  return [filledIn(tool.inputSchema ?? {})];
}

/** Resolves with true if a login is needed. */
async function drive(client) {
  let needsLogin = false;
  const ask = (method, params = {}) => client.request({ method, params }, anything);
  const attempt = async (what, work) => {
    try {
      const result = await work();
      if (result?._meta?.['hostler/error']?.code === 'needs_reauth') needsLogin = true;
      return result;
    } catch (error) {
      process.stderr.write(`driver: ${what}: ${error.message}\n`);
      if (isUnauthorized(error)) throw error;
      if (error.data?.code === 'needs_reauth') needsLogin = true;
      return undefined;
    }
  };
  // Sent even if the server has no tools: the answer shows that the server was reached.
  const raw = await attempt('tools/list', () => ask('tools/list'));
  const { tools: hasTools, resources: hasResources, prompts: hasPrompts } = client.getServerCapabilities() ?? {};
  if (hasTools !== undefined) {
    // The SDK copies arguments to headers only for tools that it has listed itself.
    const listed = await attempt('listTools', () => client.listTools());
    // The SDK leaves out tools that must not be called; Hostler has done so already.
    for (const tool of (isDirect ? listed : raw)?.tools ?? []) {
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
  // Before the first login the tools of the server are unknown.
  return needsLogin || (raw?.tools ?? []).length === 0;
}

const isUnauthorized = (error) =>
  error?.name === 'UnauthorizedError' || error?.constructor?.name === 'UnauthorizedError';

const log = isVerbose ? (text) => process.stderr.write(text) : undefined;

async function connect(to, options) {
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
  const transport = new StreamableHTTPClientTransport(new URL(to), options);
  const session = { client, transport };
  try {
    await client.connect(transport);
    return session;
  } catch (error) {
    throw Object.assign(error, { session });
  }
}

/** Runs one client session from connect to close. */
async function visit(to) {
  const { client } = await connect(to);
  const needsLogin = await drive(client);
  await client.close();
  return needsLogin;
}

/** The official client, which starts its logins itself. */
async function driveSdk() {
  const authProvider = sdkProvider(scenario, context);
  for (let logins = 0; logins < loginsMax; logins++) {
    let session;
    try {
      session = await connect(url, isAuthScenario(scenario) ? { authProvider } : undefined);
      await drive(session.client);
      return;
    } catch (error) {
      const { transport } = error.session ?? session;
      if (!isUnauthorized(error) || authProvider.callback === undefined) throw error;
      await transport.finishAuth(authProvider.callback);
    }
  }
}

async function driveHostler() {
  const isAuth = isAuthScenario(scenario);
  const entry = { url, lazy: false, ...(isAuth ? { auth: await authEntry(scenario, url, context) } : {}) };
  // A server that needs a login cannot be listed yet.
  const hostler = await startHostler({ mock: entry }, { log, ...(isAuth ? { isLearnt: async () => {} } : {}) });
  try {
    for (let logins = 0; (await visit(`${hostler.url}/mock`)) && isAuth && logins < loginsMax; logins++) {
      const outcome = await logIn({ ...hostler.place, log });
      // The server moved to another authorization server, and the operator accepts the new issuer.
      const hasMoved = outcome.code !== 0 && outcome.said.includes('issuer_changed');
      const last = hasMoved ? await logIn({ ...hostler.place, log, issuer: await issuerOf(url) }) : outcome;
      if (last.code !== 0) break;
      // Hostler looks for a new grant once a second, and says that it takes up to two.
      await sleep(grantMs);
    }
  } finally {
    await hostler.stop();
  }
}

await (isDirect ? driveSdk() : driveHostler());
// All work is done, but streams of a closed client may keep the process alive.
process.exit(0);
