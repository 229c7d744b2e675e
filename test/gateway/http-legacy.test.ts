/** Legacy sessions over real HTTP: opening, owning, asking, resuming, ending. */
import { describe, expect, test } from 'vitest';
import type { ClientSession, Exchange } from '../../src/gateway/exchange.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { eventually } from '../eventually.js';
import {
  eventsIn,
  type Harness,
  type Listening,
  listen,
  notice,
  openSession,
  rpc,
  send,
  start,
} from './http-harness.js';

const result = (id: number) => `{"jsonrpc":"2.0","id":${id},"result":{}}`;
const far = Number.MAX_SAFE_INTEGER;

describe('opening', () => {
  test.each([
    ['2025-11-25', '2025-11-25'],
    ['2025-06-18', '2025-06-18'],
    ['2025-03-26', '2025-03-26'],
    ['2024-11-05', '2024-11-05'],
    ['2026-07-28', '2025-11-25'],
    ['1.0', '2025-11-25'],
  ])('a client that asks for %s gets %s', async (asked, agreed) => {
    const { router, port } = await start();
    const reply = await send(port, {
      body: rpc(0, 'initialize', { protocolVersion: asked, capabilities: { elicitation: { url: {} }, roots: {} } }),
    });
    expect(reply.json().result?.protocolVersion).toBe(agreed);
    expect(reply.headers['mcp-session-id']).toMatch(/^[\w-]{22}$/);
    expect(router.handled[0]?.client).toMatchObject({ era: 'legacy', version: agreed, principal: { id: 'ann' } });
    const { capabilities } = router.handled[0]?.client ?? {};
    expect([
      capabilities?.elicitation,
      capabilities?.elicitationUrl,
      capabilities?.sampling,
      capabilities?.roots,
    ]).toEqual([false, true, false, true]);
  });

  test('an initialize that names no version is refused and opens nothing', async () => {
    const { router, port, ingress } = await start();
    const reply = await send(port, { body: rpc(0, 'initialize', {}) });
    expect([reply.status, reply.json().id, reply.json().error?.code]).toEqual([200, 0, -32602]);
    expect([router.reached, ingress.counts.sessions]).toEqual([0, 0]);
  });

  test('a refused initialize opens nothing', async () => {
    const { router, port, ingress } = await start();
    router.answers.set('initialize', (exchange) => exchange.fail({ code: -32602, message: 'no', httpStatus: 404 }));
    const reply = await send(port, { body: rpc(0, 'initialize', { protocolVersion: '2025-11-25' }) });
    expect([reply.status, reply.headers['mcp-session-id'], ingress.counts.sessions]).toEqual([200, undefined, 0]);
  });

  test('the router is notified once that it is open; requests before that are served', async () => {
    const { router, port } = await start();
    const headers = await openSession(port, '2025-06-18', { initialized: false });
    expect((await send(port, { headers, body: rpc(1, 'tools/list') })).status).toBe(200);
    expect(router.sessions).toHaveLength(0);
    for (let i = 0; i < 2; i++) {
      expect((await send(port, { headers, body: notice('notifications/initialized') })).status).toBe(202);
    }
    expect(router.sessions.map(({ id }) => id)).toEqual([headers['mcp-session-id']]);
  });

  test('the router is notified of the end of a session that was used without `initialized`', async () => {
    const { router, port } = await start();
    const silent = await openSession(port, '2025-06-18', { initialized: false });
    const other = await openSession(port);
    expect((await send(port, { headers: silent, body: rpc(1, 'tools/call') })).status).toBe(200);
    for (const headers of [silent, other]) await send(port, { method: 'DELETE', headers });
    expect(router.unopened).toEqual([silent['mcp-session-id']]);
  });

  test('no two sessions have one id', async () => {
    const { port } = await start();
    const ids = new Set<string | undefined>();
    for (let i = 0; i < 20; i++)
      ids.add((await openSession(port, '2025-11-25', { initialized: false }))['mcp-session-id']);
    expect(ids.size).toBe(20);
  });
});

