/**
 * A stdio server that answers late and in any order. Each of its messages names the intended caller.
 *   echo_later {caller, nonce, ms}   sends progress with the nonce, after `ms` returns both, and sends an update of
 * `nonce://<caller>`
 *   echo_cached {caller, key}        returns the caller with a `ttlMs`: may be cached, but never for another caller
 * PIDS: a file that gets its process id, so that a test can kill it.
 *
 * Invariant: no text it sends names more than one caller.
 */
import { appendFileSync } from 'node:fs';
import process from 'node:process';
import { createInterface } from 'node:readline';

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const notify = (method, params) => send({ method, params });
const subscribed = new Set();
const text = (value) => ({ content: [{ type: 'text', text: JSON.stringify(value) }] });

const strings = (...names) => ({
  type: 'object',
  properties: Object.fromEntries(names.map((name) => [name, { type: name === 'ms' ? 'number' : 'string' }])),
  required: names,
});
const tools = [
  { name: 'echo_later', description: 'Echoes later', inputSchema: strings('caller', 'nonce', 'ms') },
  { name: 'echo_cached', description: 'Echoes', inputSchema: strings('caller', 'key') },
];

function call(id, { name, arguments: args, _meta }) {
  if (name === 'echo_cached') {
    send({ id, result: { ...text({ caller: args.caller, key: args.key }), ttlMs: 60_000, cacheScope: 'private' } });
    return;
  }
  const progressToken = _meta?.progressToken;
  if (progressToken !== undefined) {
    notify('notifications/progress', { progressToken, progress: 1, message: `${args.caller}#${args.nonce}` });
  }
  setTimeout(() => {
    const uri = `nonce://${args.caller}`;
    if (subscribed.has(uri)) notify('notifications/resources/updated', { uri });
    send({ id, result: text({ caller: args.caller, nonce: args.nonce }) });
  }, args.ms);
}

const answers = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    serverInfo: { name: 'nonce', version: '1.0.0' },
    capabilities: { tools: {}, resources: { subscribe: true } },
  }),
  ping: () => ({}),
  'tools/list': () => ({ tools }),
  'resources/list': () => ({ resources: [] }),
  'resources/templates/list': () => ({ resourceTemplates: [{ uriTemplate: 'nonce://{caller}', name: 'nonce' }] }),
  'resources/subscribe': ({ uri }) => {
    subscribed.add(uri);
    return {};
  },
  'resources/unsubscribe': ({ uri }) => {
    subscribed.delete(uri);
    return {};
  },
};

if (process.env.PIDS !== undefined) appendFileSync(process.env.PIDS, `${process.pid}\n`);
createInterface({ input: process.stdin })
  .on('line', (line) => {
    const { id, method, params } = JSON.parse(line);
    if (method === 'tools/call') call(id, params);
    else if (id !== undefined && answers[method] !== undefined) send({ id, result: answers[method](params ?? {}) });
    else if (id !== undefined && method !== undefined)
      send({ id, error: { code: -32601, message: 'Method not found' } });
  })
  .once('close', () => process.exit(0));
