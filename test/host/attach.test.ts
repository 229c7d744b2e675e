/**
 * Servers and transports of both SDK generations, attached to a real host: in this process, behind the gateway, and over HTTP.
 */
import * as client2 from '@modelcontextprotocol/client';
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as Http1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import { McpServer as McpServer1 } from '@modelcontextprotocol/sdk/server/mcp.js';
import { McpServer as McpServer2 } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readManifestBody } from '../../src/broker/protocol/reply-body.js';
import { Manifests } from '../../src/broker/service/manifests.js';
import { createGateway, type Gateway } from '../../src/gateway/gateway.js';
import { createHost, type Host } from '../../src/host/host.js';
import { systemClock } from '../../src/kernel/clock.js';
import { failureOf } from './harness.js';

const info = { name: 'hi', version: '1' };
const hello = async () => ({ content: [{ type: 'text' as const, text: 'hello' }] });

function sdk1(): McpServer1 {
  const server = new McpServer1(info);
  server.registerTool('hello', { description: 'greets' }, hello);
  // Sends a question to the caller of this call, with the API of SDK 1.
  server.registerTool('ask', {}, async (extra) => {
    const params = { message: 'who?', requestedSchema: { type: 'object' as const, properties: {} } };
    const { action } = await server.server.elicitInput(params, { relatedRequestId: extra.requestId });
    return { content: [{ type: 'text', text: action }] };
  });
  return server;
}

function sdk2(): McpServer2 {
  const server = new McpServer2(info);
  server.registerTool('hello', { description: 'greets' }, hello);
  return server;
}

/** The modern era of SDK 2 needs its entry point, which takes one end of a pair; the other is attached. */
function sdk2Modern(): InMemoryTransport {
  const [near, far] = InMemoryTransport.createLinkedPair();
  void serveStdio(() => sdk2(), { transport: far as never });
  return near;
}

let host: Host;
let gateway: Gateway;
let url: URL;
const problems: unknown[] = [];

beforeAll(async () => {
  const identity = { name: 'test', version: '1', capabilities: { elicitation: {} } };
  host = await createHost({}, { client: identity, onProblem: (error) => void problems.push(error) });
  const listen = { host: '127.0.0.1', port: 0, allowedHosts: [], allowedOrigins: [] };
  gateway = await createGateway({ host, settings: { listen, auth: 'none', version: '1' } });
  url = new URL(await gateway.listen());
});
afterAll(async () => {
  await gateway.close(0);
  await host.close();
});

describe('in this process', () => {
  test.each([
    ['sdk1', '2025-11-25', sdk1],
    ['sdk2', '2025-11-25', sdk2],
    ['sdk2-modern', '2026-07-28', sdk2Modern],
    ['sdk1-factory', '2025-11-25', () => sdk1],
    ['sdk2-factory', '2025-11-25', () => async () => sdk2()],
  ])('E23 %s is attached, called, and closed by the host', async (name, version, make) => {
    const object = make();
    await host.attach(name, object);
    const result = await host.call(name, 'hello');
    expect(result.json()).toMatchObject({ content: [{ text: 'hello' }] });
    const row = host.status().find((each) => each.name === name);
    expect(row).toMatchObject({ state: 'ready', transport: 'attached', pid: null, protocolVersion: version });
    await host.detach(name);
    if ('isConnected' in object) expect(object.isConnected()).toBe(false);
    expect([host.names().includes(name), problems]).toEqual([false, []]);
  });

  test('E23 a connected server of either SDK is invalid_spec', async () => {
    for (const server of [sdk1(), sdk2()]) {
      await server.connect(InMemoryTransport.createLinkedPair()[0] as never);
      expect((await failureOf(host.attach('x', server))).code).toBe('invalid_spec');
      await server.close();
    }
  });

  test('E23 a server that closes itself is stopped, and one from a factory is started again', async () => {
    const made: McpServer1[] = [];
    const make = () => {
      made.push(sdk1());
      return made.at(-1) as McpServer1;
    };
    await host.attach('again', make);
    const once = sdk2();
    await host.attach('once', once);
    await Promise.all([made[0]?.close(), once.close()]);
    await host.lease('again').then((lease) => lease.release());
    expect((await failureOf(host.call('once', 'hello'))).code).toBe('server_stopped');
    expect([(await host.call('again', 'hello')).isError, made.length]).toEqual([false, 2]);
    await Promise.all([host.detach('again'), host.detach('once')]);
  });

  test('E23 a question of a server during a call reaches its caller, however many calls are in progress', async () => {
    await host.attach('asking', sdk1());
    const asked: string[] = [];
    const ask = (who: string) =>
      host.call(
        'asking',
        'ask',
        {},
        {
          onServerRequest: (request) => {
            asked.push(who);
            request.respond(`{"action":"${who === 'ann' ? 'accept' : 'decline'}"}`);
          },
        },
      );
    const [ann, bob] = await Promise.all([ask('ann'), ask('bob')]);
    expect([ann?.json(), bob?.json()]).toMatchObject([
      { content: [{ text: 'accept' }] },
      { content: [{ text: 'decline' }] },
    ]);
    expect(asked.sort()).toEqual(['ann', 'bob']);
    await host.detach('asking');
  });
});