describe('the owner of a session', () => {
  const methods = ['POST', 'GET', 'DELETE'];
  const tries = (headers: Record<string, string>) =>
    ({
      'another principal': { headers, key: 'Bearer key-of-bob' },
      'another endpoint': { headers, path: '/mcp/alpha' },
      'an unknown id': { headers: { ...headers, 'mcp-session-id': 'nobody' } },
    }) as const;
  test.each(methods.flatMap((method) => Object.keys(tries({})).map((who) => [method, who] as const)))(
    '%s with %s: 404, and the session lives on',
    async (method, who) => {
      const { router, port } = await start();
      const headers = await openSession(port);
      const before = router.reached;
      const body = method === 'POST' ? { body: rpc(1, 'tools/list') } : {};
      const reply = await send(port, { method, ...tries(headers)[who as 'an unknown id'], ...body });
      expect([reply.status, router.reached]).toEqual([404, before]);
      expect((await send(port, { headers, body: rpc(1, 'tools/list') })).status).toBe(200);
    },
  );

  test.each(methods)('%s without an id: 400', async (method) => {
    const { port } = await start();
    const reply = await send(port, { method, ...(method === 'POST' ? { body: rpc(1, 'tools/list') } : {}) });
    expect(reply.status).toBe(400);
  });

  test('a given version must be the negotiated one', async () => {
    const { port } = await start();
    const { 'mcp-session-id': id = '' } = await openSession(port, '2025-06-18');
    const status = async (version?: string) => {
      const headers = { 'mcp-session-id': id, ...(version === undefined ? {} : { 'mcp-protocol-version': version }) };
      return (await send(port, { headers, body: rpc(1, 'ping') })).status;
    };
    expect([await status('2025-06-18'), await status(), await status('2025-11-25'), await status('x')]).toEqual([
      ...[200, 200, 400, 400],
    ]);
  });

  test('each request has the present role of its key', async () => {
    let role = 'reader';
    const { router, port } = await start({ authenticate: () => ({ id: 'ann', role, scopes: [] }) });
    const headers = await openSession(port);
    role = 'none';
    await send(port, { headers, body: rpc(1, 'tools/list') });
    expect(router.handled.at(-1)?.client.principal.role).toBe('none');
  });

  test('initialize in an open session is refused', async () => {
    const { port } = await start();
    const headers = await openSession(port);
    expect((await send(port, { headers, body: rpc(1, 'initialize', {}) })).status).toBe(400);
  });
});

