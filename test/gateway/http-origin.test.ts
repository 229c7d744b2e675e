/**
 * X1: DNS rebinding and other sites. Every cell of Host × Origin over real HTTP, checked by a rule that shares no code with the
 * guard: a list of what is allowed, written out.
 */
import { describe, expect, test } from 'vitest';
import type { Route } from '../../src/gateway/http/routes.js';
import { META, modernHeaders, raw, rpc, send, start, statusOf } from './http-harness.js';

const ok = () => ({ status: 200, contentType: 'text/plain', body: 'ok' });
const open: Route = { isPublic: true, answer: ok };
const keyed = (checksHost: boolean): Route => ({
  isPublic: false,
  checksHost,
  mayRead: ({ role }) => role === undefined,
  answer: ok,
});

const port = 'PORT';

/** Host header → whether it names this gateway, and by which name. `undefined`: no header. */
const hosts: ReadonlyArray<readonly [header: string | undefined, name: 'loopback' | 'gw' | 'pinned' | undefined]> = [
  ['localhost', 'loopback'],
  [`localhost:${port}`, 'loopback'],
  ['LocalHost:1', 'loopback'],
  ['127.0.0.1', 'loopback'],
  [`127.0.0.1:${port}`, 'loopback'],
  [`[::1]:${port}`, 'loopback'],
  ['[::1]', 'loopback'],
  ['gw.example', 'gw'],
  ['GW.example:8443', 'gw'],
  ['pinned.example:9000', 'pinned'],
  ['pinned.example', undefined],
  ['pinned.example:9001', undefined],
  [undefined, undefined],
  ['', undefined],
  ['evil.example', undefined],
  [`evil.example:${port}`, undefined],
  ['localhost.', undefined],
  [`localhost.:${port}`, undefined],
  ['localhost.evil.example', undefined],
  ['evil-localhost', undefined],
  ['127.0.0.1.evil.example', undefined],
  ['127.0.0.1.nip.io', undefined],
  ['user@localhost', undefined],
  ['localhost@evil.example', undefined],
  ['localhost:', undefined],
  ['localhost:99999', undefined],
  ['localhost:80:80', undefined],
  ['localhost:8o', undefined],
  ['localhost/', undefined],
  ['localhost, localhost', undefined],
  ['[::ffff:127.0.0.1]', undefined],
  ['[0:0:0:0:0:0:0:1]', undefined],
  ['::1', undefined],
  ['127.1', undefined],
  ['2130706433', undefined],
  ['0.0.0.0', undefined],
  ['http://localhost', undefined],
  ['gw.example.evil.example', undefined],
];

/** Origin header → the Host of the same origin; `any` for a listed origin, `none` for an origin that is never allowed. */
const origins: ReadonlyArray<
  readonly [header: string | undefined, home: 'any' | 'loopback' | 'gw' | 'pinned' | 'none']
> = [
  [undefined, 'any'],
  ['https://page.example', 'any'],
  ['HTTPS://Page.Example', 'any'],
  [`http://localhost:${port}`, 'loopback'],
  ['http://127.0.0.1:5173', 'loopback'],
  ['http://[::1]', 'loopback'],
  ['https://gw.example', 'gw'],
  ['https://pinned.example:9000', 'pinned'],
  ['https://pinned.example', 'none'],
  ['null', 'none'],
  ['', 'none'],
  ['https://evil.example', 'none'],
  [`http://evil.example:${port}`, 'none'],
  ['http://localhost.', 'none'],
  ['http://localhost.evil.example', 'none'],
  ['http://localhost@evil.example', 'none'],
  ['http://user@localhost', 'none'],
  ['file://', 'none'],
  ['chrome-extension://abcdef', 'none'],
  ['ftp://localhost', 'none'],
  ['localhost', 'none'],
  ['http://localhost/path', 'none'],
  ['http://localhost, http://localhost', 'none'],
  ['https://page.example:444', 'none'],
  ['http://page.example', 'none'],
];

const listen = {
  host: '127.0.0.1',
  port: 0,
  hosts: ['gw.example', 'pinned.example:9000'],
  origins: ['https://page.example'],
};
const body = rpc(1, 'tools/call', { name: 'x', _meta: META });

function request(
  at: number,
  path: string,
  method: string,
  host: string | undefined,
  origin: string | undefined,
): string {
  const lines = [
    `${method} ${path} HTTP/1.1`,
    ...(host === undefined ? [] : [`Host: ${host.replace(port, String(at))}`]),
    ...(origin === undefined ? [] : [`Origin: ${origin.replace(port, String(at))}`]),
    ...Object.entries(modernHeaders('tools/call', { name: 'x' })).map(([name, value]) => `${name}: ${value}`),
    ...['Authorization: Bearer key-of-ann', 'Content-Type: application/json', 'Connection: close'],
  ];
  return `${lines.join('\r\n')}\r\nContent-Length: ${method === 'POST' ? body.length : 0}\r\n\r\n${method === 'POST' ? body : ''}`;
}

