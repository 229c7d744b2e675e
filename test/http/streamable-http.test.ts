import { afterEach, describe, expect, test } from 'vitest';
import { isHostError } from '../../src/kernel/errors.js';
import { FakeClock } from '../../src/kernel/fake-clock.js';
import { LIMITS } from '../../src/kernel/limits.js';
import { seededRandom } from '../../src/kernel/random.js';
import { TokenRefused } from '../../src/transports/http/auth-token.js';
import type { BadRequest } from '../../src/transports/http/http-errors.js';
import type { HttpSpec } from '../../src/transports/http/http-pool.js';
import { openStreamableHttp, type StreamableHttpChannel } from '../../src/transports/http/streamable-http-channel.js';
import { responseFrame } from '../../src/wire/channel.js';
import { legacyEra, modernEra } from '../fakes/eras.js';
import { notification, RecordingListener, rawRequest, request } from '../fakes/http-listener.js';
import { type Answer, events, json, result, rpcError, startServer, type TestServer } from '../fakes/http-server.js';

const open: Array<{ close(): Promise<void> }> = [];
afterEach(async () => {
  for (const thing of open.splice(0).reverse()) await thing.close();
});

interface Setup {
  server: TestServer;
  channel: StreamableHttpChannel;
  heard: RecordingListener;
  clock: FakeClock;
}

async function connect(answer: Answer, spec: Partial<HttpSpec> = {}): Promise<Setup> {
  const server = await startServer(answer);
  open.push(server);
  const clock = new FakeClock();
  const channel = openStreamableHttp({ server: 'fake', url: server.url, ...spec }, { clock, random: seededRandom(1) });
  const heard = new RecordingListener();
  channel.start(heard);
  open.push(channel);
  return { server, channel, heard, clock };
}

const MODERN = { era: modernEra, version: '2026-07-28' } as const;
const LEGACY = { era: legacyEra, version: '2025-11-25' } as const;

