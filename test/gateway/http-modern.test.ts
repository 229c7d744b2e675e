/** The modern era over real HTTP: shapes of answers, streams, cancellation, statuses, the end. */
import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import type { Exchange } from '../../src/gateway/exchange.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { eventually } from '../eventually.js';
import {
  eventsIn,
  listen,
  META,
  modern,
  modernHeaders,
  notice,
  openSession,
  rpc,
  send,
  start,
} from './http-harness.js';

const call = { name: 'echo', arguments: { big: 1 } };

test('an answer is one JSON text with its length, joined from its parts, under the id to the letter', async () => {
  const { router, port } = await start();
  router.answers.set('tools/call', (exchange) => exchange.succeed('{"content":', Buffer.from('[]'), '}'));
  for (const id of [7, '7', 'ü"\\', 0, -1]) {
    const reply = await modern(port, 'tools/call', call, {}, id);
    expect(reply.status).toBe(200);
    expect(reply.headers['content-type']).toBe('application/json');
    expect(reply.headers['content-length']).toBe(String(Buffer.byteLength(reply.text)));
    expect(reply.text).toBe(`{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":{"content":[]}}`);
  }
  const wide = await send(port, {
    body: `{"jsonrpc":"2.0","id":12345678901234567890,"method":"a","params":{"_meta":${JSON.stringify(META)}}}`,
    headers: modernHeaders('a'),
  });
  expect(wide.text).toContain('"id":12345678901234567890,');
});

test('the router gets the members of its interface, and params byte for byte', async () => {
  const { router, port } = await start();
  await send(port, {
    path: '/mcp/alpha',
    body: `{"jsonrpc":"2.0","id":1,"method":"x","params":{ "n": 1.0e2,"_meta":${JSON.stringify(META)}}}`,
    headers: modernHeaders('x', {}, { cookie: 'c=1', 'mcp-session-id': 'ignored', 'last-event-id': '1-1' }),
  });
  const [exchange] = router.handled as [Exchange];
  expect(exchange.params?.toString()).toBe(`{ "n": 1.0e2,"_meta":${JSON.stringify(META)}}`);
  expect(exchange.client).toMatchObject({
    ...{ id: 'ann', era: 'modern', version: '2026-07-28', endpoint: { kind: 'server', server: 'alpha' } },
    principal: { id: 'ann' },
  });
  expect(exchange.client.capabilities).toMatchObject({ elicitation: false, sampling: false, roots: false });
  expect(exchange.ask).toBeUndefined();
});

test('no other header of a request is forwarded, whatever its content', async () => {
  const { router, port } = await start({ authenticate: () => ({ id: 'ann', role: undefined, scopes: [] }) });
  const canary = 'canary-4711';
  await send(port, {
    body: rpc(1, 'tools/call', { ...call, _meta: META }),
    key: `Bearer ${canary}`,
    headers: modernHeaders('tools/call', call, {
      ...{ cookie: canary, 'x-forwarded-for': canary, 'proxy-authorization': canary, 'mcp-session-id': canary },
      ...{ 'mcp-param-other': canary, 'user-agent': canary, referer: canary },
    }),
  });
  const [exchange] = router.handled as [Exchange];
  const seen = inspect([exchange, exchange.client, exchange.client.capabilities], {
    depth: 9,
    showHidden: true,
    getters: true,
  });
  expect([seen.includes('tools/call'), seen.includes(canary)]).toEqual([true, false]);
});

test('large answers arrive whole', async () => {
  const { router, port } = await start();
  const big = JSON.stringify('x'.repeat(6 * 1024 * 1024));
  router.answers.set('tools/call', (exchange) => exchange.succeed('{"a":', Buffer.from(big), '}'));
  const reply = await modern(port, 'tools/call', call);
  expect(reply.text).toBe(`{"jsonrpc":"2.0","id":1,"result":{"a":${big}}}`);
});

test('after a notification before the answer, the reply is a stream that ends with the answer', async () => {
  const { router, port } = await start();
  router.answers.set('tools/call', (exchange) => {
    exchange.notify('notifications/progress', '{"progress":1}');
    exchange.notify('notifications/progress', Buffer.from('{\n"progress":\r\n2}'));
    exchange.succeed('{"done":', '\n', 'true}');
    exchange.succeed('{"twice":true}');
    exchange.notify('notifications/progress', '{"progress":3}');
  });
  const reply = await modern(port, 'tools/call', call);
  expect(reply.headers).toMatchObject({
    ...{ 'content-type': 'text/event-stream', 'x-accel-buffering': 'no', 'cache-control': 'no-store' },
  });
  expect(eventsIn(reply.text)).toEqual([
    { id: undefined, data: '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}' },
    { id: undefined, data: '{"jsonrpc":"2.0","method":"notifications/progress","params":{ "progress":  2}}' },
    { id: undefined, data: '{"jsonrpc":"2.0","id":1,"result":{"done": true}}' },
  ]);
});

