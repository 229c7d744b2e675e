/**
 * An MCP server of either era whose lists a test can change. It announces changes as its era requires.
 *   ERA=legacy|modern   the era
 *   LEDGER=FILE         one line per request, with its subject; `start` for each process
 *   STATE=FILE          JSON with its lists, read for each request
 * Tools: `say` {method, params} sends a notification to listeners (legacy: to all clients); `end` ends every listen stream
 * normally; `sleep` {ms}; `exit`. Answers of other tools may be cached for a minute.
 */
import { appendFileSync, readFileSync } from 'node:fs';
import process from 'node:process';

const { LEDGER, STATE } = process.env;
const isModern = process.env.ERA === 'modern';
const prefix = 'io.modelcontextprotocol';
const note = (line) => appendFileSync(LEDGER, `${line}\n`);
const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const state = () => JSON.parse(readFileSync(STATE, 'utf8'));
const listens = new Map();
note('start');

const capabilities = {
  tools: { listChanged: true },
  prompts: { listChanged: true },
  resources: { listChanged: true, subscribe: true },
};
const memberOf = {
  'notifications/tools/list_changed': 'toolsListChanged',
  'notifications/prompts/list_changed': 'promptsListChanged',
  'notifications/resources/list_changed': 'resourcesListChanged',
};

function tell(method, params = {}) {
  if (!isModern) return send({ method, params });
  for (const [id, filter] of listens) {
    const hears = memberOf[method] ? filter[memberOf[method]] : filter.resourceSubscriptions?.includes(params.uri);
    if (hears) send({ method, params: { ...params, _meta: { [`${prefix}/subscriptionId`]: id } } });
  }
}

const tools = {
  say: ({ method, params }) => tell(method, params),
  end: () => {
    for (const id of listens.keys()) send({ id, result: { resultType: 'complete' } });
    listens.clear();
  },
  exit: () => process.exit(3),
  sleep: ({ ms }) => new Promise((resolve) => setTimeout(resolve, ms)),
};

const methods = {
  'tools/list': () => ({ tools: state().tools }),
  'prompts/list': () => ({ prompts: state().prompts }),
  'resources/list': () => ({ resources: state().resources }),
  'resources/templates/list': () => ({ resourceTemplates: state().templates }),
  'resources/subscribe': () => ({}),
  'resources/unsubscribe': () => ({}),
  'tools/call': async ({ name, arguments: args }) => {
    const content = [{ type: 'text', text: 'done' }];
    if (!Object.hasOwn(tools, name)) return { content, ttlMs: 60_000 };
    await tools[name](args ?? {});
    return { content };
  },
};
const legacyMethods = {
  ping: () => ({}),
  initialize: () => ({
    protocolVersion: '2025-11-25',
    capabilities,
    serverInfo: { name: 'listed', version: '1' },
    instructions: 'be kind',
  }),
};
const modernMethods = {
  'server/discover': () => ({
    supportedVersions: ['2026-07-28'],
    capabilities,
    instructions: 'be kind',
    _meta: { [`${prefix}/serverInfo`]: { name: 'listed', version: '1' } },
  }),
};
const known = { ...methods, ...(isModern ? modernMethods : legacyMethods) };

function listen(id, { notifications }) {
  note(`listen ${JSON.stringify(notifications)}`);
  listens.set(id, notifications);
  const _meta = { [`${prefix}/subscriptionId`]: id };
  send({ method: 'notifications/subscriptions/acknowledged', params: { notifications, _meta } });
}

async function answer({ id, method, params }) {
  if (method === 'notifications/cancelled' && listens.delete(params.requestId)) note('unlisten');
  if (id === undefined) return;
  if (isModern && method === 'subscriptions/listen') return listen(id, params);
  note(params?.uri === undefined ? method : `${method} ${params.uri}`);
  const run = known[method];
  if (!run) return send({ id, error: { code: -32601, message: 'unknown method' } });
  const result = await run(params ?? {});
  send({ id, result: isModern ? { resultType: 'complete', ...result } : result });
}

let rest = '';
process.stdin.setEncoding('utf8').on('data', (text) => {
  const lines = (rest + text).split('\n');
  rest = lines.pop();
  for (const line of lines.filter(Boolean)) void answer(JSON.parse(line));
});
process.stdin.on('end', () => process.exit(0));