describe('answers', () => {
  test('a JSON body is delivered to its request', async () => {
    const { channel, heard } = await connect((got, response) => json(response, result(got.id, { ok: 1 })));
    const frame = request('tools/list');
    expect(channel.send(frame)).toBeUndefined();
    await heard.settled(frame);
    expect(heard.messages).toEqual([{ text: '{"ok":1}', kind: 'result', id: frame.id, origin: frame }]);
    expect(frame.phase).toBe('written');
  });

  test('a payload of bytes arrives unchanged', async () => {
    const { channel, heard, server } = await connect((got, response) => json(response, result(got.id)));
    const frame = rawRequest('tools/call', Buffer.from('{"n":12345678901234567890,"s":"ü"}'));
    channel.send(frame);
    await heard.settled(frame);
    expect(server.received[0]?.body).toBe(`${frame.head}{"n":12345678901234567890,"s":"ü"}}`);
  });

  test('a batch body is split, and only the answer to the request counts', async () => {
    const { channel, heard } = await connect((got, response) =>
      json(response, [{ jsonrpc: '2.0', method: 'notifications/message' }, result(999_999), result(got.id)]),
    );
    const frame = request('tools/list');
    channel.send(frame);
    await heard.settled(frame);
    expect(heard.messages.map((message) => message.kind)).toEqual(['notification', 'result']);
    expect(channel.counters.junk).toBe(1);
  });

  test('an event stream delivers what comes before the answer with its origin', async () => {
    const { channel, heard } = await connect((got, response) => {
      events(response);
      response.write(': hello\n\n');
      response.write('data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"n":1}}\r\n\r\n');
      response.end(`data: ${JSON.stringify(result(got.id))}\n\n`);
    });
    const frame = request('tools/call');
    channel.send(frame);
    await heard.settled(frame);
    expect(heard.messages.map(({ kind, origin }) => [kind, origin === frame])).toEqual([
      ['notification', true],
      ['result', true],
    ]);
  });

  test('an answer to another request on this stream is dropped and counted', async () => {
    const waiting: Array<() => void> = [];
    const { channel, heard, server } = await connect((got, response) => {
      events(response);
      if (got.rpcMethod === 'victim') waiting.push(() => response.end(`data: ${JSON.stringify(result(got.id))}\n\n`));
      else {
        const victim = server.received.find((entry) => entry.rpcMethod === 'victim');
        response.write(`data: ${JSON.stringify(result(victim?.id, { forged: true }))}\n\n`);
        response.end(`data: ${JSON.stringify(result(got.id))}\n\n`);
      }
    });
    const victim = request('victim');
    channel.send(victim);
    await server.until(() => server.received.length === 1);
    const thief = request('thief');
    channel.send(thief);
    await heard.settled(thief);
    expect(heard.answerTo(victim)).toBeUndefined();
    expect(channel.counters.junk).toBe(1);
    for (const go of waiting) go();
    await heard.settled(victim);
    expect(heard.answerTo(victim)?.text).toBe('{}');
  });

  test('a body that holds no answer fails the request as uncertain', async () => {
    const { channel, heard } = await connect((_got, response) => json(response, { hello: 'world' }));
    const frame = request('tools/call');
    channel.send(frame);
    const error = await heard.settled(frame);
    expect(error).toMatchObject({ code: 'protocol_error', details: { reason: 'no_answer', execution: 'uncertain' } });
  });

  test('a body above the limit is refused before it is read', async () => {
    const { channel, heard } = await connect((_got, response) => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': String(LIMITS.frameBytes + 1) });
      response.write('{');
    });
    const frame = request('tools/call');
    channel.send(frame);
    expect(await heard.settled(frame)).toMatchObject({
      code: 'result_too_large',
      details: { execution: 'uncertain', limit: LIMITS.frameBytes },
    });
  });

  test('a body above the limit without a declared length is cut off', async () => {
    const { channel, heard, server } = await connect((got, response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify(result(got.id, 'x'.repeat(LIMITS.frameBytes))));
    });
    const frame = request('tools/call');
    channel.send(frame);
    expect(await heard.settled(frame)).toMatchObject({ code: 'result_too_large', details: { execution: 'uncertain' } });
    expect(server.received).toHaveLength(1);
  });

  test('an error page without end is not read to its end', async () => {
    const { channel, heard, server } = await connect((_got, response) => {
      response.writeHead(500, { 'content-type': 'text/html' });
      response.write('x'.repeat(200 * 1024));
    });
    const frame = request('tools/call');
    channel.send(frame);
    expect(await heard.settled(frame)).toMatchObject({ code: 'transport', details: { httpStatus: 500 } });
    await server.until(() => server.cut === 1);
  });

  test('an encoded body is a protocol error', async () => {
    const { channel, heard } = await connect((_got, response) =>
      response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' }).end('x'),
    );
    const frame = request('tools/call');
    channel.send(frame);
    expect(await heard.settled(frame)).toMatchObject({
      code: 'protocol_error',
      details: { reason: 'content_encoding', execution: 'uncertain' },
    });
  });
});

