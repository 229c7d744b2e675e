/** Upstream HTTP through a real proxy: absolute requests for http, a tunnel for https, and authorities of SSL_CERT_FILE. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { createServer as createTlsServer } from 'node:tls';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { parseServerSpec } from '../../src/config/server-spec.js';
import { createRedactor } from '../../src/kernel/redact.js';
import { Connector } from '../../src/session/connector.js';
import { httpFixtures, type RunningFixture } from '../fixtures/fixture-servers.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-proxy-'));
const [cert, key] = [path.join(folder, 'cert.pem'), path.join(folder, 'key.pem')];
const basic = `Basic ${Buffer.from('user:pass word').toString('base64')}`;

let upstream: RunningFixture;
let upstreamPort: number;
let secure: ReturnType<typeof createTlsServer>;
let proxy: Server;
/** Method, target and authorization of each request at the proxy. */
let seen: (readonly [string | undefined, string | undefined, string | undefined])[] = [];

const portOf = (server: { address(): unknown }): number => (server.address() as AddressInfo).port;
const listening = (server: { listen(port: number, host: string, done: () => void): unknown }) =>
  new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));

beforeAll(async () => {
  execFileSync(
    'openssl',
    [
      ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'],
      ...['-subj', '/CN=upstream.test', '-addext', 'subjectAltName=DNS:upstream.test', '-keyout', key, '-out', cert],
    ],
    { stdio: 'ignore' },
  );
  upstream = await (
    httpFixtures.find(({ name }) => name === 'sdk2-http-both') as (typeof httpFixtures)[number]
  ).start();
  upstreamPort = Number(new URL(upstream.url).port);
  // The fixture checks the Host header, so it gets its own host.
  const host = `127.0.0.1:${upstreamPort}`;
  const forward = (message: IncomingMessage, target: string, answer: ServerResponse): void => {
    const headers = { ...message.headers, host };
    const out = request(
      { port: upstreamPort, host: '127.0.0.1', method: message.method, path: target, headers },
      (response) => {
        answer.writeHead(response.statusCode ?? 0, response.headers);
        response.pipe(answer);
      },
    );
    message.pipe(out);
  };
  const relay = createServer((message, answer) => forward(message, message.url ?? '/', answer));
  secure = createTlsServer({ cert: readFileSync(cert), key: readFileSync(key) }, (socket) =>
    relay.emit('connection', socket),
  );
  await listening(secure);
  proxy = createServer((message, answer) => {
    seen.push([message.method, message.url, message.headers['proxy-authorization']]);
    delete message.headers['proxy-authorization'];
    const { pathname, search } = new URL(message.url ?? '');
    forward(message, pathname + search, answer);
  });
  proxy.on('connect', (message, socket) => {
    seen.push([message.method, message.url, message.headers['proxy-authorization']]);
    if (message.headers['proxy-authorization'] !== basic) return socket.end('HTTP/1.1 407 no\r\n\r\n');
    const out = connect(portOf(secure), '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 ok\r\n\r\n');
      out.pipe(socket).pipe(out);
    });
    out.on('error', () => socket.destroy());
    socket.on('error', () => out.destroy());
  });
  await listening(proxy);
});
afterAll(async () => {
  proxy?.closeAllConnections();
  proxy?.close();
  secure?.close();
  await upstream?.stop();
  rmSync(folder, { recursive: true, force: true });
});
beforeEach(() => {
  seen = [];
});

async function toolsAt(url: string, env: Record<string, string>): Promise<number> {
  const redactor = createRedactor();
  const connector = new Connector({ client: { name: 'x', version: '1', capabilities: {} }, ambient: env, redactor });
  try {
    const session = await connector.connect(parseServerSpec({ name: 'a', url, transport: 'streamable-http' }));
    expect(redactor.mask('pass word')).toBe('[REDACTED]');
    const deadlineAtMs = connector.clock.nowMs() + 30_000;
    return (await session.list('tools/list', { deadlineAtMs })).items.length;
  } finally {
    await connector.close();
  }
}

describe('a server behind a proxy', () => {
  const address = (userInfo = 'user:pass%20word@') => `http://${userInfo}127.0.0.1:${portOf(proxy)}`;

  test('http: requests for absolute URLs, with the authorization of the proxy', async () => {
    expect(await toolsAt('http://upstream.test/mcp', { HTTP_PROXY: address() })).toBeGreaterThan(0);
    expect(seen.length).toBeGreaterThan(0);
    expect(new Set(seen.map(([, url, authorization]) => `${url} ${authorization}`))).toEqual(
      new Set([`http://upstream.test/mcp ${basic}`]),
    );
  });

  test('https: one tunnel per connection, and SSL_CERT_FILE is trusted', async () => {
    const env = { HTTPS_PROXY: address(), SSL_CERT_FILE: cert };
    expect(await toolsAt('https://upstream.test/mcp', env)).toBeGreaterThan(0);
    expect(new Set(seen.map((each) => each.join(' ')))).toEqual(new Set([`CONNECT upstream.test:443 ${basic}`]));
  });

  test('without SSL_CERT_FILE the certificate is refused', async () => {
    await expect(toolsAt('https://upstream.test/mcp', { HTTPS_PROXY: address() })).rejects.toMatchObject({
      code: 'connect_failed',
      details: { reason: 'DEPTH_ZERO_SELF_SIGNED_CERT' },
    });
  });

  test('a proxy that refuses is named, with a hint', async () => {
    await expect(toolsAt('https://upstream.test/mcp', { HTTPS_PROXY: address('') })).rejects.toMatchObject({
      code: 'connect_failed',
      details: { reason: 'proxy', httpStatus: 407 },
      hint: 'put user name and password into the address of the proxy',
    });
  });

  test('NO_PROXY and loopback go directly', async () => {
    expect(await toolsAt(upstream.url, { HTTP_PROXY: address() })).toBeGreaterThan(0);
    await expect(
      toolsAt('http://upstream.test:1/mcp', { HTTP_PROXY: address(), NO_PROXY: '.test' }),
    ).rejects.toMatchObject({ code: 'connect_failed' });
    expect(seen).toEqual([]);
  });
});