test('E23 detach of a configured server is refused, and its instances stay', async () => {
  const conf = { url: 'http://127.0.0.1:1/', isolation: 'per-client' };
  const other = await createHost({ mcpServers: { conf } }, { onProblem: () => {} });
  await failureOf(other.call('conf', 'hello', {}, { instance: 'ann', deadlineMs: 20 }));
  expect((await failureOf(other.detach('conf'))).code).toBe('invalid_spec');
  expect(other.status()[0]?.instances).toBe(1);
  await other.close();
});

test('E23 workers of the broker are shown its tools', async () => {
  await host.attach('a', sdk1());
  const onProblem = (error: unknown) => void problems.push(error);
  const options = { host, clock: systemClock, isRolelessAllowed: () => true, onChanged: () => {}, onProblem };
  const manifests = new Manifests(options);
  const names = () =>
    readManifestBody(manifests.of(undefined).body).tools.map(({ server, name }) => `${server}/${name}`);
  expect(names()).toEqual(['a/hello', 'a/ask']);
  await host.detach('a');
  expect(names()).toEqual([]);
  manifests.close();
});

describe('through the gateway', () => {
  test('E23 clients find the tools of an attached server while it is attached, and call them', async () => {
    const client = new Client1({ name: 'client', version: '1' });
    await client.connect(new Http1(url) as never);
    expect((await client.listTools()).tools).toEqual([]);
    await host.attach('a', sdk1());
    const { tools } = await client.listTools();
    const name = tools.find((tool) => tool.name.includes('hello'))?.name as string;
    expect(await client.callTool({ name })).toMatchObject({ content: [{ text: 'hello' }] });
    await host.detach('a');
    expect((await client.listTools()).tools).toEqual([]);
    await client.close();
  });
});

describe('transports of the SDKs over HTTP', () => {
  let other: Host;
  beforeAll(async () => {
    other = await createHost({}, { onProblem: (error) => void problems.push(error) });
    await host.attach('far', sdk2());
  });
  afterAll(() => other.close());

  test.each([
    ['SDK 1', '2025-11-25', () => new Http1(new URL('/mcp/far', url))],
    ['SDK 2', '2026-07-28', () => new client2.StreamableHTTPClientTransport(new URL('/mcp/far', url))],
  ])('E23 that of %s finds the era, and keeps its session and its statuses to itself', async (name, version, make) => {
    const transport = make();
    const errors: Error[] = [];
    transport.onerror = (error) => void errors.push(error);
    const at = name.replace(' ', '');
    await other.attach(at, transport as never);
    const row = () => other.status().find((each) => each.name === at);
    expect(row()).toMatchObject({ state: 'ready', protocolVersion: version, transport: 'attached' });
    expect((await other.call(at, 'hello')).json()).toMatchObject({ content: [{ text: 'hello' }] });
    if (transport instanceof Http1) {
      // The session has ended at the server: the call gets the status, and Hostler opens no other session.
      await fetch(new URL('/mcp/far', url), {
        method: 'DELETE',
        headers: { 'mcp-session-id': transport.sessionId as string, 'mcp-protocol-version': version },
      });
      const failed = await failureOf(other.call(at, 'hello'));
      expect([failed.details.httpStatus, failed.details.execution]).toEqual([404, 'not_executed']);
      expect(errors.length).toBeGreaterThan(0);
      expect(row()).toMatchObject({ state: 'ready', run: 1 });
    }
    await other.detach(at);
  });
});