describe('refusals', () => {
  const cases: Array<[string, number, Record<string, string>, unknown, object]> = [
    ['401', 401, {}, undefined, { code: 'needs_reauth', details: { httpStatus: 401, execution: 'not_executed' } }],
    [
      '403 because of a missing scope',
      403,
      { 'www-authenticate': 'Bearer error="insufficient_scope"' },
      undefined,
      { code: 'needs_reauth', details: { httpStatus: 403, reason: 'insufficient_scope' } },
    ],
    ['403', 403, {}, undefined, { code: 'protocol_error', details: { httpStatus: 403, execution: 'not_executed' } }],
    ['404', 404, {}, undefined, { code: 'protocol_error', details: { httpStatus: 404, execution: 'not_executed' } }],
    ['405', 405, {}, undefined, { code: 'protocol_error', details: { httpStatus: 405, execution: 'not_executed' } }],
    ['408', 408, {}, undefined, { code: 'protocol_error', details: { httpStatus: 408, execution: 'uncertain' } }],
    ['429', 429, {}, undefined, { code: 'overloaded', details: { httpStatus: 429, execution: 'uncertain' } }],
    [
      '503 with Retry-After',
      503,
      { 'retry-after': '7' },
      undefined,
      { code: 'overloaded', details: { httpStatus: 503, execution: 'uncertain', retryAfterMs: 7_000 } },
    ],
    [
      '429 with a date',
      429,
      { 'retry-after': 'Thu, 01 Jan 2026 00:00:30 GMT' },
      undefined,
      { code: 'overloaded', details: { execution: 'uncertain', retryAfterMs: 30_000 } },
    ],
    ['500', 500, {}, undefined, { code: 'transport', details: { httpStatus: 500, execution: 'uncertain' } }],
    [
      '400 with an error without the id of a request',
      400,
      {},
      rpcError(null, -32_022),
      { code: 'protocol_error', details: { httpStatus: 400, rpcCode: -32_022, execution: 'not_executed' } },
    ],
  ];
  test.each(cases)('%s', async (_name, status, headers, body, expected) => {
    const { channel, heard } = await connect((_got, response) => {
      if (body === undefined) response.writeHead(status, headers).end('no');
      else json(response, body, status, headers);
    });
    const frame = request('tools/call');
    channel.send(frame);
    expect(await heard.settled(frame)).toMatchObject(expected);
  });

  test.each([400, 404])(
    'W27 a JSON-RPC error with the id of the request is kept with status %s, for the check of the era',
    async (status) => {
      const { channel, heard } = await connect((got, response) => json(response, rpcError(got.id, -32_601), status));
      channel.adopt(MODERN);
      const frame = request('nope');
      channel.send(frame);
      const refused = (await heard.settled(frame)) as BadRequest;
      expect([refused.details.httpStatus, refused.answer?.bytes.toString()]).toEqual([
        status,
        expect.stringContaining('-32601'),
      ]);
    },
  );

  test('the challenge of a 401 is stored for the renewal of the token', async () => {
    const challenge = 'Bearer resource_metadata="https://example.com/.well-known/x"';
    const { channel, heard } = await connect((_got, response) =>
      response.writeHead(401, { 'www-authenticate': challenge }).end(),
    );
    const frame = request('tools/list');
    channel.send(frame);
    const refused = await heard.settled(frame);
    expect(refused).toBeInstanceOf(TokenRefused);
    expect((refused as TokenRefused).challenge).toBe(challenge);
  });
});

describe('headers on the wire', () => {
  test('before the negotiation, server/discover is modern and initialize is legacy', async () => {
    const { channel, heard, server } = await connect((got, response) => json(response, result(got.id)));
    for (const frame of [request('server/discover'), request('initialize')]) {
      channel.send(frame);
      await heard.settled(frame);
    }
    const [discover, initialize] = server.received.map((entry) => entry.headers);
    expect(discover).toMatchObject({ 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'server/discover' });
    expect(initialize?.['mcp-protocol-version']).toBeUndefined();
    expect(initialize?.['mcp-method']).toBeUndefined();
    expect(initialize?.accept).toBe('application/json, text/event-stream');
    expect(initialize?.['accept-encoding']).toBe('identity');
  });

  test('modern requests have headers for name and parameters; configured headers are sent with all requests', async () => {
    const { channel, heard, server } = await connect((got, response) => json(response, result(got.id)), {
      headers: { Authorization: 'Bearer t' },
    });
    channel.adopt(MODERN);
    const frame = request('tools/call', {}, { name: 'grüß', params: [['Region', ' eu ']] });
    channel.send(frame);
    await heard.settled(frame);
    expect(server.received[0]?.headers).toMatchObject({
      authorization: 'Bearer t',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'tools/call',
      'mcp-name': '=?base64?Z3LDvMOf?=',
      'mcp-param-region': '=?base64?IGV1IA==?=',
      'content-type': 'application/json',
    });
  });
});

