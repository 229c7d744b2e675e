/**
 * The server that the official conformance suite expects, behind the gateway or alone.
 *   node fixture-server.mjs stdio|http|sse [--era both|modern|legacy] [--port 0]
 * Over HTTP its first line is `listening <url>`, and it ends with its stdin. Not here: tools, resources and prompts
 * (fixture-content.mjs, fixture-calls.mjs, fixture-input.mjs).
 *
 * Invariant: requests of an era that is not enabled are refused as real servers of the other era refuse them.
 */
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import process from 'node:process';
import { parseArgs } from 'node:util';
import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import {
  createMcpHandler,
  isInitializeRequest,
  localhostAllowedHostnames,
  localhostAllowedOrigins,
  ProtocolError,
  Server,
  validateHostHeader,
  validateOriginHeader,
} from '@modelcontextprotocol/server';
import { StdioServerTransport, serveStdio } from '@modelcontextprotocol/server/stdio';
import { callTools, extraPrompt, extras, extraTool } from './fixture-calls.mjs';
import {
  complete,
  noArguments,
  plainPrompts,
  plainTools,
  readResource,
  resources,
  resourceTemplates,
} from './fixture-content.mjs';
import { EventLog } from './fixture-event-log.mjs';
import { inputPrompts, inputTools } from './fixture-input.mjs';

const invalidParams = -32602;
const tools = () => ({ ...plainTools, ...callTools, ...inputTools, ...(extras.tool && extraTool) });
const prompts = () => ({ ...plainPrompts, ...inputPrompts, ...(extras.prompt && extraPrompt) });

const capabilities = {
  tools: { listChanged: true },
  prompts: { listChanged: true },
  resources: { listChanged: true, subscribe: true },
  completions: {},
  logging: {},
};
const hint = { ttlMs: 1_000, cacheScope: 'public' };
const cacheHints = {
  'server/discover': hint,
  'tools/list': hint,
  'prompts/list': hint,
  'resources/list': hint,
  'resources/templates/list': hint,
  'resources/read': hint,
};

/** `changed` where listeners are not connections of this server (modern era over HTTP). */
function createFixture({ era, changed }) {
  const server = new Server({ name: 'conformance-fixture', version: '1.0.0' }, { capabilities, cacheHints });
  const own = {
    tools: () => server.notification({ method: 'notifications/tools/list_changed' }),
    prompts: () => server.notification({ method: 'notifications/prompts/list_changed' }),
  };
  const extend = (context) => ({
    ...context,
    changed: changed ?? own,
    capabilities:
      (era === 'modern'
        ? context.mcpReq.envelope?.['io.modelcontextprotocol/clientCapabilities']
        : server.getClientCapabilities()) ?? {},
  });
  const find = (table, name) => {
    if (Object.hasOwn(table, name)) return table[name];
    throw new ProtocolError(invalidParams, `unknown name: ${name}`);
  };
  server.setRequestHandler('tools/list', () => ({
    tools: Object.entries(tools()).map(([name, { description, inputSchema = noArguments }]) => ({
      name,
      description,
      inputSchema,
    })),
  }));
  server.setRequestHandler('tools/call', ({ params }, context) =>
    find(tools(), params.name).run(params.arguments ?? {}, extend(context)),
  );
  server.setRequestHandler('prompts/list', () => ({
    prompts: Object.entries(prompts()).map(([name, { run, ...prompt }]) => ({ name, ...prompt })),
  }));
  server.setRequestHandler('prompts/get', ({ params }, context) =>
    find(prompts(), params.name).run(params.arguments ?? {}, extend(context)),
  );
  server.setRequestHandler('resources/list', () => ({ resources }));
  server.setRequestHandler('resources/templates/list', () => ({ resourceTemplates }));
  server.setRequestHandler('resources/read', ({ params }) => readResource(params.uri));
  server.setRequestHandler('completion/complete', ({ params }) => complete(params.argument.value));
  if (era !== 'modern') {
    server.setRequestHandler('resources/subscribe', () => ({}));
    server.setRequestHandler('resources/unsubscribe', () => ({}));
  }
  return server;
}

