/** The transports against third-party servers. */
import { randomUUID } from 'node:crypto';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { McpServer as LegacyServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { afterEach, expect, test } from 'vitest';
import { systemClock } from '../../src/kernel/clock.js';
import { systemRandom } from '../../src/kernel/random.js';
import { BadRequest } from '../../src/transports/http/http-errors.js';
import { openHttpSse } from '../../src/transports/http/http-sse-channel.js';
import { openStreamableHttp } from '../../src/transports/http/streamable-http-channel.js';
import type { Channel, OutboundFrame } from '../../src/wire/channel.js';
import { legacyEra, modernEra } from '../fakes/eras.js';
import { notification, RecordingListener, request } from '../fakes/http-listener.js';

const deps = { clock: systemClock, random: systemRandom };
const toClose: Array<() => unknown> = [];
afterEach(async () => {
  for (const close of toClose.splice(0).reverse()) await close();
});

async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  toClose.push(() => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function listenTo(channel: Channel): RecordingListener {
  const heard = new RecordingListener();
  channel.start(heard);
  toClose.push(() => channel.close());
  return heard;
}

const initialize = () =>
  request('initialize', {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 'test', version: '1' },
  });

function legacyServer(): LegacyServer {
  const server = new LegacyServer({ name: 'legacy', version: '1' }, { capabilities: { logging: {} } });
  server.registerTool('hello', {}, async () => {
    await server.server.sendLoggingMessage({ level: 'info', data: 'on the server stream' });
    return { content: [{ type: 'text', text: 'hi' }] };
  });
  return server;
}

test.each([false, true])('a legacy server of the SDK, with JSON answers: %s', async (enableJsonResponse) => {
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: () => randomUUID(), enableJsonResponse });
  await legacyServer().connect(transport as never);
  const methods: string[] = [];
  const url = await serve((message, response) => {
    methods.push(message.method ?? '');
    void transport.handleRequest(message, response);
  });
  const channel = openStreamableHttp({ server: 'sdk', url: `${url}/mcp` }, deps);
  const heard = listenTo(channel);
  const first = initialize();
  channel.send(first);
  await heard.settled(first);
  channel.adopt({ era: legacyEra, version: '2025-11-25' });
  channel.send(notification('notifications/initialized'));
  channel.openServerStream();
  expect(channel.sessionId).toMatch(/^[0-9a-f-]{36}$/);
  while (!methods.includes('GET')) await new Promise((resolve) => setImmediate(resolve));
  const call = request('tools/call', { name: 'hello', arguments: {} });
  channel.send(call);
  await heard.settled(call);
  expect(heard.answerTo(call)?.text).toContain('"hi"');
  await heard.until(() => heard.messages.some((message) => message.kind === 'notification'));
  expect(heard.messages.find((message) => message.kind === 'notification')?.origin).toBeUndefined();
  await channel.close();
  expect(methods.at(-1)).toBe('DELETE');
  expect(heard.failures).toEqual([]);
});

test('a modern server of the SDK', async () => {
  const handler = createMcpHandler(() => {
    const server = new McpServer({ name: 'modern', version: '1' });
    server.registerTool('hello', {}, async () => ({ content: [{ type: 'text', text: 'hi' }] }));
    return server;
  });
  const url = await serve(toNodeHandler(handler) as RequestListener);
  const channel = openStreamableHttp({ server: 'sdk', url: `${url}/mcp` }, deps);
  const heard = listenTo(channel);
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientCapabilities': {},
    'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
  };
  const discover = request('server/discover', { _meta });
  channel.send(discover);
  await heard.settled(discover);
  expect(heard.answerTo(discover)?.text).toContain('2026-07-28');
  channel.adopt({ era: modernEra, version: '2026-07-28' });
  const call = request('tools/call', { name: 'hello', arguments: {}, _meta }, { name: 'hello' });
  channel.send(call);
  await heard.settled(call);
  expect(heard.answerTo(call)?.text).toContain('"hi"');
  // The channel reports a refusal as BadRequest, with the answer of the server in it. A session would forward that answer, after a
  // check whether the server still speaks this protocol.
  const refusalOf = (frame: OutboundFrame) => {
    const error = heard.failureOf(frame);
    return error instanceof BadRequest ? String(error.answer?.bytes) : undefined;
  };
  // The server compares header and body, and answers a difference with an error that has the id of the request.
  const mismatch = request('tools/call', { name: 'hello', arguments: {}, _meta }, { name: 'other' });
  channel.send(mismatch);
  await heard.settled(mismatch);
  expect(refusalOf(mismatch)).toContain('-32020');
  const unknown = request('no/such/method', { _meta });
  channel.send(unknown);
  await heard.settled(unknown);
  expect(refusalOf(unknown)).toContain('-32601');
});

test('an HTTP+SSE server of the SDK', async () => {
  let transport: SSEServerTransport | undefined;
  const url = await serve((message, response) => {
    if (message.method === 'GET') {
      transport = new SSEServerTransport('/messages', response);
      void legacyServer().connect(transport as never);
    } else void transport?.handlePostMessage(message, response);
  });
  const channel = await openHttpSse({ server: 'sdk', url: `${url}/sse` }, deps);
  const heard = listenTo(channel);
  const first = initialize();
  channel.send(first);
  await heard.settled(first);
  channel.send(notification('notifications/initialized'));
  const call = request('tools/call', { name: 'hello', arguments: {} });
  channel.send(call);
  await heard.settled(call);
  expect(heard.answerTo(call)?.text).toContain('"hi"');
});