describe('X1 Host × Origin', () => {
  test(`${hosts.length * origins.length} cells: right verdict, and nothing refused reaches the router`, async () => {
    const { router, port: at } = await start({ listen });
    let allowed = 0;
    const wrong: unknown[] = [];
    for (const [host, name] of hosts) {
      for (const [origin, home] of origins) {
        const isAllowed = name !== undefined && (home === 'any' || home === name);
        const before = router.reached;
        const status = statusOf(await raw(at, request(at, '/mcp', 'POST', host, origin)));
        const reached = router.reached - before;
        if (isAllowed) allowed++;
        if (status !== (isAllowed ? 200 : 403) || reached !== (isAllowed ? 1 : 0))
          wrong.push({ host, origin, isAllowed, status, reached });
      }
    }
    expect(wrong).toEqual([]);
    expect([hosts.length * origins.length >= 200, allowed, router.reached]).toEqual([true, 54, 54]);
  });

  test('X1 is checked first on every path and method, with and without a key', async () => {
    const { router, port: at } = await start({ listen, routes: new Map([['/guarded', keyed(true)]]) });
    for (const path of ['/mcp', '/mcp/alpha', '/mcp/@group', '/guarded', '/none', '*', 'http://localhost/mcp']) {
      for (const method of ['POST', 'GET', 'DELETE', 'HEAD', 'OPTIONS', 'PUT']) {
        for (const [host, origin] of [
          ['evil.example', undefined],
          ['localhost', 'https://evil.example'],
          ['localhost', 'null'],
        ]) {
          const text = await raw(at, request(at, path, method, host, origin));
          expect([path, method, statusOf(text)]).toEqual([path, method, 403]);
          expect(text).not.toContain('evil');
        }
      }
    }
    expect(router.reached).toBe(0);
  });

  test('X1 two Host lines count as none', async () => {
    const { router, port: at } = await start();
    for (const hostLines of [
      'localhost\r\nHost: localhost',
      'localhost\r\nHost: evil.example',
      'evil.example\r\nhost: localhost',
    ])
      expect(statusOf(await raw(at, request(at, '/mcp', 'POST', hostLines, undefined)))).toBe(403);
    expect(router.reached).toBe(0);
  });
});