describe('session', () => {
  const sessionServer: Answer = (got, response) => {
    if (got.rpcMethod === 'initialize') json(response, result(got.id), 200, { 'mcp-session-id': 'abc' });
    else if (got.method === 'DELETE') response.writeHead(405).end();
    else if (got.rpcMethod === 'gone') json(response, rpcError(null, -32_001), 404);
    else if (got.rpcMethod === 'gone-by-id') json(response, rpcError(got.id, -32_001), 404);
    else if (got.id === undefined) response.writeHead(202).end();
    else json(response, result(got.id));
  };

  async function initialized(answer: Answer = sessionServer): Promise<Setup> {
    const setup = await connect(answer);
    const frame = request('initialize');
    setup.channel.send(frame);
    await setup.heard.settled(frame);
    setup.channel.adopt(LEGACY);
    return setup;
  }

  test('the id from initialize is sent from then on, with the negotiated version', async () => {
    const { channel, server } = await initialized();
    expect(channel.sessionId).toBe('abc');
    channel.send(notification('notifications/initialized'));
    await server.until(() => server.received.length === 2);
    expect(server.received[1]?.headers).toMatchObject({
      'mcp-session-id': 'abc',
      'mcp-protocol-version': '2025-11-25',
    });
    expect(server.received[0]?.headers['mcp-session-id']).toBeUndefined();
  });

  test.each(['gone', 'gone-by-id'])('404 in a session means the session is over (%s)', async (method) => {
    const { channel, heard } = await initialized();
    const frame = request(method);
    channel.send(frame);
    expect(await heard.settled(frame)).toMatchObject({
      code: 'transport',
      retryable: true,
      details: { reason: 'session_expired', execution: 'not_executed', httpStatus: 404 },
    });
  });

  test('after resetSession the next initialize is sent without the old id', async () => {
    const { channel, heard, server } = await initialized();
    channel.resetSession();
    const frame = request('initialize');
    channel.send(frame);
    await heard.settled(frame);
    expect(server.received[1]?.headers['mcp-session-id']).toBeUndefined();
    expect(channel.sessionId).toBe('abc');
  });

  test('W28 a request that waits for a connection when the session is lost is returned unsent', async () => {
    const { channel, heard, server } = await connect(() => {}, { connections: 1 });
    const [first, second] = [request('tools/call'), request('tools/call')];
    for (const frame of [first, second]) channel.send(frame);
    await server.until(() => server.received.length === 1);
    const reset = channel.resetSession();
    expect(await heard.settled(second)).toMatchObject({
      code: 'transport',
      details: { reason: 'session_expired', phase: 'queued', execution: 'not_executed' },
    });
    reset.opened();
    channel.withdraw(first);
    expect([server.received.length, second.phase]).toEqual([1, 'queued']);
  });

  test('close ends the session with DELETE and ignores a 405', async () => {
    const { channel, server, heard } = await initialized();
    await channel.close();
    expect(server.received.at(-1)).toMatchObject({ method: 'DELETE', headers: { 'mcp-session-id': 'abc' } });
    expect(heard.ends).toHaveLength(1);
  });

  test('close waits two seconds at most for the DELETE', async () => {
    const { channel, server, clock } = await initialized((got, response, message) => {
      if (got.method !== 'DELETE') sessionServer(got, response, message);
    });
    const closing = channel.close();
    await server.until(() => server.received.at(-1)?.method === 'DELETE');
    clock.advance(2_000);
    await closing;
    expect(clock.pendingTimers).toBe(0);
  });

  test('an id that is no valid header value fails initialize', async () => {
    const { channel, heard } = await connect((got, response) =>
      json(response, result(got.id), 200, { 'mcp-session-id': 'x'.repeat(1_025) }),
    );
    const frame = request('initialize');
    channel.send(frame);
    expect(await heard.settled(frame)).toMatchObject({ code: 'protocol_error', details: { reason: 'session_id' } });
    expect(channel.sessionId).toBeUndefined();
  });
});

describe('withdrawing', () => {
  test('a cancelled request that waits for a connection is never sent', async () => {
    const answers: Array<() => void> = [];
    const { channel, heard, server } = await connect(
      (got, response) => answers.push(() => json(response, result(got.id))),
      { connections: 1 },
    );
    const [first, second, third] = [request('first'), request('second'), request('third')];
    for (const frame of [first, second, third]) channel.send(frame);
    await server.until(() => server.received.length === 1);
    expect(second.phase).toBe('queued');
    expect(channel.withdraw(second)).toBe('unsent');
    answers[0]?.();
    await server.until(() => server.received.length === 2);
    answers[1]?.();
    await heard.settled(third);
    expect(server.received.map((entry) => entry.rpcMethod)).toEqual(['first', 'third']);
    expect(second.phase).toBe('queued');
  });

  test('a cancelled request whose connection is being opened is never sent', async () => {
    const { channel, heard, server } = await connect((got, response) => json(response, result(got.id)));
    const frame = request('never');
    channel.send(frame);
    expect(channel.withdraw(frame)).toBe('unsent');
    const after = request('after');
    channel.send(after);
    await heard.settled(after);
    expect(server.received.map((entry) => entry.rpcMethod)).toEqual(['after']);
    expect(heard.failures).toEqual([]);
  });

  test.each([
    [MODERN, 'aborted'],
    [LEGACY, 'notify'],
  ] as const)('a cancelled request that was sent: %o', async (agreement, withdrawal) => {
    const { channel, heard, server } = await connect(() => {});
    channel.adopt(agreement);
    const frame = request('slow');
    channel.send(frame);
    await server.until(() => server.received.length === 1);
    expect(frame.phase).toBe('writing');
    expect(channel.withdraw(frame)).toBe(withdrawal);
    await server.until(() => server.cut === 1);
    expect(heard.messages).toEqual([]);
    expect(heard.failures).toEqual([]);
  });
});