test.each(['json', 'stream'])('closing the response cancels (%s)', async (shape) => {
  const { router, port, ingress } = await start();
  router.answers.set('tools/call', (exchange) => {
    if (shape === 'stream') exchange.notify('notifications/progress', '{}');
  });
  const body = rpc(1, 'tools/call', { ...call, _meta: META });
  const headers = modernHeaders('tools/call', call);
  if (shape === 'stream') {
    const stream = await listen(port, { body, headers });
    await router.until(() => router.handled.length === 1);
    stream.hangUp();
  } else {
    const left = new AbortController();
    const sent = fetch(`http://127.0.0.1:${port}/mcp`, {
      ...{ method: 'POST', body, signal: left.signal },
      headers: { ...headers, 'content-type': 'application/json', authorization: 'Bearer key-of-ann' },
    }).catch(() => undefined);
    await router.until(() => router.handled.length === 1);
    left.abort();
    await sent;
  }
  const [exchange] = router.handled as [Exchange];
  await eventually('the signal aborts', () => exchange.signal.aborted);
  exchange.succeed('{}');
  expect(ingress.counts.exchanges).toBe(0);
});

test('an answered request is not cancelled by the end of its connection', async () => {
  const { router, port } = await start();
  await modern(port, 'tools/call', call);
  expect(router.handled[0]?.signal.aborted).toBe(false);
});

test('a slow request gets a stream before any peer gives up the connection', async () => {
  const clock = new FakeClock();
  const { router, port } = await start({ clock });
  router.answers.set('slow', () => {});
  const asked = listen(port, { body: rpc(1, 'slow', { _meta: META }), headers: modernHeaders('slow') });
  await router.until(() => router.handled.length === 1);
  const quick = send(port, { body: rpc(2, 'slow', { _meta: META }), headers: modernHeaders('slow') });
  await router.until(() => router.handled.length === 2);
  clock.advance(9_999);
  router.handled[1]?.succeed('{}');
  expect((await quick).headers['content-type']).toBe('application/json');
  clock.advance(1_001);
  const stream = await asked;
  expect([stream.status, stream.headers['content-type']]).toEqual([200, 'text/event-stream']);
  await stream.until((text) => text === ':\n\n');
  clock.advance(15_000);
  await stream.until((text) => text === ':\n\n:\n\n');
  router.handled[0]?.fail({ code: -32601, message: 'late' });
  await stream.ended;
  expect(eventsIn(stream.text()).map(({ data }) => JSON.parse(data).error.code)).toEqual([-32601]);
  expect(clock.pendingTimers).toBe(0);
});

test('open streams get a comment now and then, on one timer', async () => {
  const clock = new FakeClock();
  const { router, port } = await start({ clock });
  router.answers.set('subscriptions/listen', (exchange) =>
    exchange.notify('notifications/subscriptions/acknowledged', '{}'),
  );
  const stream = await listen(port, {
    body: rpc(1, 'subscriptions/listen', { _meta: META }),
    headers: modernHeaders('subscriptions/listen'),
  });
  await stream.until((text) => text.includes('acknowledged'));
  // The other timer looks for silent waiting requests, and finds none.
  clock.advance(1_000);
  expect(clock.pendingTimers).toBe(1);
  clock.advance(13_999);
  clock.advance(1);
  await stream.until((text) => text.split(':\n\n').length === 2);
  clock.advance(15_000);
  await stream.until((text) => text.split(':\n\n').length === 3);
  router.handled[0]?.succeed('{}');
  await stream.ended;
  expect(clock.pendingTimers).toBe(0);
});

describe('the HTTP status', () => {
  test.each([
    ['an unknown method', { code: -32601, message: 'm' }, 404],
    ['a capability that is missing', { code: -32021, message: 'm', data: '{"requiredCapabilities":{}}' }, 400],
    ['an error of a server', { code: -32602, message: 'm' }, 200],
    ['an error with its own status', { code: -32602, message: 'm', httpStatus: 400 }, 400],
    ['one of ours', { code: -31015, message: 'm' }, 200],
  ])('%s', async (_name, failure, status) => {
    const { router, port } = await start();
    router.answers.set('a', (exchange) => exchange.fail(failure));
    const reply = await modern(port, 'a');
    expect(reply.status).toBe(status);
    expect(reply.json()).toEqual({
      ...{ jsonrpc: '2.0', id: 1 },
      error: {
        ...{ code: failure.code, message: 'm' },
        ...('data' in failure ? { data: { requiredCapabilities: {} } } : {}),
      },
    });
  });

  test('a router that throws costs its own request only', async () => {
    const { router, port, problems } = await start();
    router.answers.set('a', () => {
      throw new Error('planted');
    });
    expect((await modern(port, 'a')).json().error?.code).toBe(-32603);
    expect(problems).toEqual([expect.objectContaining({ message: 'planted' })]);
    expect((await modern(port, 'b')).status).toBe(200);
  });
});

