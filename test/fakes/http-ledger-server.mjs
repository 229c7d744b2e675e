/**
 * A legacy MCP server on the official SDK 1.32 over streamable HTTP, with sessions as in the SDK's examples: a request that names
 * an unknown session is answered with 400. The tool `write` appends its nonce to a ledger before it answers.
 *   PORT     the port of 127.0.0.1 it listens on
 *   LEDGER   the ledger: one line per execution
 */
import { randomUUID } from 'node:crypto';
import { closeSync, openSync, writeSync } from 'node:fs';
import { createServer } from 'node:http';
import process from 'node:process';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { CallToolRequestSchema, isInitializeRequest, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { bodyOf, refuse } from '../fixtures/servers/http.mjs';

const ledger = openSync(process.env.LEDGER, 'a');
process.on('exit', () => closeSync(ledger));

const tools = [
  {
    name: 'write',
    description: 'Appends its nonce to the ledger.',
    inputSchema: { type: 'object', properties: { nonce: { type: 'string' } }, required: ['nonce'] },
  },
];

function createLedgerServer() {
  const server = new Server({ name: 'ledger', version: '1.0.0' }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools }));
  server.setRequestHandler(CallToolRequestSchema, ({ params }) => {
    const { nonce } = params.arguments;
    writeSync(ledger, `${nonce}\n`);
    return { content: [{ type: 'text', text: nonce }] };
  });
  return server;
}

const sessions = new Map();

async function handle(request, response) {
  const id = request.headers['mcp-session-id'];
  const known = sessions.get(id);
  if (known !== undefined) return known.handleRequest(request, response);
  const body = request.method === 'POST' ? await bodyOf(request) : undefined;
  if (id !== undefined || !isInitializeRequest(body)) {
    return refuse(response, 400, -32000, 'Bad Request: No valid session ID provided');
  }
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: () => randomUUID(),
    onsessioninitialized: (opened) => sessions.set(opened, transport),
    onsessionclosed: (closed) => sessions.delete(closed),
  });
  await createLedgerServer().connect(transport);
  return transport.handleRequest(request, response, body);
}

createServer((request, response) => {
  handle(request, response).catch((error) => {
    process.stderr.write(`${error.stack}\n`);
    if (!response.headersSent) response.writeHead(500);
    response.end();
  });
}).listen(Number(process.env.PORT), '127.0.0.1');
