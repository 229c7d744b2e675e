/**
 * Pages of listed origins, as browsers treat them: they send a preflight and may read answers. All others get no CORS headers (X1
 * still holds).
 */
import { expect, test } from 'vitest';
import { META, modernHeaders, rpc, send, start } from './http-harness.js';

const page = 'https://page.example';
const listen = { host: '127.0.0.1', port: 0, origins: [page] };
const asks = (origin: string, more: Record<string, string> = {}) => ({
  ...{ method: 'OPTIONS', key: undefined },
  headers: { origin, 'access-control-request-method': 'POST', ...more },
});
const body = rpc(1, 'tools/list', { _meta: META });
const allowHeaders = (headers: object) => Object.keys(headers).filter((name) => name.startsWith('access-control'));

test('a listed page gets the allowed methods and headers, without a key', async () => {
  const { port, router } = await start({ listen });
  const { status, headers, text } = await send(
    port,
    asks(page, { 'access-control-request-headers': 'authorization, mcp-param-Region,x-other' }),
  );
  expect([status, text]).toEqual([204, '']);
  expect(headers).toMatchObject({
    'access-control-allow-origin': page,
    'access-control-allow-methods': 'POST, GET, DELETE',
    vary: 'Origin',
  });
  const allowed = String(headers['access-control-allow-headers']).toLowerCase().split(', ');
  const needed = ['authorization', 'content-type', 'mcp-session-id', 'mcp-protocol-version', 'mcp-method', 'mcp-name'];
  expect(allowed).toEqual(expect.arrayContaining([...needed, 'last-event-id', 'mcp-param-region']));
  expect(allowed).not.toContain('x-other');
  expect(router.reached).toBe(0);
});

test.each([
  ['an answer', 'Bearer key-of-ann', 200],
  ['a refusal', 'Bearer nobody', 401],
])('%s can be read by it', async (_what, key, expected) => {
  const { port } = await start({ listen });
  const { status, headers } = await send(port, {
    key,
    body,
    headers: { ...modernHeaders('tools/list'), origin: page },
  });
  expect(status).toBe(expected);
  expect(headers).toMatchObject({ 'access-control-allow-origin': page, vary: 'Origin' });
  expect(headers['access-control-expose-headers']).toContain('Mcp-Session-Id');
  expect(headers['content-type']).toBe('application/json');
});

test('other origins are refused or served as before, without CORS headers', async () => {
  const { port } = await start({ listen });
  const evil = await send(port, asks('https://evil.example'));
  expect([evil.status, allowHeaders(evil.headers)]).toEqual([403, []]);
  expect(evil.text).toContain('listen.allowedHosts or listen.allowedOrigins');
  const own = await send(port, asks(`http://127.0.0.1:${port}`));
  expect([own.status, allowHeaders(own.headers)]).toEqual([401, []]);
  const rebound = await send(port, { ...asks(page), headers: { ...asks(page).headers, host: 'evil.example' } });
  expect([rebound.status, allowHeaders(rebound.headers)]).toEqual([403, []]);
  const plain = await send(port, { body, headers: modernHeaders('tools/list') });
  expect([plain.status, allowHeaders(plain.headers)]).toEqual([200, []]);
});

test('changes of the allowed origins take effect at once', async () => {
  const { port, ingress } = await start({ listen });
  ingress.allow({ hosts: ['gw.example'], origins: ['https://other.example'] });
  expect((await send(port, asks(page))).status).toBe(403);
  expect((await send(port, asks('https://other.example'))).status).toBe(204);
  const named = { body, headers: { ...modernHeaders('tools/list'), host: 'gw.example' } };
  expect((await send(port, named)).status).toBe(200);
});

test('answers are counted by their status, and of streams only listen streams', async () => {
  const { port, ingress, router } = await start({ listen });
  router.answers.set('subscriptions/listen', () => {});
  router.answers.set('slow', () => {});
  await send(port, { body, headers: modernHeaders('tools/list') });
  await send(port, { body, key: undefined });
  await send(port, asks(page));
  void send(port, { body: rpc(1, 'slow', { _meta: META }), headers: modernHeaders('slow') }).catch(() => {});
  const listening = modernHeaders('subscriptions/listen');
  void send(port, { body: rpc(1, 'subscriptions/listen', { _meta: META }), headers: listening }).catch(() => {});
  await router.until(() => router.handled.length === 3);
  expect(ingress.figures()).toEqual({ clients: { legacy: 0, modern: 1 }, httpAnswers: { 2: 2, 4: 1 } });
});

test('before the gateway is ready, a client with a key is asked to retry', async () => {
  const { port, router, ingress } = await start({ opensLater: true });
  const early = await send(port, { body, headers: modernHeaders('tools/list') });
  expect([early.status, early.headers['retry-after'], router.reached]).toEqual([503, '1', 0]);
  expect((await send(port, { body, key: undefined })).status).toBe(401);
  ingress.opened();
  expect((await send(port, { body, headers: modernHeaders('tools/list') })).status).toBe(200);
});
