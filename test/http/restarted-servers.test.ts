/**
 * Third-party servers that answer 400 for an unknown session: the example servers of the official SDK, and
 * server-everything from npm, killed and started again on the same port.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { afterEach, expect, test } from 'vitest';
import { createHost, type Host } from '../../src/host/host.js';
import { eventually } from '../eventually.js';
import { freePort } from '../fakes/free-port.js';
import { entryPoint } from '../fixtures/real-servers.js';
import { outcomeOf } from '../host/harness.js';

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function hostOf(url: string): Promise<Host> {
  const host = await createHost({ mcpServers: { a: { url } } });
  closers.push(() => host.close());
  return host;
}

const times = <T>(count: number, run: (n: number) => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: count }, (_, n) => run(n)));

test('W3 a server made like the examples of the SDK, whose sessions are gone, serves 100 of 100 later calls', async () => {
  const transports = new Map<string, StreamableHTTPServerTransport>();
  let initializes = 0;
  let executed = 0;
  const newTransport = async () => {
    initializes++;
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (id) => void transports.set(id, transport),
    });
    const server = new McpServer({ name: 'example', version: '1' });
    server.registerTool('hello', {}, async () => {
      executed++;
      return { content: [{ type: 'text', text: 'hi' }] };
    });
    await server.connect(transport as never);
    return transport;
  };
  const http = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString();
    const body = text === '' ? undefined : (JSON.parse(text) as { method?: string });
    const id = request.headers['mcp-session-id'] as string | undefined;
    const known = id === undefined ? undefined : transports.get(id);
    const transport = known ?? (id === undefined && body?.method === 'initialize' ? await newTransport() : undefined);
    if (transport) return transport.handleRequest(request, response, body);
    const error = { code: -32000, message: 'Bad Request: No valid session ID provided' };
    response.writeHead(400, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ jsonrpc: '2.0', error, id: null }));
  });
  await once(http.listen(0, '127.0.0.1'), 'listening');
  closers.push(() => {
    http.closeAllConnections();
    http.close();
  });
  const host = await hostOf(`http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`);
  const call = () => outcomeOf(host.call('a', 'hello', {}));
  expect(await call()).toBe('ok');
  transports.clear();
  expect(new Set(await times(100, call))).toEqual(new Set(['ok']));
  expect([initializes, executed, host.status()[0]?.run, host.status()[0]?.circuit]).toEqual([2, 101, 1, 'closed']);
});

/** Resolves when the port answers. */
async function start(port: number): Promise<ChildProcess> {
  const args = [entryPoint('@modelcontextprotocol/server-everything'), 'streamableHttp'];
  const child = spawn(process.execPath, args, { env: { ...process.env, PORT: String(port) }, stdio: 'ignore' });
  closers.push(() => child.kill('SIGKILL'));
  await eventually(
    'the port answers',
    () =>
      new Promise<boolean>((resolve) => {
        const socket = connect(port, '127.0.0.1', () => resolve(true)).on('error', () => resolve(false));
        socket.once('close', () => resolve(false)).end();
      }),
    30_000,
  );
  return child;
}

test('W3 server-everything, killed and started again on its port, serves 100 of 100 later calls', async () => {
  const port = await freePort();
  let child = await start(port);
  const host = await hostOf(`http://127.0.0.1:${port}/mcp`);
  const call = (n: number) => outcomeOf(host.call('a', 'echo', { message: `m${n}` }));
  expect(await call(0)).toBe('ok');
  for (let round = 0; round < 2; round++) {
    child.kill('SIGKILL');
    await once(child, 'exit');
    child = await start(port);
    expect(new Set(await times(100, call))).toEqual(new Set(['ok']));
  }
  expect(host.status()[0]).toMatchObject({ state: 'ready', circuit: 'closed' });
}, 90_000);