describe('metadata', () => {
  const version = 'io.modelcontextprotocol/protocolVersion';
  const capabilities = 'io.modelcontextprotocol/clientCapabilities';
  test.each([
    ['no params', undefined],
    ['no _meta', {}],
    ['no version', { _meta: { [capabilities]: {} } }],
    ['no capabilities', { _meta: { [version]: '2026-07-28' } }],
    ['a version that is no text', { _meta: { [version]: 1, [capabilities]: {} } }],
    ['capabilities that are no object', { _meta: { [version]: '2026-07-28', [capabilities]: [] } }],
  ])('%s: -32602 and 400', async (_name, params) => {
    const { router, port } = await start();
    const reply = await send(port, { body: rpc(1, 'a', params), headers: modernHeaders('a') });
    expect([reply.status, reply.json().error?.code, router.reached]).toEqual([400, -32602, 0]);
  });

  test.each(['2099-01-01', '1999-01-01', '2025-11-25'])(
    'version %s: -32022 with the supported versions',
    async (other) => {
      const { router, port } = await start();
      const reply = await send(port, {
        body: rpc(1, 'a', { _meta: { [version]: other, [capabilities]: {} } }),
        headers: modernHeaders('a', {}, { 'mcp-protocol-version': other }),
      });
      expect([reply.status, reply.json().error]).toMatchObject([
        400,
        {
          code: -32022,
          data: {
            supported: ['2026-07-28', '2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'],
            requested: other,
          },
        },
      ]);
      expect(router.reached).toBe(0);
    },
  );
});

describe('messages', () => {
  test('a notification is accepted with 202; notifications/cancelled over HTTP has no effect', async () => {
    const { router, port } = await start();
    const headers = { 'mcp-protocol-version': '2026-07-28' };
    const reply = await send(port, { body: notice('notifications/x', { a: 1 }), headers });
    expect([reply.status, reply.text]).toEqual([202, '']);
    expect((await send(port, { body: notice('notifications/cancelled', { requestId: 1 }), headers })).status).toBe(202);
    expect(router.reached).toBe(0);
    const wrong = await send(port, { body: notice('notifications/x'), headers: { ...headers, 'mcp-method': 'y' } });
    expect([wrong.status, wrong.json().error?.code]).toEqual([400, -32020]);
  });

  test.each([
    ['a batch', `[${rpc(1, 'a', { _meta: META })}]`, -32600],
    ['an answer', '{"jsonrpc":"2.0","id":1,"result":{}}', -32600],
    ['no JSON', '{"jsonrpc":', -32700],
    ['nothing', '', -32700],
    ['bytes that are no UTF-8', Buffer.from('{"jsonrpc":"2.0","id":1,"method":"a\xff"}', 'latin1'), -32700],
    ['an id that is null', '{"jsonrpc":"2.0","id":null,"method":"a"}', -32600],
    ['an id with a fraction', '{"jsonrpc":"2.0","id":1.5,"method":"a"}', -32600],
    ['an id of 2 KiB', rpc('i'.repeat(2_048), 'a'), -32600],
    ['a method of 1 KiB', rpc(1, 'a'.repeat(1_024)), -32600],
    ['a key twice', '{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}', -32600],
    ['a key in another case', '{"jsonrpc":"2.0","id":1,"method":"a","Method":"b"}', -32600],
    [
      'nesting without end',
      `{"jsonrpc":"2.0","id":1,"method":"a","params":${'['.repeat(200)}${']'.repeat(200)}}`,
      -32700,
    ],
  ])('E13 %s is refused with 400, and the error has no id', async (_name, body, code) => {
    const { router, port } = await start();
    const reply = await send(port, { body, headers: modernHeaders('a') });
    expect([reply.status, reply.json().error?.code, router.reached]).toEqual([400, code, 0]);
    expect('id' in reply.json()).toBe(false);
  });

  test.each(['GET', 'DELETE'])('%s is refused in this era', async (method) => {
    const { port } = await start();
    const reply = await send(port, { method, headers: { 'mcp-protocol-version': '2026-07-28' } });
    expect([reply.status, reply.headers.allow]).toEqual([405, 'POST']);
  });

  test('initialize with a modern envelope is refused by the router', async () => {
    const { router, port } = await start();
    router.answers.set('initialize', (exchange) => exchange.fail({ code: -32601, message: 'no' }));
    const reply = await modern(port, 'initialize');
    expect([reply.status, reply.headers['mcp-session-id']]).toEqual([404, undefined]);
    expect(router.handled[0]?.client.era).toBe('modern');
  });

  test('an envelope without the header is modern too, and the missing header is an error', async () => {
    const { port } = await start();
    const reply = await send(port, { body: rpc(1, 'a', { _meta: META }) });
    expect([reply.status, reply.json().error?.code]).toEqual([400, -32020]);
  });
});