describe('bounds', () => {
  test('waiting requests are bounded in bytes', async () => {
    const { channel } = await connect(() => {});
    const big = () => rawRequest('big', Buffer.alloc(LIMITS.outboundBytes / 2 - 1000, 0x20));
    expect([channel.send(big()), channel.send(big())]).toEqual([undefined, undefined]);
    const refused = channel.send(big());
    expect(refused).toMatchObject({
      code: 'overloaded',
      details: { reason: 'backpressure', execution: 'not_executed' },
    });
  });

  test('an answered stream that the server keeps open is ended for the next call', async () => {
    const { channel, heard, server } = await connect(
      (got, response) => {
        events(response);
        response.write(`data: ${JSON.stringify(result(got.id))}\n\n`);
      },
      { connections: 1 },
    );
    for (const frame of [request('a'), request('b')]) {
      channel.send(frame);
      await heard.settled(frame);
    }
    expect(server.received).toHaveLength(2);
  });

  test('long-lived streams take no slot of calls, and end when they are answered or cancelled', async () => {
    const { channel, heard, server } = await connect(
      (got, response) => {
        if (got.rpcMethod !== 'subscriptions/listen') return json(response, result(got.id));
        const isRefused = got.body.includes('refused');
        events(response).write(isRefused ? `data: ${JSON.stringify(result(got.id))}\n\n` : ': open\n\n');
      },
      { connections: 1 },
    );
    channel.adopt(MODERN);
    const streams = [request('subscriptions/listen'), request('subscriptions/listen')];
    for (const stream of streams) channel.send(stream);
    await server.until(() => server.received.length === 2);
    for (const frame of [request('a'), request('b')]) {
      channel.send(frame);
      await heard.settled(frame);
    }
    expect(streams.map((stream) => channel.withdraw(stream))).toEqual(['aborted', 'aborted']);
    await server.until(() => server.cut === 2);
    const refused = rawRequest('subscriptions/listen', Buffer.from('{"refused":true}'));
    channel.send(refused);
    await heard.settled(refused);
    await server.until(() => server.cut === 3);
    expect(heard.failures).toEqual([]);
  });

  test('an answer that the server waits for does not queue behind calls that wait for this answer', async () => {
    let ask: ((text: string) => void) | undefined;
    const { channel, heard } = await connect(
      (got, response) => {
        if (got.rpcMethod === undefined) {
          response.writeHead(202).end();
          ask?.(`data: ${JSON.stringify(result(frame.id))}\n\n`);
        } else {
          events(response).write('data: {"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}\n\n');
          ask = (text) => response.end(text);
        }
      },
      { connections: 1 },
    );
    const frame = request('tools/call');
    channel.send(frame);
    channel.send(request('waits'));
    await heard.until(() => heard.messages.length === 1);
    channel.send(responseFrame('"q"', 'result', '{}'));
    await heard.settled(frame);
    expect(heard.messages.map(({ kind, origin }) => [kind, origin === frame])).toEqual([
      ['request', true],
      ['result', true],
    ]);
  });

  test('after close nothing is sent or reported, and closed is reported once', async () => {
    const { channel, heard, server } = await connect(() => {});
    const frame = request('slow');
    channel.send(frame);
    await server.until(() => server.received.length === 1);
    await Promise.all([channel.close(), channel.close()]);
    expect(isHostError(channel.send(request('late')))).toBe(true);
    expect(heard).toMatchObject({ late: 0, failures: [], messages: [] });
    expect(heard.ends).toHaveLength(1);
  });
});
