import * as client2 from '@modelcontextprotocol/client';
import { StdioClientTransport as StdioClientTransport2 } from '@modelcontextprotocol/client/stdio';
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import { McpServer as McpServer1 } from '@modelcontextprotocol/sdk/server/mcp.js';
import { McpServer as McpServer2 } from '@modelcontextprotocol/server';
import { expect, test } from 'vitest';
import { FakeTransport } from '../../../test/fakes/attached-transport.js';
import { attachProblem, claim } from './attachable.js';

const info = { name: 'x', version: '1' };
const url = new URL('http://127.0.0.1:9/mcp');
const near = () => InMemoryTransport.createLinkedPair()[0];

test.each([
  ['a server of SDK 1', () => new McpServer1(info)],
  ['a low-level server of SDK 1', () => new McpServer1(info).server],
  ['a server of SDK 2', () => new McpServer2(info)],
  ['a low-level server of SDK 2', () => new McpServer2(info).server],
  ['a pair of SDK 1', near],
  ['HTTP of SDK 1', () => new StreamableHTTPClientTransport(url)],
  ['HTTP+SSE of SDK 1', () => new SSEClientTransport(url)],
  ['stdio of SDK 1', () => new StdioClientTransport({ command: 'node' })],
  ['HTTP of SDK 2', () => new client2.StreamableHTTPClientTransport(url)],
  ['stdio of SDK 2', () => new StdioClientTransport2({ command: 'node' })],
  ['a transport made by hand', () => new FakeTransport()],
])('E23 %s can be attached, once', (_title, make) => {
  const object = make();
  expect([attachProblem(object), claim(object)]).toEqual([undefined, undefined]);
  expect(claim(object)).toMatch(/attached before/);
});

async function connected<T extends McpServer1 | McpServer2>(server: T): Promise<T> {
  await server.connect(near() as never);
  return server;
}

async function started<T extends { start(): Promise<void> }>(transport: T): Promise<T> {
  await transport.start();
  return transport;
}

test.each([
  ['a connected server of SDK 1', () => connected(new McpServer1(info)), /connected already/],
  ['a connected server of SDK 2', () => connected(new McpServer2(info)), /connected already/],
  ['the inner server of a connected one', async () => (await connected(new McpServer1(info))).server, /connected/],
  ['started HTTP of SDK 1', () => started(new StreamableHTTPClientTransport(url)), /started already/],
  ['started HTTP of SDK 2', () => started(new client2.StreamableHTTPClientTransport(url)), /started already/],
  ['HTTP in a session', () => new StreamableHTTPClientTransport(url, { sessionId: 's' }), /session already/],
  ['a transport in use', () => Object.assign(near(), { onmessage: () => {} }), /onmessage/],
  ['a client of SDK 1', () => new Client1(info), /is a client/],
  ['a client of SDK 2', () => new client2.Client(info), /is a client/],
  ['undefined', () => undefined, /neither/],
  ['a text', () => 'node server.js', /neither/],
  [
    'an object that throws when it is looked at',
    () => ({
      get start() {
        throw new Error('no');
      },
    }),
    /cannot be inspected/,
  ],
])('E23 %s cannot be attached', async (_title, make, why) => {
  expect(attachProblem(await make())).toMatch(why);
});