async function overStdio(era) {
  if (era === 'legacy') await createFixture({ era }).connect(new StdioServerTransport());
  else serveStdio((context) => createFixture({ era: context.era }), { legacy: era === 'modern' ? 'reject' : 'serve' });
}

async function bodyOf(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks).toString('utf8');
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

function refuse(response, status, message) {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ jsonrpc: '2.0', error: { code: -32000, message }, id: null }));
}

function legacySessions() {
  const sessions = new Map();
  return async (request, response, body) => {
    const id = request.headers['mcp-session-id'];
    if (id !== undefined) {
      const transport = sessions.get(id);
      if (transport === undefined) refuse(response, 404, 'Session not found');
      else await transport.handleRequest(request, response, body);
      return;
    }
    if (!isInitializeRequest(body)) return refuse(response, 400, 'Bad Request: no session');
    const transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      eventStore: new EventLog(),
      retryInterval: 500,
      onsessioninitialized: (sessionId) => sessions.set(sessionId, transport),
      onsessionclosed: (sessionId) => sessions.delete(sessionId),
    });
    await createFixture({ era: 'legacy' }).connect(transport);
    await transport.handleRequest(request, response, body);
  };
}

/** A modern request has its version in `_meta`. A session header, a GET stream and `initialize` are legacy. */
const isModern = (request, body) =>
  request.headers['mcp-session-id'] === undefined &&
  request.method === 'POST' &&
  (body?.params?._meta?.['io.modelcontextprotocol/protocolVersion'] !== undefined ||
    String(request.headers['mcp-protocol-version'] ?? '') >= '2026-07-28');

function overHttp(era) {
  const changed = { tools: () => handler.notify.toolsChanged(), prompts: () => handler.notify.promptsChanged() };
  const handler = createMcpHandler(() => createFixture({ era: 'modern', changed }), { legacy: 'reject' });
  const modern = toNodeHandler(handler);
  const legacy = legacySessions();
  return async (request, response) => {
    const body = request.method === 'POST' ? await bodyOf(request) : undefined;
    const isForModern = era === 'modern' || (era === 'both' && isModern(request, body));
    await (isForModern ? modern(request, response, body) : legacy(request, response, body));
  };
}

function overSse() {
  const sessions = new Map();
  return async (request, response) => {
    const { pathname, searchParams } = new URL(request.url, 'http://fixture');
    if (request.method === 'GET' && pathname === '/sse') {
      const transport = new SSEServerTransport('/messages', response);
      sessions.set(transport.sessionId, transport);
      response.once('close', () => sessions.delete(transport.sessionId));
      await createFixture({ era: 'legacy' }).connect(transport);
      return;
    }
    const transport = pathname === '/messages' ? sessions.get(searchParams.get('sessionId')) : undefined;
    if (transport === undefined) refuse(response, pathname === '/sse' ? 405 : 404, 'Not found');
    else await transport.handlePostMessage(request, response);
  };
}

function listen(handle, path, port) {
  const server = createServer((request, response) => {
    const isLocal =
      validateHostHeader(request.headers.host, localhostAllowedHostnames()).ok &&
      validateOriginHeader(request.headers.origin, localhostAllowedOrigins()).ok;
    if (!isLocal) return refuse(response, 403, 'Forbidden');
    handle(request, response).catch((error) => {
      process.stderr.write(`${error.stack}\n`);
      if (!response.headersSent) response.writeHead(500);
      response.end();
    });
  });
  server.listen(port, '127.0.0.1', () => {
    process.stdout.write(`listening http://127.0.0.1:${server.address().port}${path}\n`);
  });
  // The parent process holds this stdin, so this process ends with its parent.
  process.stdin.resume().once('end', () => process.exit(0));
}

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { era: { type: 'string', default: 'both' }, port: { type: 'string', default: '0' } },
});
const kind = positionals[0] ?? 'stdio';
if (kind === 'stdio') await overStdio(values.era);
else if (kind === 'http') listen(overHttp(values.era), '/mcp', Number(values.port));
else listen(overSse(), '/sse', Number(values.port));