describe('the guards after it', () => {
  const post = { body, headers: modernHeaders('tools/call', { name: 'x' }) };
  test.each([
    ['an unknown path', { ...post, path: '/' }, 404],
    ['a path below a server', { ...post, path: '/mcp/alpha/x' }, 404],
    ['no key', { ...post, key: undefined }, 401],
    ['a wrong key', { ...post, key: 'Bearer nobody' }, 401],
    ['a wrong key at an unknown server', { ...post, path: '/mcp/unknown', key: 'Bearer nobody' }, 401],
    ['an unknown server', { ...post, path: '/mcp/unknown' }, 404],
    ['a method', { method: 'PUT' }, 405],
    ['OPTIONS, as in a preflight of a browser', { method: 'OPTIONS' }, 405],
    ['a form', { ...post, headers: { ...post.headers, 'content-type': 'text/plain' } }, 415],
    ['JSON and more', { ...post, headers: { ...post.headers, 'content-type': 'application/json-seq' } }, 415],
    ['an Accept without streams', { ...post, headers: { ...post.headers, accept: 'application/json' } }, 406],
    ['an Accept without JSON', { ...post, headers: { ...post.headers, accept: 'text/event-stream' } }, 406],
  ])('%s: refused', async (_name, sending, status) => {
    const { router, port: at } = await start();
    const reply = await send(at, sending);
    expect([reply.status, router.reached]).toEqual([status, 0]);
    expect(reply.json()).toEqual({ jsonrpc: '2.0', error: { code: expect.any(Number), message: expect.any(String) } });
    expect(reply.headers['www-authenticate']).toBe(status === 401 ? 'Bearer' : undefined);
    expect(reply.text).not.toContain('nobody');
    expect(Object.keys(reply.headers).some((name) => name.startsWith('access-control'))).toBe(false);
  });

  test.each(['*/*', 'application/json, text/event-stream', 'text/*;q=0.5, application/*', undefined])(
    'Accept %s passes',
    async (accept) => {
      const { port: at } = await start();
      const text = await raw(
        at,
        request(at, '/mcp', 'POST', 'localhost', undefined).replace(
          'Connection: close',
          accept === undefined ? 'Connection: close' : `Connection: close\r\nAccept: ${accept}`,
        ),
      );
      expect(statusOf(text)).toBe(200);
    },
  );

  test('a charset and a query do not matter', async () => {
    const { port: at } = await start();
    const headers = { ...post.headers, 'content-type': 'Application/JSON; charset=utf-8' };
    expect((await send(at, { ...post, headers, path: '/mcp?x=/../y' })).status).toBe(200);
  });

  test('routes are read-only, and public or protected by the key as declared', async () => {
    const routes = new Map<string, Route>([
      ['/healthz', open],
      ['/metrics', keyed(false)],
      ['/broken', { isPublic: true, answer: () => Promise.reject(new Error('planted')) }],
    ]);
    const { port: at, problems } = await start({ routes });
    const shown = await send(at, { method: 'GET', path: '/healthz?x', key: undefined });
    expect([shown.status, shown.text, shown.headers['content-type']]).toEqual([200, 'ok', 'text/plain']);
    expect((await send(at, { method: 'HEAD', path: '/healthz', key: undefined })).text).toBe('');
    expect((await send(at, { method: 'GET', path: '/metrics', key: undefined })).status).toBe(401);
    expect((await send(at, { method: 'GET', path: '/metrics' })).status).toBe(200);
    const restricted = await send(at, { method: 'GET', path: '/metrics', key: 'Bearer key-of-cyd' });
    expect([restricted.status, restricted.text]).toEqual([403, expect.stringContaining('a key that has no role')]);
    expect((await send(at, { method: 'POST', path: '/healthz', body: '{}' })).status).toBe(405);
    expect((await send(at, { method: 'GET', path: '/broken' })).status).toBe(500);
    expect(problems).toHaveLength(1);
  });

  test('E14 probes reach public pages by any Host, and by GET and HEAD only', async () => {
    const { router, port: at } = await start({ routes: new Map<string, Route>([['/healthz', open]]) });
    for (const host of ['10.0.3.7:8383', 'pod.cluster.local', 'localhost', '', 'a, b']) {
      const status = async (method: string) =>
        statusOf(await raw(at, request(at, '/healthz', method, host, undefined).replace(/Authorization: .*\r\n/, '')));
      expect([host, await status('GET'), await status('HEAD'), await status('POST'), await status('DELETE')]).toEqual([
        ...[host, 200, 200, 405, 405],
      ]);
    }
    expect(statusOf(await raw(at, 'GET /healthz HTTP/1.0\r\n\r\n'))).toBe(200);
    expect(router.reached).toBe(0);
  });

  test('E14 a page behind the key accepts any Host; a web page of another origin is refused', async () => {
    const origins = ['https://app.example'];
    const routes = new Map<string, Route>([
      ['/metrics', keyed(false)],
      ['/guarded', keyed(true)],
    ]);
    const { port: at } = await start({ routes, listen: { host: '127.0.0.1', port: 0, origins } });
    const status = async (path: string, host: string, origin?: string) =>
      statusOf(await raw(at, request(at, path, 'GET', host, origin)));
    expect(await status('/metrics', '10.0.3.7:8383')).toBe(200);
    expect(await status('/metrics', 'rebound.example', 'http://rebound.example')).toBe(403);
    expect(await status('/metrics', 'localhost', 'https://evil.example')).toBe(403);
    expect(await status('/metrics', '10.0.3.7:8383', 'null')).toBe(403);
    expect(await status('/metrics', '10.0.3.7:8383', origins[0])).toBe(200);
    // Without keys, only the check of Host refuses a rebound name.
    expect([await status('/guarded', 'rebound.example'), await status('/guarded', 'localhost')]).toEqual([403, 200]);
    const keyless = request(at, '/metrics', 'GET', '10.0.3.7', undefined).replace(/Authorization: .*\r\n/, '');
    expect(statusOf(await raw(at, keyless))).toBe(401);
  });

  test('a client that expects 100-continue is answered by the guards', async () => {
    const { router, port: at } = await start();
    const ask = (authorization: string) =>
      request(at, '/mcp', 'POST', 'localhost', undefined)
        .replace('Bearer key-of-ann', authorization)
        .replace('Connection: close', 'Connection: close\r\nExpect: 100-continue');
    expect(statusOf(await raw(at, ask('Bearer nobody')))).toBe(401);
    const taken = await raw(at, ask('Bearer key-of-ann'), true);
    expect(taken).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK/);
    expect(router.reached).toBe(1);
  });
});