describe('the address', () => {
  test('an address in use is an error of listen', async () => {
    const { port } = await start();
    await expect(start({ listen: { host: '127.0.0.1', port } })).rejects.toMatchObject({ code: 'EADDRINUSE' });
  });

  test('when listening at all addresses, the url works on this machine', async () => {
    const { url, port } = await start({ listen: { host: '0.0.0.0', port: 0 } });
    expect([url, (await modern(port, 'a')).status]).toEqual([`http://127.0.0.1:${port}/mcp`, 200]);
  });
});

describe('the end', () => {
  test('the gateway waits for open requests, but not for endless streams', async () => {
    const { router, port, ingress } = await start();
    router.answers.set('subscriptions/listen', (exchange) => {
      exchange.notify('notifications/subscriptions/acknowledged', '{}');
      exchange.signal.addEventListener('abort', () => exchange.succeed('{"resultType":"complete"}'));
    });
    router.answers.set('tools/call', () => {});
    const stream = await listen(port, {
      body: rpc(1, 'subscriptions/listen', { _meta: META }),
      headers: modernHeaders('subscriptions/listen'),
    });
    const waiting = modern(port, 'tools/call', call);
    await router.until(() => router.handled.length === 2);
    const closing = ingress.close(60_000);
    await stream.ended;
    expect(eventsIn(stream.text()).at(-1)?.data).toContain('"result":{"resultType":"complete"}');
    router.handled[1]?.succeed('{"late":true}');
    expect((await waiting).json().result).toEqual({ late: true });
    await closing;
    await expect(modern(port, 'a')).rejects.toThrow('ECONNREFUSED');
  });

  test('E14 while the gateway waits for open requests, the port answers: routes as before, requests with 503', async () => {
    const answer = () => ({ status: 200, contentType: 'text/plain', body: 'ok' });
    const { router, port, ingress } = await start({ routes: new Map([['/healthz', { isPublic: true, answer }]]) });
    router.answers.set('tools/call', () => {});
    const headers = await openSession(port);
    const waiting = modern(port, 'tools/call', call);
    const asking = listen(port, { headers, body: rpc(9, 'tools/call') });
    await router.until(() => router.handled.length === 3);
    const asked = router.handled
      .find(({ client, method }) => client.era === 'legacy' && method === 'tools/call')
      ?.ask?.('roots/list', undefined, { deadlineAtMs: Number.MAX_SAFE_INTEGER });
    await (await asking).until((text) => text.includes('roots/list'));
    const closing = ingress.close(60_000);
    expect((await send(port, { method: 'GET', path: '/healthz', key: undefined })).status).toBe(200);
    const refused = [
      await modern(port, 'a'),
      await send(port, { headers, body: rpc(2, 'a') }),
      await send(port, { method: 'GET', headers }),
      await send(port, { body: rpc(3, 'initialize', { protocolVersion: '2025-11-25', capabilities: {} }) }),
    ];
    expect(refused.map(({ status, headers: told }) => [status, told['retry-after'], told.connection])).toEqual(
      refused.map(() => [503, '5', 'close']),
    );
    // An answer that a running request waits for is no new request.
    expect((await send(port, { headers, body: '{"jsonrpc":"2.0","id":1,"result":{}}' })).status).toBe(202);
    expect((await asked)?.kind).toBe('result');
    for (const exchange of router.handled) exchange.succeed('{}');
    expect((await waiting).status).toBe(200);
    await (await asking).ended;
    await closing;
    await expect(modern(port, 'a')).rejects.toThrow('ECONNREFUSED');
  });

  test('open requests are ended after their time', async () => {
    const { router, port, ingress } = await start();
    router.answers.set('tools/call', () => {});
    const waiting = modern(port, 'tools/call', call);
    await router.until(() => router.handled.length === 1);
    const { signal } = router.handled[0] as Exchange;
    await ingress.close(1);
    const reply = await waiting;
    expect([reply.status, reply.json().error?.code, signal.aborted]).toEqual([503, -31015, true]);
    expect(ingress.counts).toEqual({ exchanges: 0, sessions: 0, streams: 0 });
  });
});
