/**
 * Tokens on the wire: each request is sent with the current token, and a refusal names that token.
 */
import { afterEach, describe, expect, test } from 'vitest';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { seededRandom } from '../../src/kernel/random.js';
import { TokenRefused, tokenHash } from '../../src/transports/http/auth-token.js';
import type { HttpSpec } from '../../src/transports/http/http-pool.js';
import { openHttpSse } from '../../src/transports/http/http-sse-channel.js';
import { openStreamableHttp } from '../../src/transports/http/streamable-http-channel.js';
import { bearer, FakeAuthProvider } from '../fakes/auth-provider.js';
import { legacyEra, modernEra } from '../fakes/eras.js';
import { notification, RecordingListener, request } from '../fakes/http-listener.js';
import { type Answer, events, json, result, rpcError, startServer } from '../fakes/http-server.js';
import { until } from '../fakes/http-until.js';

const one = bearer('first-token');
const two = bearer('second-token');
const MODERN = { era: modernEra, version: '2026-07-28' } as const;
const LEGACY = { era: legacyEra, version: '2025-11-25' } as const;

const open: Array<{ close(): Promise<void> }> = [];
afterEach(async () => {
  for (const thing of open.splice(0).reverse()) await thing.close();
});

async function connect(answer: Answer, spec: Partial<HttpSpec> = {}) {
  const server = await startServer(answer);
  open.push(server);
  const tokens = new FakeAuthProvider(one);
  const deps = { clock: new FakeClock(), random: seededRandom(1) };
  const channel = openStreamableHttp({ server: 'fake', url: server.url, tokens, ...spec }, deps);
  const heard = new RecordingListener();
  channel.start(heard);
  open.push(channel);
  const sent = () => server.received.map(({ headers }) => headers.authorization);
  return { server, channel, heard, tokens, sent };
}