describe('requests', () => {
  test('answers are JSON and 200, errors too: a 404 would end the session', async () => {
    const { port } = await start();
    const headers = await openSession(port);
    const reply = await send(port, { headers, body: rpc('x', 'no/such') });
    expect([reply.status, reply.json().error?.code, reply.json().id]).toEqual([200, -32601, 'x']);
  });

  test('an id that is in flight is refused; "1" and 1 are different ids', async () => {
    const { router, port } = await start();
    const headers = await openSession(port);
    router.answers.set('tools/call', () => {});
    const first = send(port, { headers, body: rpc(1, 'tools/call') });
    await router.until(() => router.handled.length === 2);
    const second = await send(port, { headers, body: rpc(1, 'tools/list') });
    expect(second.json().error?.code).toBe(-32600);
    expect((await send(port, { headers, body: rpc('1', 'tools/list') })).json().result).toEqual({});
    const elsewhere = await openSession(port);
    expect((await send(port, { headers: elsewhere, body: rpc(1, 'tools/list') })).json().result).toEqual({});
    router.handled[1]?.succeed('{"first":true}');
    expect((await first).json().result).toEqual({ first: true });
    expect((await send(port, { headers, body: rpc(1, 'tools/list') })).json().result).toEqual({});
  });

  test('E13 notifications/cancelled aborts only the named request of its session, and the POST of that request is answered with JSON', async () => {
    const { router, port, ingress } = await start();
    const [mine, other] = [await openSession(port), await openSession(port)];
    router.answers.set('tools/call', () => {});
    const waiting = send(port, { headers: mine, body: rpc(1, 'tools/call') });
    await router.until(() => router.handled.length === 3);
    const { signal } = router.handled[2] as Exchange;
    await send(port, { headers: other, body: notice('notifications/cancelled', { requestId: 1 }) });
    await send(port, { headers: mine, body: notice('notifications/cancelled', { requestId: '1' }) });
    expect(signal.aborted).toBe(false);
    await send(port, { headers: mine, body: notice('notifications/cancelled', { requestId: 1 }) });
    expect(signal.aborted).toBe(true);
    router.handled[2]?.succeed('{}');
    const reply = await waiting;
    expect([reply.status, reply.headers['content-type']]).toEqual([200, 'application/json']);
    expect(reply.json()).toEqual({ jsonrpc: '2.0', id: 1, error: { code: -31021, message: expect.any(String) } });
    expect(ingress.counts.exchanges).toBe(0);
  });

  test.each(['2025-11-25', '2025-03-26'])(
    'E13 a cancelled request whose answer is a stream ends it with a response (%s)',
    async (version) => {
      const { router, port, ingress } = await start();
      const headers = await openSession(port, version);
      router.answers.set('tools/call', (exchange) => exchange.notify('notifications/message', '{"level":"info"}'));
      const stream = await listen(port, { headers, body: rpc(7, 'tools/call') });
      await stream.until((text) => text.includes('notifications/message'));
      await send(port, { headers, body: notice('notifications/cancelled', { requestId: 7 }) });
      await stream.ended;
      // A client of 2025-11-25 would reconnect to a stream that ended without it.
      const last = JSON.parse(eventsIn(stream.text()).at(-1)?.data ?? '');
      expect(last).toMatchObject({ id: 7, error: { code: -31021 } });
      expect(ingress.counts).toMatchObject({ exchanges: 0, streams: 0 });
    },
  );

  test('other notifications are accepted and not forwarded', async () => {
    const { router, port } = await start();
    const headers = await openSession(port);
    const { reached } = router;
    expect((await send(port, { headers, body: notice('notifications/roots/list_changed') })).status).toBe(202);
    expect(router.reached).toBe(reached);
  });

  test('batches: 2025-03-26 only, without initialize', async () => {
    const { port } = await start();
    const headers = await openSession(port, '2025-03-26');
    const batch = [rpc(1, 'a'), notice('notifications/x'), rpc('2', 'no/such'), result(99)];
    const reply = await send(port, { headers, body: `[${batch.join()}]` });
    expect(eventsIn(reply.text).map(({ data }) => JSON.parse(data).id)).toEqual([1, '2']);
    expect((await send(port, { headers, body: `[${notice('notifications/x')}]` })).status).toBe(202);
    for (const body of ['[]', `[${rpc(1, 'initialize')}]`, `[${rpc(1, 'a')},]`, `[${rpc(1, 'a')}]x`, '[1]', '[[]]'])
      expect([body, (await send(port, { headers, body })).status]).toEqual([body, 400]);
    const newer = await openSession(port, '2025-06-18');
    expect((await send(port, { headers: newer, body: `[${rpc(1, 'a')}]` })).status).toBe(400);
    expect((await send(port, { body: `[${rpc(1, 'a')}]` })).status).toBe(400);
  });
});

