import { type AddressInfo, createServer, type Server } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { seededRandom } from '../../src/kernel/random.js';
import type { TokenSource } from '../../src/transports/http/auth-token.js';
import { openStreamableHttp } from '../../src/transports/http/streamable-http-channel.js';
import { legacyEra } from '../fakes/eras.js';
import { RecordingListener, request } from '../fakes/http-listener.js';
import { type Answer, json, result, startServer } from '../fakes/http-server.js';

const open: Array<{ close(): unknown }> = [];
afterEach(async () => {
  for (const thing of open.splice(0).reverse()) await thing.close();
});

async function connect(answer: Answer, tokens?: TokenSource) {
  const server = await startServer(answer);
  const deps = { clock: new FakeClock(), random: seededRandom(1) };
  const headers = { authorization: 'Bearer s' };
  const channel = openStreamableHttp({ server: 'fake', url: server.url, headers, tokens }, deps);
  const heard = new RecordingListener();
  channel.start(heard);
  open.push(server, channel);
  return { server, channel, heard };
}

async function otherOrigin(): Promise<{ url: string; connections: () => number; server: Server }> {
  let connections = 0;
  const server = createServer((socket) => {
    connections++;
    socket.destroy();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  open.push({ close: () => new Promise((resolve) => server.close(resolve)) });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, connections: () => connections, server };
}

test.each([307, 308])('%s within the origin is followed with the same body', async (status) => {
  const { server, channel, heard } = await connect((got, response) => {
    if (got.path === '/mcp') response.writeHead(status, { location: '/mcp/' }).end('moved');
    else json(response, result(got.id));
  });
  const frame = request('tools/call', { a: 1 });
  channel.send(frame);
  await heard.settled(frame);
  expect(heard.failures).toEqual([]);
  expect(server.received.map((entry) => entry.path)).toEqual(['/mcp', '/mcp/']);
  expect(server.received[1]?.body).toBe(server.received[0]?.body);
});

test.each([300, 301, 302, 303, 307, 308])(
  '%s to another origin ends the call; nothing is sent there',
  async (status) => {
    const other = await otherOrigin();
    const { channel, heard } = await connect((_got, response) =>
      response.writeHead(status, { location: `${other.url}steal` }).end(),
    );
    const frame = request('tools/call', { secret: 1 });
    channel.send(frame);
    expect(await heard.settled(frame)).toMatchObject({
      code: 'protocol_error',
      hint: expect.stringContaining('URL'),
      details: { httpStatus: status, execution: 'uncertain' },
    });
    expect(other.connections()).toBe(0);
  },
);

test.each([301, 302, 303])(
  '%s within the origin is not followed, since it would turn the call into a GET',
  async (status) => {
    const { server, channel, heard } = await connect((_got, response) =>
      response.writeHead(status, { location: '/elsewhere' }).end(),
    );
    const frame = request('tools/call');
    channel.send(frame);
    expect(await heard.settled(frame)).toMatchObject({ code: 'protocol_error', details: { reason: 'redirect' } });
    expect(server.received).toHaveLength(1);
  },
);

test.each([
  ['userinfo', (base: string) => base.replace('http://', 'http://user@')],
  ['another scheme', (base: string) => base.replace('http:', 'https:')],
  ['another port', (base: string) => base.replace(/:\d+/, ':1')],
  ['another host', (base: string) => base.replace('127.0.0.1', 'localhost')],
  ['nowhere', () => 'http://['],
])('a redirect to %s is not followed', async (_name, move) => {
  const { server, channel, heard } = await connect((_got, response) =>
    response.writeHead(307, { location: move(server.url) }).end(),
  );
  const frame = request('tools/call');
  channel.send(frame);
  expect(await heard.settled(frame)).toMatchObject({ code: 'protocol_error' });
  expect(server.received).toHaveLength(1);
});

test('redirects in circles end after three', async () => {
  const { server, channel, heard } = await connect((got, response) =>
    response.writeHead(307, { location: `${got.path}x` }).end(),
  );
  const frame = request('tools/call');
  channel.send(frame);
  expect(await heard.settled(frame)).toMatchObject({ details: { reason: 'redirect_loop', execution: 'uncertain' } });
  expect(server.received).toHaveLength(4);
});

test.each([301, 302, 307, 308])('the GET stream follows %s within the origin', async (status) => {
  const { server, channel, heard } = await connect((got, response) => {
    if (got.path === '/mcp') response.writeHead(status, { location: '/stream' }).end();
    else {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write('data: {"jsonrpc":"2.0","method":"notifications/x"}\n\n');
    }
  });
  channel.adopt({ era: legacyEra, version: '2025-11-25' });
  channel.openServerStream();
  await heard.until(() => heard.messages.length === 1);
  expect(server.received.map((entry) => [entry.method, entry.path])).toEqual([
    ['GET', '/mcp'],
    ['GET', '/stream'],
  ]);
});

describe('AC-A25 the token of a login', () => {
  const tokens = { current: () => ({ header: ['authorization', 'Bearer of-a-login'], grant: 'login-1' }) as const };

  test('is sent again if the server only adds a slash, as many frameworks do', async () => {
    const { server, channel, heard } = await connect((got, response) => {
      if (got.path === '/mcp') response.writeHead(307, { location: '/mcp/' }).end();
      else json(response, result(got.id));
    }, tokens);
    const frame = request('tools/call');
    channel.send(frame);
    await heard.settled(frame);
    expect([heard.failures, server.received.map(({ path }) => path)]).toEqual([[], ['/mcp', '/mcp/']]);
    expect(server.received[1]?.headers.authorization).toBe('Bearer of-a-login');
  });

  test.each(['/other', '/mcp/deeper', '/', '/MCP', '/mcp?x=1', '/mcp//', '/%6dcp'])(
    'is sent to no other address of the same origin: %s',
    async (location) => {
      const { server, channel, heard } = await connect(
        (_got, response) => response.writeHead(307, { location }).end(),
        tokens,
      );
      const frame = request('tools/call');
      channel.send(frame);
      expect(await heard.settled(frame)).toMatchObject({
        code: 'protocol_error',
        details: { reason: 'redirect_login', execution: 'uncertain' },
        hint: 'write the final URL of the server in its configuration, then log in again',
      });
      expect(server.received).toHaveLength(1);
    },
  );
});
