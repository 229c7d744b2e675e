/**
 * An MCP server over streamable HTTP for the soak: the tool `echo`, answered after DELAY_MS, with minimal CPU use. Forked by the
 * driver. It sends the driver a message when it listens, and when a request has a new value of the header X-Generation, which the
 * driver raises with each edit.
 *   PORT            of 127.0.0.1
 *   ERA             legacy (sessions, a GET stream) or modern
 *   FORGOTTEN       the status for an unknown session: 404, or 400 as in the examples of the official SDK
 *   DELAY_MS        how long a call takes
 *   LIST_EVERY_MS   interval in which the tool `extra` is added or removed, announced on the GET streams; 0: never
 */
import { createServer } from 'node:http';
import process from 'node:process';

const { ERA, FORGOTTEN } = process.env;
const isModern = ERA === 'modern';
const [delayMs, listEveryMs] = [Number(process.env.DELAY_MS), Number(process.env.LIST_EVERY_MS)];
const capabilities = { tools: { listChanged: listEveryMs > 0 } };
const serverInfo = { name: 'soak', version: '1' };
const complete = { resultType: 'complete', _meta: { 'io.modelcontextprotocol/serverInfo': serverInfo } };
const sessions = new Set();
const streams = new Set();
let hasExtra = false;
let generation = '';

const echo = {
  name: 'echo',
  description: 'Answers with its input.',
  inputSchema: { type: 'object', properties: { text: { type: 'string' } } },
};
/** Differs from the other tool in every member: with the same body it would count as a renamed tool. */
const extra = { name: 'extra', description: 'Comes and goes.', inputSchema: { type: 'object' } };

const results = {
  'tools/call': ({ arguments: { text } }) => ({ content: [{ type: 'text', text }] }),
  'tools/list': () => ({
    tools: hasExtra ? [echo, extra] : [echo],
    ...(isModern && { ttlMs: 0, cacheScope: 'private' }),
  }),
  ...(isModern
    ? {
        'server/discover': () => ({ supportedVersions: ['2026-07-28'], capabilities, ttlMs: 0, cacheScope: 'private' }),
      }
    : {
        initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities, serverInfo }),
        ping: () => ({}),
      }),
};

function send(response, status, message, headers = {}) {
  const text = JSON.stringify({ jsonrpc: '2.0', ...message });
  const own = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
  response.writeHead(status, { ...own, ...headers }).end(text);
}

const refuse = (response, status, message, id = null) =>
  send(response, status, { id, error: { code: -32000, message } });

function post(request, response, { id, method, params }) {
  const session = request.headers['mcp-session-id'];
  const isFirst = method === 'initialize';
  if (!isModern && !isFirst && method !== 'server/discover' && !sessions.has(session))
    return refuse(response, Number(FORGOTTEN), 'No valid session ID provided', id);
  if (id === undefined) return response.writeHead(202).end();
  const run = results[method];
  if (!run) {
    const error = { code: -32601, message: 'Method not found' };
    return send(response, isModern ? 404 : 200, { id, error });
  }
  const result = isModern ? { ...complete, ...run(params) } : run(params);
  if (method === 'tools/call' && delayMs > 0) return setTimeout(() => send(response, 200, { id, result }), delayMs);
  const headers = {};
  if (isFirst) {
    headers['mcp-session-id'] = `${process.pid}-${sessions.size}-${Date.now()}`;
    sessions.add(headers['mcp-session-id']);
  }
  return send(response, 200, { id, result }, headers);
}

function openStream(request, response) {
  const session = request.headers['mcp-session-id'];
  if (isModern || session === undefined) return response.writeHead(405, { allow: 'POST' }).end();
  if (!sessions.has(session)) return refuse(response, Number(FORGOTTEN), 'No valid session ID provided');
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
  response.flushHeaders();
  streams.add(response);
  return response.once('close', () => streams.delete(response));
}

const server = createServer((request, response) => {
  const its = request.headers['x-generation'] ?? '';
  if (its !== '' && its !== generation) {
    generation = its;
    process.send({ generation });
  }
  if (request.method === 'GET') return openStream(request, response);
  if (request.method === 'DELETE') {
    sessions.delete(request.headers['mcp-session-id']);
    return response.writeHead(204).end();
  }
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  return request.on('end', () => post(request, response, JSON.parse(Buffer.concat(chunks).toString('utf8'))));
});
server.keepAliveTimeout = 60_000;
server.listen(Number(process.env.PORT), '127.0.0.1', () => process.send({ isListening: true }));

const changed = 'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n';
if (listEveryMs > 0)
  setInterval(() => {
    hasExtra = !hasExtra;
    for (const stream of streams) stream.write(changed);
  }, listEveryMs);
// Ends with the driver.
process.on('disconnect', () => process.exit(0));