describe('asking the client', () => {
  async function asking(harness: Harness) {
    const { router, port } = harness;
    const headers = await openSession(port, '2025-06-18');
    router.answers.set('tools/call', () => {});
    const stream = listen(port, { headers, body: rpc('call', 'tools/call') });
    await router.until(() => router.handled.some(({ method }) => method === 'tools/call'));
    const exchange = router.handled.find(({ method }) => method === 'tools/call') as Exchange;
    return { headers, stream, exchange, ask: exchange.ask as NonNullable<Exchange['ask']> };
  }

  test('is sent on the stream of the request, and its answer comes by POST', async () => {
    const harness = await start();
    const { headers, stream, exchange, ask } = await asking(harness);
    const answers = Promise.all([
      ask('elicitation/create', '{"message":"?"}', { deadlineAtMs: far }),
      ask('roots/list', undefined, { deadlineAtMs: far }),
    ]);
    const events = await (await stream).until((text) => text.includes('roots/list'));
    expect(eventsIn(events).map(({ data }) => JSON.parse(data))).toEqual([
      { jsonrpc: '2.0', id: 1, method: 'elicitation/create', params: { message: '?' } },
      { jsonrpc: '2.0', id: 2, method: 'roots/list' },
    ]);
    // Neither another session nor another spelling of the id answers.
    const other = await openSession(harness.port);
    expect((await send(harness.port, { headers: other, body: result(1) })).status).toBe(202);
    expect((await send(harness.port, { headers, body: '{"jsonrpc":"2.0","id":"1","result":{}}' })).status).toBe(202);
    const body = '{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}';
    expect((await send(harness.port, { headers, body })).status).toBe(202);
    await send(harness.port, { headers, body: '{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"no"}}' });
    await send(harness.port, { headers, body });
    expect((await answers).map(({ kind, bytes }) => [kind, bytes.toString()])).toEqual([
      ['result', '{"action":"accept"}'],
      ['error', '{"code":-1,"message":"no"}'],
    ]);
    exchange.succeed('{"done":true}');
    await (await stream).ended;
    expect(eventsIn((await stream).text()).at(-1)?.data).toContain('"id":"call","result":{"done":true}');
  });

  test.each(['elicitation/create', 'sampling/createMessage', 'roots/list'])(
    'E13 %s waits until the client has sent initialized',
    async (method) => {
      const { router, port } = await start();
      const headers = await openSession(port, '2025-06-18', { initialized: false });
      router.answers.set('tools/call', () => {});
      const stream = listen(port, { headers, body: rpc('call', 'tools/call') });
      await router.until(() => router.handled.length === 2);
      const exchange = router.handled[1] as Exchange;
      const answer = exchange.ask?.(method, '{}', { deadlineAtMs: far });
      exchange.notify('notifications/message', '{"level":"info","data":"first"}');
      await send(port, { headers, body: notice('notifications/initialized') });
      const events = await (await stream).until((text) => text.includes(method));
      expect(eventsIn(events).map(({ data }) => JSON.parse(data).method)).toEqual(['notifications/message', method]);
      await send(port, { headers, body: result(1) });
      expect((await answer)?.kind).toBe('result');
      exchange.succeed('{}');
      await (await stream).ended;
    },
  );

  test('ends at its deadline, and the client gets a cancellation', async () => {
    const clock = new FakeClock(1_000);
    const harness = await start({ clock });
    const { stream, ask } = await asking(harness);
    const answer = ask('roots/list', undefined, { deadlineAtMs: 5_000 });
    const refused = expect(answer).rejects.toMatchObject({ code: 'timeout' });
    clock.advance(4_000);
    await refused;
    await (await stream).until((text) => text.includes('"notifications/cancelled","params":{"requestId":1}'));
  });

  test('ends with its request, its session, or its client', async () => {
    const harness = await start();
    const { headers, ask } = await asking(harness);
    const given = new AbortController();
    const first = expect(ask('a', '{}', { deadlineAtMs: far, signal: given.signal })).rejects.toMatchObject({
      code: 'cancelled',
    });
    given.abort();
    await first;
    const second = expect(ask('b', '{}', { deadlineAtMs: far })).rejects.toMatchObject({ code: 'transport' });
    await send(harness.port, { method: 'DELETE', headers });
    await second;
    await expect(ask('c', '{}', { deadlineAtMs: far })).rejects.toMatchObject({ code: 'cancelled' });
  });

  test('is bounded', async () => {
    const harness = await start({ limits: { asksPerSession: 2 } });
    const { ask } = await asking(harness);
    const open = [ask('a', '{}', { deadlineAtMs: far }), ask('b', '{}', { deadlineAtMs: far })];
    await expect(ask('c', '{}', { deadlineAtMs: far })).rejects.toMatchObject({ code: 'overloaded' });
    const ended = Promise.allSettled(open);
    await harness.ingress.close(0);
    expect((await ended).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  });

  test('a client that left before the stream began cannot be asked', async () => {
    const harness = await start();
    const { router, port } = harness;
    const headers = await openSession(port);
    router.answers.set('tools/call', () => {});
    const left = new AbortController();
    const sent = fetch(`http://127.0.0.1:${port}/mcp`, {
      ...{ method: 'POST', body: rpc(1, 'tools/call'), signal: left.signal },
      headers: { ...headers, 'content-type': 'application/json', authorization: 'Bearer key-of-ann' },
    }).catch(() => undefined);
    await router.until(() => router.handled.length === 2);
    left.abort();
    await sent;
    const exchange = router.handled[1] as Exchange;
    // These requests arrive after the loss, so the gateway has noticed the loss by the time of their answers.
    for (let i = 0; i < 3; i++) await send(port, { headers, body: rpc(2, 'a') });
    await expect(exchange.ask?.('a', '{}', { deadlineAtMs: far })).rejects.toMatchObject({ code: 'transport' });
    expect(exchange.signal.aborted).toBe(false);
  });
});

describe('the stream of a session', () => {
  const session = ({ router }: Harness) => router.sessions[0] as ClientSession;

  test('is the only one, carries messages without a request, and stores them in order while it is lost', async () => {
    const harness = await start();
    const headers = await openSession(harness.port, '2025-06-18');
    const stream = await listen(harness.port, { method: 'GET', headers });
    expect((await send(harness.port, { method: 'GET', headers })).status).toBe(409);
    session(harness).notify('notifications/a', '{"n":1}');
    session(harness).notify('notifications/a', undefined);
    session(harness).notify('notifications/a', '{"n":3}');
    await stream.until((text) => text.includes('"n":3'));
    expect(eventsIn(stream.text())).toEqual([
      { id: '0-1', data: '{"jsonrpc":"2.0","method":"notifications/a","params":{"n":1}}' },
      { id: '0-2', data: '{"jsonrpc":"2.0","method":"notifications/a"}' },
      { id: '0-3', data: '{"jsonrpc":"2.0","method":"notifications/a","params":{"n":3}}' },
    ]);
    stream.hangUp();
    await eventually('the loss is noticed', () => harness.ingress.counts.streams === 0);
    session(harness).notify('notifications/a', '{"n":4}');
    const next = await listen(harness.port, { method: 'GET', headers });
    await next.until((text) => text.includes('"n":4'));
    expect(eventsIn(next.text()).map(({ id }) => id)).toEqual(['0-4']);
  });

  test.each([
    ['2025-11-25', true],
    ['2025-06-18', false],
  ])('%s begins with an event for its id alone: %s', async (version, isPrimed) => {
    const harness = await start();
    const headers = await openSession(harness.port, version);
    const stream = await listen(harness.port, { method: 'GET', headers });
    session(harness).notify('notifications/a', '{}');
    const text = await stream.until((all) => all.includes('notifications/a'));
    expect(/^id: 0-0\nretry: [123]\d{3}\ndata: \n\n/.test(text)).toBe(isPrimed);
  });

  test('the required headers of a GET', async () => {
    const { port } = await start();
    const headers = await openSession(port);
    expect((await send(port, { method: 'GET', headers: { ...headers, accept: 'application/json' } })).status).toBe(406);
    for (const id of ['x', '9-1', '0', '-1', '0-1-1', '9'.repeat(40)])
      expect([id, (await send(port, { method: 'GET', headers: { ...headers, 'last-event-id': id } })).status]).toEqual([
        ...[id, 400],
      ]);
  });
});

describe('a lost connection', () => {
  /** A call whose stream has begun. */
  async function begun(harness: Harness, version = '2025-11-25') {
    const { router, port } = harness;
    const headers = await openSession(port, version);
    router.answers.set('tools/call', (exchange) => exchange.notify('notifications/progress', '{"n":1}'));
    const stream = await listen(port, { headers, body: rpc('call', 'tools/call') });
    await stream.until((text) => text.includes('"n":1'));
    const exchange = router.handled.findLast(({ method }) => method === 'tools/call') as Exchange;
    return { headers, stream, exchange };
  }
  const lose = async (harness: Harness, stream: Listening) => {
    stream.hangUp();
    await eventually('the loss is noticed', () => harness.ingress.counts.streams === 0);
  };
  const resume = (harness: Harness, headers: Record<string, string>, id: string | undefined) =>
    listen(harness.port, { method: 'GET', headers: { ...headers, 'last-event-id': id ?? '' } });
  const datas = (text: string) =>
    eventsIn(text).map(({ data }) => (data === '' ? '' : (JSON.parse(data).params?.n ?? JSON.parse(data).result)));

  test('is no cancellation; the client continues after the last event it received, of that stream only', async () => {
    const harness = await start();
    const { headers, stream, exchange } = await begun(harness);
    const last = eventsIn(stream.text()).at(-1)?.id;
    await lose(harness, stream);
    expect(exchange.signal.aborted).toBe(false);
    exchange.notify('notifications/progress', '{"n":2}');
    harness.router.sessions[0]?.notify('notifications/other', '{"n":"other"}');
    const resumed = await resume(harness, headers, last);
    await resumed.until((text) => text.includes('"n":2'));
    exchange.notify('notifications/progress', '{"n":3}');
    exchange.succeed('{"done":true}');
    await resumed.ended;
    expect(datas(resumed.text())).toEqual([2, 3, { done: true }]);
  });

  test('an answer that came meanwhile is stored, and can be fetched again', async () => {
    const harness = await start();
    const { headers, stream, exchange } = await begun(harness);
    const [primer, first] = eventsIn(stream.text());
    await lose(harness, stream);
    exchange.succeed('{"done":true}');
    for (let i = 0; i < 2; i++) {
      const resumed = await resume(harness, headers, first?.id);
      await resumed.ended;
      expect(datas(resumed.text())).toEqual([{ done: true }]);
    }
    const whole = await resume(harness, headers, primer?.id);
    await whole.ended;
    expect(datas(whole.text())).toEqual([1, { done: true }]);
  });

  test('a client that reconnects before the loss is noticed takes the stream over', async () => {
    const harness = await start();
    const { headers, stream, exchange } = await begun(harness);
    const resumed = await resume(harness, headers, eventsIn(stream.text()).at(-1)?.id);
    await stream.ended;
    exchange.succeed('{"done":true}');
    await resumed.ended;
    expect(datas(resumed.text())).toEqual([{ done: true }]);
  });

  test('the stored events are bounded', async () => {
    const harness = await start({ limits: { eventsPerSession: 3 } });
    const { headers, stream, exchange } = await begun(harness);
    const last = eventsIn(stream.text()).at(-1)?.id;
    await lose(harness, stream);
    for (let n = 2; n < 10; n++) exchange.notify('notifications/progress', `{"n":${n}}`);
    exchange.succeed('{"done":true}');
    const resumed = await resume(harness, headers, last);
    await resumed.ended;
    expect(datas(resumed.text())).toEqual([8, 9, { done: true }]);
  });

  test('a stream of another session cannot be resumed', async () => {
    const harness = await start();
    const { stream } = await begun(harness);
    const other = await openSession(harness.port);
    const id = eventsIn(stream.text()).at(-1)?.id ?? '';
    expect((await send(harness.port, { method: 'GET', headers: { ...other, 'last-event-id': id } })).status).toBe(400);
  });
});

describe('the end of a session', () => {
  test('by DELETE: its requests, stream and signal end, and its id becomes unknown', async () => {
    const { router, port, ingress } = await start();
    const headers = await openSession(port);
    router.answers.set('tools/call', () => {});
    const waiting = send(port, { headers, body: rpc(1, 'tools/call') });
    const stream = await listen(port, { method: 'GET', headers });
    await router.until(() => router.handled.length === 2);
    const { signal } = router.handled[1] as Exchange;
    expect((await send(port, { method: 'DELETE', headers })).status).toBe(204);
    await stream.ended;
    expect((await waiting).json().error?.code).toBe(-32600);
    expect([signal.aborted, router.sessions[0]?.signal.aborted]).toEqual([true, true]);
    expect((await send(port, { headers, body: rpc(2, 'a') })).status).toBe(404);
    expect(ingress.counts).toEqual({ exchanges: 0, sessions: 0, streams: 0 });
  });

  test.each(['2025-11-25', '2025-06-18'])('a slow call of %s is answered with a stream', async (version) => {
    const clock = new FakeClock();
    const { router, port } = await start({ clock });
    router.answers.set('tools/call', () => {});
    const headers = await openSession(port, version);
    const asked = listen(port, { headers, body: rpc(1, 'tools/call') });
    await router.until(() => router.handled.some(({ method }) => method === 'tools/call'));
    clock.advance(11_000);
    const stream = await asked;
    expect(stream.headers['content-type']).toBe('text/event-stream');
    await stream.until((text) => text.length > 0);
    router.handled.at(-1)?.succeed('{}');
    await stream.ended;
    expect(stream.text()).toContain('"result":{}');
  });

  test('by half an hour without use; an open request or stream is use', async () => {
    const clock = new FakeClock();
    const { router, port, ingress } = await start({ clock });
    router.answers.set('tools/call', () => {});
    const [idle, calling, listening] = [await openSession(port), await openSession(port), await openSession(port)];
    const waiting = send(port, { headers: calling, body: rpc(1, 'tools/call') });
    const stream = await listen(port, { method: 'GET', headers: listening });
    await router.until(() => router.handled.some(({ method }) => method === 'tools/call'));
    clock.advance(29 * 60_000);
    expect((await send(port, { headers: idle, body: rpc(1, 'a') })).status).toBe(200);
    clock.advance(29 * 60_000);
    expect(ingress.counts.sessions).toBe(3);
    clock.advance(2 * 60_000);
    expect(ingress.counts.sessions).toBe(2);
    expect((await send(port, { headers: idle, body: rpc(1, 'a') })).status).toBe(404);
    router.handled.find(({ method }) => method === 'tools/call')?.succeed('{}');
    await waiting;
    stream.hangUp();
    await eventually('the loss is noticed', () => ingress.counts.streams === 0);
    clock.advance(31 * 60_000);
    expect(ingress.counts.sessions).toBe(0);
    expect(clock.pendingTimers).toBe(0);
  });

  test('W17 by the bound: the session unused for longest first, never a session in use or being opened', async () => {
    const clock = new FakeClock();
    const { port } = await start({ clock, limits: { sessions: 3 } });
    const status = async (headers: Record<string, string>) => (await send(port, { headers, body: rpc(1, 'a') })).status;
    const initialize = () => send(port, { body: rpc(0, 'initialize', { protocolVersion: '2025-11-25' }) });
    const streaming = await openSession(port);
    await listen(port, { method: 'GET', headers: streaming });
    clock.advance(1);
    const opening = await openSession(port, '2025-11-25', { initialized: false });
    clock.advance(1);
    const old = await openSession(port);
    clock.advance(1);
    const fourth = await openSession(port, '2025-11-25', { initialized: false });
    expect([await status(old), await status(streaming)]).toEqual([404, 200]);
    const full = await initialize();
    expect([full.status, full.json().error?.code, full.headers['mcp-session-id']]).toEqual([503, -31015, undefined]);
    expect(full.headers['retry-after']).toBe('1');
    expect([await status(opening), await status(fourth)]).toEqual([200, 200]);
    await listen(port, { method: 'GET', headers: opening });
    expect((await initialize()).status).toBe(200);
    expect([await status(fourth), await status(opening)]).toEqual([404, 200]);
  });
});