describe('streamable HTTP', () => {
  test.each([
    ['modern', MODERN],
    ['legacy', LEGACY],
  ])('a %s request has the current token, which replaces a configured header of that name', async (_era, agreed) => {
    const headers = { Authorization: 'Bearer configured', 'X-Region': 'eu' };
    const { channel, heard, tokens, sent, server } = await connect((got, response) => json(response, result(got.id)), {
      headers,
    });
    channel.adopt(agreed);
    const steps = [one, two, undefined];
    for (const token of steps) {
      tokens.token = token;
      const frame = request('tools/list');
      channel.send(frame);
      await heard.settled(frame);
    }
    channel.send(notification('notifications/cancelled'));
    await server.until(() => server.received.length === 4);
    const values = ['Bearer first-token', 'Bearer second-token', 'Bearer configured', 'Bearer configured'];
    expect(sent()).toEqual(values);
    expect(server.received.every((got) => got.headers['x-region'] === 'eu')).toBe(true);
  });

  test('a request that had to wait for a connection has the token at the time of sending', async () => {
    let release = () => {};
    const { channel, heard, tokens, sent, server } = await connect(
      (got, response) => {
        release = () => json(response, result(got.id));
        if (server.received.length > 1) release();
      },
      { connections: 1 },
    );
    const [first, second] = [request('tools/list'), request('tools/list')];
    channel.send(first);
    channel.send(second);
    await server.until(() => server.received.length === 1);
    tokens.token = two;
    release();
    await heard.settled(second);
    expect(sent()).toEqual(['Bearer first-token', 'Bearer second-token']);
  });

  test('D-38 a refusal names the token that was sent, even if another is current when it arrives', async () => {
    const { channel, heard, tokens } = await connect((_got, response) => {
      tokens.token = two;
      response.writeHead(401).end();
    });
    const frame = request('tools/list');
    channel.send(frame);
    const refused = await heard.settled(frame);
    if (!(refused instanceof TokenRefused)) throw new Error('no refusal');
    expect([refused.kind, refused.sentHash]).toEqual(['token', tokenHash(one)]);
    expect(refused.toJSON()).toMatchObject({ code: 'needs_reauth', retryable: false, execution: 'not_executed' });
  });

  test.each([
    ['401', 401, {}],
    ['403 because of missing rights', 403, { 'www-authenticate': 'Bearer error="insufficient_scope", scope="write"' }],
  ])(
    'a %s with a JSON-RPC error under the id of the request is a refusal, not an answer',
    async (_name, status, headers) => {
      const { channel, heard } = await connect((got, response) =>
        json(response, rpcError(got.id, -32_001), status, headers),
      );
      channel.adopt(MODERN);
      const frame = request('tools/call');
      channel.send(frame);
      expect(await heard.settled(frame)).toBeInstanceOf(TokenRefused);
      expect(heard.messages).toEqual([]);
    },
  );

  test('any other 403 does not concern the token', async () => {
    const { channel, heard } = await connect((_got, response) => response.writeHead(403).end());
    const frame = request('tools/call');
    channel.send(frame);
    expect(await heard.settled(frame)).toMatchObject({ code: 'protocol_error' });
  });

  test('after a refusal for its token the standalone stream is opened again with the next token', async () => {
    const { channel, heard, tokens, server } = await connect((got, response) => {
      if (got.method === 'GET') {
        if (got.headers.authorization === 'Bearer first-token') return response.writeHead(401).end();
        return events(response).write('data: {"jsonrpc":"2.0","method":"notifications/message"}\n\n');
      }
      return json(response, result(got.id), 200, { 'mcp-session-id': 's1' });
    });
    const call = async () => {
      const frame = request('tools/list');
      channel.send(frame);
      await heard.settled(frame);
    };
    const gets = () => server.received.filter(({ method }) => method === 'GET').length;
    const opening = request('initialize');
    channel.send(opening);
    await heard.settled(opening);
    channel.adopt(LEGACY);
    channel.openServerStream();
    await server.until(() => gets() === 1);
    for (let i = 0; i < 20; i++) await call();
    expect(gets()).toBe(1);
    tokens.token = two;
    while (!heard.messages.some(({ kind }) => kind === 'notification')) await call();
    for (let i = 0; i < 20; i++) await call();
    expect(gets()).toBe(2);
  });
});

describe('HTTP+SSE', () => {
  const deps = () => ({ clock: new FakeClock(), random: seededRandom(1) });

  test('its stream and its messages have the current token, and the error of a refused message names that token', async () => {
    const server = await startServer((got, response) => {
      if (got.method === 'GET') return events(response).write('event: endpoint\ndata: /messages\n\n');
      return response.writeHead(got.headers.authorization === 'Bearer first-token' ? 202 : 401).end();
    });
    open.push(server);
    const tokens = new FakeAuthProvider(one);
    const channel = await openHttpSse({ server: 'fake', url: server.url, tokens }, deps());
    open.push(channel);
    const heard = new RecordingListener();
    channel.start(heard);
    channel.send(request('tools/list'));
    await server.until(() => server.received.length === 2);
    tokens.token = two;
    const frame = request('tools/list');
    channel.send(frame);
    const refused = await heard.settled(frame);
    expect(refused).toBeInstanceOf(TokenRefused);
    expect((refused as TokenRefused).sentHash).toBe(tokenHash(two));
    const values = ['Bearer first-token', 'Bearer first-token', 'Bearer second-token'];
    expect(server.received.map(({ headers }) => headers.authorization)).toEqual(values);
  });

  test('the error of a refused stream names the token too', async () => {
    const server = await startServer((_got, response) => response.writeHead(401).end());
    open.push(server);
    const spec = { server: 'fake', url: server.url, tokens: new FakeAuthProvider(one) };
    const refused: unknown = await openHttpSse(spec, deps()).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(TokenRefused);
    expect((refused as TokenRefused).sentHash).toBe(tokenHash(one));
    await until(() => server.received.length === 1);
  });
});
