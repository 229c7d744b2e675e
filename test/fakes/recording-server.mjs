/**
 * An MCP server that records every byte that it receives, over stdio or HTTP.
 *   RECORD=FILE   the received bytes
 *   HTTP=1        listens on a free port and prints it; else it uses stdio
 *   ERA=legacy|modern
 *   TOOLS=FILE    the text of the result of tools/list, sent unchanged; read at each request
 * Tools: `echo` {text}, `ask` (modern: input_required with a state of its own).
 */
import { createWriteStream, readFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { connect, createServer } from 'node:net';
import process from 'node:process';

const { RECORD, HTTP, TOOLS } = process.env;
const isModern = process.env.ERA === 'modern';
const record = RECORD ? createWriteStream(RECORD, { flags: 'a' }) : undefined;
const serverInfo = { name: 'recording', version: '1.0.0' };
const capabilities = { tools: {}, prompts: {}, resources: { subscribe: true }, completions: {} };
const schema = { type: 'object', properties: { text: { type: 'string' } } };
const tools = ['echo', 'ask', 'hidden'].map((name) => ({ name, inputSchema: schema }));
const text = (value) => ({ content: [{ type: 'text', text: value }] });

function ask({ inputResponses, requestState }) {
  if (!isModern) return text('asks no client');
  if (inputResponses) return text(JSON.stringify({ inputResponses, requestState }));
  const params = { mode: 'form', message: 'who?', requestedSchema: { type: 'object', properties: {} } };
  const inputRequests = { who: { method: 'elicitation/create', params } };
  return { resultType: 'input_required', inputRequests, requestState: 'state-of-the-server' };
}

const methods = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities, serverInfo }),
  'server/discover': () => ({ supportedVersions: ['2026-07-28'], capabilities, serverInfo }),
  ping: () => ({}),
  'tools/list': () => ({ tools }),
  'prompts/list': () => ({ prompts: [{ name: 'greet' }] }),
  'resources/list': () => ({ resources: [{ uri: 'rec://one', name: 'one' }] }),
  'resources/templates/list': () => ({ resourceTemplates: [{ uriTemplate: 'rec://item/{id}', name: 'item' }] }),
  'resources/read': ({ uri }) => ({ contents: [{ uri, text: 'read' }] }),
  'resources/subscribe': () => ({}),
  'resources/unsubscribe': () => ({}),
  'prompts/get': () => ({ messages: [] }),
  'completion/complete': () => ({ completion: { values: ['one'] } }),
  'tools/call': (params) => (params.name === 'ask' ? ask(params) : text(params.arguments?.text ?? '')),
};
const modernOnly = new Set(['server/discover', 'subscriptions/listen']);
const legacyOnly = new Set(['initialize', 'ping', 'resources/subscribe', 'resources/unsubscribe']);

/** Undefined: there is nothing to answer. */
function answer({ id, method, params = {} }) {
  if (id === undefined || method === undefined) return undefined;
  const isForeign = (isModern ? legacyOnly : modernOnly).has(method);
  const run = isForeign || !Object.hasOwn(methods, method) ? undefined : methods[method];
  if (!run) return JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32601, message: 'method not found' } });
  if (method === 'tools/list' && TOOLS)
    return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${readFileSync(TOOLS, 'utf8')}}`;
  const modern = isModern ? { resultType: 'complete', ttlMs: 0, cacheScope: 'private' } : {};
  return JSON.stringify({ jsonrpc: '2.0', id, result: { ...modern, ...run(params) } });
}

function serveStdio() {
  let rest = '';
  process.stdin.on('data', (chunk) => {
    record?.write(chunk);
    const lines = (rest + chunk).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      const written = line && answer(JSON.parse(line));
      if (written) process.stdout.write(`${written}\n`);
    }
  });
  process.stdin.on('end', () => process.exit(0));
}

/** Bytes are recorded by a proxy in front of the server, so that headers are recorded exactly. */
function serveHttp() {
  const behind = createHttpServer((request, response) => {
    let body = '';
    request.setEncoding('utf8');
    request.on('data', (chunk) => {
      body += chunk;
    });
    request.on('end', () => {
      const written = request.method === 'POST' ? answer(JSON.parse(body)) : undefined;
      response.writeHead(written ? 200 : request.method === 'POST' ? 202 : 405, { 'content-type': 'application/json' });
      response.end(written);
    });
  });
  behind.listen(0, '127.0.0.1', () => {
    const front = createServer((socket) => {
      const other = connect(behind.address().port, '127.0.0.1');
      socket.on('data', (chunk) => record?.write(chunk));
      socket.pipe(other).pipe(socket);
      for (const [one, another] of [
        [socket, other],
        [other, socket],
      ])
        one.on('error', () => another.destroy());
    });
    front.listen(0, '127.0.0.1', () => console.log(front.address().port));
  });
  process.stdin.resume().on('end', () => process.exit(0));
}

if (HTTP) serveHttp();
else serveStdio();
