import { describe, expect, test } from 'vitest';
import { ScriptedChannel } from '../../test/fakes/scripted-channel.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { InboundRequest } from '../wire/inbound-requests.js';
import { openSession } from './open-session.js';
import type { SessionHandlers } from './session.js';

type Handler = (message: Record<string, unknown>, channel: ScriptedChannel) => unknown;

async function open(era: 'legacy' | 'modern', http: boolean, answer: Handler, handlers: SessionHandlers = {}) {
  const clock = new FakeClock();
  const channel = new ScriptedChannel();
  if (http) Object.defineProperty(channel, 'kind', { value: 'streamable-http' });
  channel.onSend = (message, frame) => {
    if (message.id === undefined) return;
    queueMicrotask(() => {
      const reply = handshake(message, era) ?? answer(message, channel);
      if (reply instanceof HostError) channel.fail(frame, reply);
      else if (reply !== undefined) channel.say({ jsonrpc: '2.0', id: message.id, ...(reply as object) });
    });
  };
  const session = await openSession({
    server: 'srv',
    client: { name: 'hostler', version: '0', capabilities: {} },
    clock,
    startTimeoutMs: 1_000,
    clean: (text) => text,
    liveness: { quietMs: 100, probeTimeoutMs: 10, missesMax: 3 },
    handlers,
    open: () => Promise.resolve(channel),
  });
  const methods = () => channel.messages.map((message) => message.method);
  const until = () => ({ deadlineAtMs: clock.nowMs() + 60_000 });
  return { clock, channel, session, methods, until };
}

function handshake({ method }: Record<string, unknown>, era: string): unknown {
  if (method === 'server/discover' && era === 'modern')
    return { result: { supportedVersions: ['2026-07-28'], capabilities: {} } };
  if (method === 'server/discover') return { error: { code: -32601, message: 'unknown' } };
  if (method === 'initialize') return { result: { protocolVersion: '2025-11-25', capabilities: {} } };
  return undefined;
}

describe('requests', () => {
  test('to a legacy server are the bytes of the caller', async () => {
    const { session, channel, until } = await open('legacy', false, () => ({ result: {} }));
    const params = Buffer.from('{"name":"x","arguments":{"n":18446744073709551615}}');
    await session.request('tools/call', params, until());
    expect(channel.sent.at(-1)?.payload).toBe(params);
  });

  test('to a modern server get the envelope and lose nothing', async () => {
    const { session, channel, until } = await open('modern', false, () => ({ result: {} }));
    await session.request('tools/call', '{"name":"x","_meta":{"traceparent":"00-1"},"n":9007199254740993}', until());
    const sent = String(channel.sent.at(-1)?.payload);
    expect(sent).toContain('"n":9007199254740993');
    expect(JSON.parse(sent)).toMatchObject({
      _meta: { traceparent: '00-1', 'io.modelcontextprotocol/protocolVersion': '2026-07-28' },
    });
  });

  test('that want progress carry their own token, and get only their own progress', async () => {
    const { session, channel, until } = await open('legacy', false, ({ params }, wire) => {
      const progressToken = (params as { _meta: { progressToken: unknown } })._meta.progressToken;
      wire.say({ jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken, progress: 1 } });
      return { result: {} };
    });
    const heard: string[] = [];
    const call = (name: string) =>
      session.callTool(name, '{}', { ...until(), onProgress: (params) => heard.push(name + params) });
    await Promise.all([call('a'), call('b')]);
    const tokens = channel.messages
      .slice(-2)
      .map((message) => (message.params as { _meta: { progressToken: number } })._meta.progressToken);
    expect(new Set(tokens).size).toBe(2);
    expect(heard).toEqual([
      `a{"progressToken":${tokens[0]},"progress":1}`,
      `b{"progressToken":${tokens[1]},"progress":1}`,
    ]);
  });

  test('an error from the server is an answer, not a rejection', async () => {
    const { session, until } = await open('legacy', false, () => ({
      error: { code: -32602, message: 'could not connect' },
    }));
    expect(await session.callTool('x', undefined, until())).toMatchObject({ kind: 'error' });
  });

  test.each(['[]', '"x"', '{} x', '{"a":1', '{"name":"a","name":"b"}', '{"name":"a","n\\u0061me":"b"}', ''])(
    'params %s are refused before anything is sent',
    async (params) => {
      for (const era of ['legacy', 'modern'] as const) {
        const { session, methods, until } = await open(era, false, () => ({ result: {} }));
        await expect(session.request('x', params, until())).rejects.toMatchObject({ code: 'invalid_arguments' });
        expect(methods()).not.toContain('x');
      }
    },
  );

  test.each([
    '{},"name":"delete_all"',
    '{}},"method":"resources/read","params":{"uri":"a"',
    '{}}\n{"jsonrpc":"2.0"',
    '[]',
    '',
    '{',
  ])('arguments %j cannot close the surrounding object and add members', async (args) => {
    const { session, methods, until } = await open('legacy', false, () => ({ result: {} }));
    for (const text of [args, Buffer.from(args)]) {
      await expect(session.callTool('read', text, until())).rejects.toMatchObject({
        code: 'invalid_arguments',
        details: { execution: 'not_executed' },
      });
    }
    expect(methods()).not.toContain('tools/call');
  });

  test('arguments may be an object', async () => {
    const { session, channel, until } = await open('legacy', false, () => ({ result: {} }));
    await session.callTool('x', { a: 1 }, until());
    expect(channel.messages.at(-1)).toMatchObject({ params: { name: 'x', arguments: { a: 1 } } });
  });
});

test('a long-lived request gives no evidence about the server: it is neither probed nor waited for', async () => {
  let misses = 0;
  const { session, clock, channel } = await open('modern', false, () => undefined, { missed: () => misses++ });
  const abort = new AbortController();
  const standing = { deadlineAtMs: Number.POSITIVE_INFINITY, signal: abort.signal, isLongLived: true };
  const listening = session.request('subscriptions/listen', '{"notifications":{}}', standing).catch((error) => error);
  const sent = channel.messages.length;
  await clock.advanceAsync(10_000);
  expect([channel.messages.length, misses, session.unanswered, session.drain(1_000)]).toEqual([sent, 0, 0, undefined]);
  abort.abort();
  expect(await listening).toMatchObject({ code: 'cancelled' });
  expect(channel.withdrawn.map(({ method }) => method)).toEqual(['subscriptions/listen']);
});

describe('a legacy HTTP session the server has forgotten', () => {
  const expired = () =>
    new HostError('transport', '404', { reason: 'session_expired', execution: 'not_executed', httpStatus: 404 });

  test('is opened again once for all requests, and each request is sent once more', async () => {
    let forgotten = true;
    let renewals = 0;
    const renewed = () => void renewals++ as undefined;
    const answer: Handler = ({ method }) =>
      method === 'initialize' ? undefined : forgotten ? expired() : { result: {} };
    const { session, methods, channel, until } = await open('legacy', true, answer, { renewed });
    let resets = 0;
    Object.assign(channel, {
      resetSession: () => {
        resets++;
        forgotten = false;
      },
    });
    const answers = await Promise.all(Array.from({ length: 10 }, () => session.callTool('x', '{}', until())));
    expect(answers.every(({ kind }) => kind === 'result')).toBe(true);
    expect([resets, renewals]).toEqual([1, 1]);
    expect(methods().filter((method) => method === 'initialize')).toHaveLength(2);
    expect(methods().filter((method) => method === 'tools/call')).toHaveLength(20);
  });

  test('does not repeat a request that may have run', async () => {
    const { session, methods, until } = await open('legacy', true, ({ method }) =>
      method === 'tools/call'
        ? new HostError('transport', '404', { reason: 'session_expired', execution: 'uncertain' })
        : undefined,
    );
    await expect(session.callTool('x', '{}', until())).rejects.toMatchObject({ details: { execution: 'uncertain' } });
    expect(methods().filter((method) => method === 'tools/call')).toHaveLength(1);
  });

  test('keeps no caller after its deadline or cancellation', async () => {
    const { session, clock, channel } = await open('legacy', true, expired);
    channel.onSend = ({ id, method }, frame) => {
      if (method === 'tools/call' && id !== undefined) queueMicrotask(() => channel.fail(frame, expired()));
    };
    const abort = new AbortController();
    const late = session.callTool('x', '{}', { deadlineAtMs: clock.nowMs() + 90 });
    const gone = session.callTool('x', '{}', { deadlineAtMs: clock.nowMs() + 95, signal: abort.signal });
    for (const call of [late, gone]) call.catch(() => {});
    await clock.advanceAsync(20);
    abort.abort();
    await expect(gone).rejects.toMatchObject({ code: 'cancelled', details: { execution: 'not_executed' } });
    await clock.advanceAsync(70);
    await expect(late).rejects.toMatchObject({ code: 'timeout', details: { execution: 'not_executed' } });
  });

  test('twice in a row is an error, not a loop', async () => {
    const { session, methods, until } = await open('legacy', true, expired);
    await expect(session.callTool('x', '{}', until())).rejects.toMatchObject({
      details: { reason: 'session_expired' },
    });
    expect(methods().filter((method) => method === 'tools/call')).toHaveLength(2);
  });
});

describe('D-19 lists', () => {
  const pages = (...items: unknown[][]) => {
    let page = 0;
    return () => {
      const at = page++;
      return {
        result: {
          tools: items[at],
          ...(at + 1 < items.length ? { nextCursor: `c${at}` } : {}),
          ttlMs: 100 - at,
          cacheScope: 'public',
        },
      };
    };
  };

  test('are read to the last page, items byte for byte', async () => {
    const { session, channel, until } = await open('legacy', false, pages([{ name: 'a' }], [{ name: 'b', x: 1 }, {}]));
    const list = await session.list('tools/list', until());
    expect(list.items.map(({ key, raw }) => [key, raw.toString()])).toEqual([
      ['a', '{"name":"a"}'],
      ['b', '{"name":"b","x":1}'],
      ['', '{}'],
    ]);
    expect(list).toMatchObject({ pages: 2, ttlMs: 99, cacheScope: 'public' });
    expect(channel.messages.at(-1)).toMatchObject({ params: { cursor: 'c0' } });
  });

  test.each([
    ['a repeated cursor', 'repeated_cursor', 2, () => ({ result: { tools: [], nextCursor: 'same' } })],
    [
      'no end',
      'too_many_pages',
      50,
      (
        (page = 0) =>
        () => ({ result: { tools: [], nextCursor: `c${page++}` } })
      )(),
    ],
  ])('with %s are an error', async (_what, reason, pagesRead, answer) => {
    const { session, methods, until } = await open('legacy', false, answer);
    await expect(session.list('tools/list', until())).rejects.toMatchObject({
      code: 'protocol_error',
      details: { reason },
    });
    expect(methods().filter((method) => method === 'tools/list')).toHaveLength(pagesRead);
  });

  test.each([
    ['items', 'too_many_items', { tools: Array.from({ length: 10_001 }, () => ({})) }],
    ['the bytes of a tool', 'item_too_large', { tools: [{ name: 'x'.repeat(256 * 1024) }] }],
    [
      'the bytes of all tools',
      'list_too_large',
      { tools: Array.from({ length: 33 }, () => ({ name: 'x'.repeat(128 * 1024) })) },
    ],
    ['the length of a cursor', 'cursor_too_long', { tools: [], nextCursor: 'x'.repeat(5_000) }],
  ])('beyond the limit of %s are an error', async (_what, reason, result) => {
    const { session, until } = await open('legacy', false, () => ({ result }));
    await expect(session.list('tools/list', until())).rejects.toMatchObject({
      code: 'protocol_error',
      details: { reason, limit: expect.any(Number) },
    });
  });

  test('X18 that are large are read in parts', async () => {
    const tools = Array.from({ length: 32 }, (_, i) => ({ name: `t${i}`, description: 'x'.repeat(64 * 1024) }));
    const { session, until } = await open('legacy', false, pages(tools));
    let turns = 0;
    let isRead = false;
    const others = () => {
      turns++;
      if (!isRead) setImmediate(others);
    };
    setImmediate(others);
    const list = await session.list('tools/list', until());
    isRead = true;
    expect(list.items.map(({ key }) => key)).toEqual(tools.map(({ name }) => name));
    // 2 MiB in total, at most 256 KiB and one tool at a time.
    expect(turns).toBeGreaterThanOrEqual(6);
  });

  test('X18 of tools are bounded over all pages; other lists may be longer', async () => {
    const tools = Array.from({ length: 6_000 }, () => ({ uri: 'a' }));
    const { session, until } = await open('legacy', false, pages(tools, tools));
    await expect(session.list('tools/list', until())).rejects.toMatchObject({ details: { reason: 'too_many_items' } });
    const resources = { resources: Array.from({ length: 10_001 }, () => ({ uri: 'a' })) };
    const other = await open('legacy', false, () => ({ result: resources }));
    expect((await other.session.list('resources/list', other.until())).items).toHaveLength(10_001);
  });

  test('are as private as their most private page', async () => {
    const results = [
      { tools: [], nextCursor: 'c', ttlMs: 9, cacheScope: 'public' },
      { tools: [], ttlMs: 9 },
    ];
    const { session, until } = await open('legacy', false, () => ({ result: results.shift() }));
    expect(await session.list('tools/list', until())).toMatchObject({ ttlMs: 9, cacheScope: 'private' });
  });

  test('keep only objects', async () => {
    const { session, until } = await open('legacy', false, () => ({
      result: { tools: [0, 'x', null, { name: 'a' }, []] },
    }));
    expect((await session.list('tools/list', until())).items.map(({ key }) => key)).toEqual(['a']);
  });

  test('that end early with an unknown method are an error, not an empty list', async () => {
    const pagesOf = [{ result: { tools: [{}], nextCursor: 'c' } }, { error: { code: -32601, message: 'no' } }];
    const { session, until } = await open('legacy', false, () => pagesOf.shift());
    await expect(session.list('tools/list', until())).rejects.toMatchObject({ details: { rpcCode: -32601 } });
  });

  test('that are missing, malformed or not offered are empty', async () => {
    const odd = [
      { result: {} },
      { result: { tools: 'x' } },
      { result: null },
      { error: { code: -32601, message: 'no' } },
    ];
    const { session, until } = await open('legacy', false, () => odd.shift());
    for (let i = 0; i < 4; i++) expect((await session.list('tools/list', until())).items).toEqual([]);
  });

  test('that fail otherwise are an error with the server’s code', async () => {
    const { session, until } = await open('legacy', false, () => ({
      error: { code: -32603, message: 'fetch failed' },
    }));
    await expect(session.list('tools/list', until())).rejects.toMatchObject({ details: { rpcCode: -32603 } });
  });
});

describe('header annotations over modern HTTP', () => {
  const tool = (name: string, properties: unknown) => ({ name, inputSchema: { type: 'object', properties } });
  const tools = [
    tool('good', { region: { type: 'string', 'x-mcp-header': 'Region' }, n: { type: 'integer', 'x-mcp-header': 'N' } }),
    tool('bad', { f: { type: 'number', 'x-mcp-header': 'F' } }),
    tool('plain', { 'x-mcp-header': { type: 'string' } }),
  ];

  test('are sent as headers of the call, and tools with forbidden annotations are left out', async () => {
    const { session, channel, until } = await open('modern', true, ({ method }) => ({
      result: method === 'tools/list' ? { tools } : {},
    }));
    const list = await session.list('tools/list', until());
    expect(list.items.map(({ key }) => key)).toEqual(['good', 'plain']);
    expect([...session.droppedTools.keys()]).toEqual(['bad']);
    await session.callTool('good', '{"region":"eu","n":9007199254740993}', until());
    expect(channel.sent.at(-1)?.http).toEqual({
      name: 'good',
      params: [
        ['Region', 'eu'],
        ['N', '9007199254740993'],
      ],
    });
    await session.request('resources/read', '{"uri":"a://b"}', until());
    expect(channel.sent.at(-1)?.http).toEqual({ name: 'a://b' });
  });

  test.each([
    ['an answer', { error: { code: -32020, message: 'header' } }],
    [
      'a status',
      new HostError('protocol_error', '400', { httpStatus: 400, rpcCode: -32020, execution: 'not_executed' }),
    ],
  ])('that were unknown are read after the refusal in %s, and the call is sent once more', async (_what, refusal) => {
    let calls = 0;
    const { session, channel, methods, until } = await open('modern', true, ({ method }) => {
      if (method === 'tools/list') return { result: { tools } };
      return calls++ === 0 ? refusal : { result: {} };
    });
    const relay = { members: '"requestState":"s"', meta: '"x":1' };
    expect(await session.callTool('good', '{"region":"eu"}', { ...until(), relay })).toMatchObject({ kind: 'result' });
    expect(channel.sent.at(-1)?.http?.params).toEqual([['Region', 'eu']]);
    // Headers of the call are sent with the call only.
    const told = channel.messages.slice(-3).map(({ params }) => JSON.stringify(params).includes('"requestState":"s"'));
    expect(told).toEqual([true, false, true]);
    expect(methods().slice(1)).toEqual(['tools/call', 'tools/list', 'tools/call']);
  });
});

test('thousands of annotations cost no time, and the tool is left out', async () => {
  const many = Object.fromEntries(
    Array.from({ length: 5_000 }, (_, i) => [`p${i}`, { type: 'string', 'x-mcp-header': `H${i}` }]),
  );
  const tools = [{ name: 'bomb', inputSchema: { type: 'object', properties: many } }];
  const { session, until } = await open('modern', true, () => ({ result: { tools } }));
  expect((await session.list('tools/list', until())).items).toEqual([]);
  expect(session.droppedTools.get('bomb')).toContain('limit of 32');
});

test('an argument that is too long for its header is refused', async () => {
  const properties = { region: { type: 'string', 'x-mcp-header': 'Region' } };
  const tools = [{ name: 'far', inputSchema: { type: 'object', properties } }];
  const { session, methods, until } = await open('modern', true, () => ({ result: { tools } }));
  await session.list('tools/list', until());
  await expect(session.callTool('far', { region: 'x'.repeat(5_000) }, until())).rejects.toMatchObject({
    code: 'invalid_arguments',
    details: { field: 'region', limit: 4_096 },
  });
  expect(methods()).not.toContain('tools/call');
});

describe('liveness', () => {
  /** Sends a call and lets it time out after `ms` without a message of the server. */
  async function timedOut({ clock, session }: Awaited<ReturnType<typeof open>>, ms = 50): Promise<void> {
    const call = session.callTool('x', '{}', { deadlineAtMs: clock.nowMs() + ms }).catch(({ code }) => code as string);
    await clock.advanceAsync(ms);
    expect(await call).toBe('timeout');
  }

  test('there is no probe while no request is unanswered', async () => {
    const { clock, methods } = await open('legacy', false, () => undefined);
    await clock.advanceAsync(10_000);
    expect(methods()).not.toContain('ping');
  });

  describe.each([
    ['stdio', false],
    ['HTTP', true],
  ] as const)('over %s', (_name, http) => {
    test('W7 a server that is silent while it works on a call is neither probed nor closed', async () => {
      const told: string[] = [];
      const { clock, session, channel, methods, until } = await open('legacy', http, () => undefined, {
        missed: () => told.push('missed'),
        closed: () => told.push('closed'),
      });
      const call = session.callTool('x', '{}', until());
      await clock.advanceAsync(59_990);
      expect([told, channel.closes, methods().includes('ping'), session.unanswered]).toEqual([[], 0, false, 1]);
      const { id } = channel.messages.find(({ method }) => method === 'tools/call') as { id: number };
      channel.say({ jsonrpc: '2.0', id, result: {} });
      expect((await call).kind).toBe('result');
      await clock.advanceAsync(10_000);
      expect([told, methods().includes('ping')]).toEqual([[], false]);
    });

    test.each([
      ['legacy', 'ping'],
      ['modern', 'server/discover'],
    ] as const)(
      'W7 a silent %s server is probed with %s after its call has timed out, and closed after three misses',
      async (era, question) => {
        const parts = await open(era, http, () => undefined);
        const { clock, session, methods, channel } = parts;
        const asked = () => methods().filter((method) => method === question).length;
        const before = asked();
        channel.onSend = undefined;
        await timedOut(parts);
        await clock.advanceAsync(49);
        expect(asked()).toBe(before);
        await clock.advanceAsync(21);
        expect([asked(), channel.closes]).toEqual([before + 3, 0]);
        await clock.advanceAsync(10);
        expect(channel.closes).toBe(1);
        expect(session.closedBy).toMatchObject({
          code: 'transport',
          details: { reason: 'unresponsive', execution: 'uncertain' },
        });
      },
    );
  });

  test('W7 misses do not end the run while another call is younger than its timeout, but do after that', async () => {
    const parts = await open('legacy', false, () => undefined);
    const { clock, session, channel } = parts;
    await timedOut(parts);
    await clock.advanceAsync(65);
    const second = session
      .callTool('x', '{}', { deadlineAtMs: clock.nowMs() + 1_000 })
      .catch(({ code }) => code as string);
    await clock.advanceAsync(999);
    expect([channel.closes, session.unanswered]).toEqual([0, 1]);
    await clock.advanceAsync(1);
    expect([await second, channel.closes]).toEqual(['timeout', 0]);
    await clock.advanceAsync(40);
    expect(channel.closes).toBe(1);
  });

  test.each([
    ['its caller cancels it', 60_000, undefined],
    ['its caller allows less time than the server has', 50, 1_000],
  ])('W7 a call still counts as being worked on when %s', async (_name, deadlineMs, allowedMs) => {
    const { clock, session, channel, methods } = await open('legacy', false, () => undefined);
    const caller = new AbortController();
    const nowMs = clock.nowMs();
    const deadlineAtMs = nowMs + deadlineMs;
    const allowedUntilMs = nowMs + (allowedMs ?? deadlineMs);
    const extend = { byMs: deadlineMs, untilMs: deadlineAtMs, allowedUntilMs };
    const call = session.callTool('x', '{}', { deadlineAtMs, extend, signal: caller.signal });
    call.catch(() => {});
    await clock.advanceAsync(50);
    caller.abort();
    expect(session.unanswered).toBe(0);
    await clock.advanceAsync(allowedUntilMs - clock.nowMs() - 1);
    expect(methods()).not.toContain('ping');
    await clock.advanceAsync(40);
    expect([methods().filter((method) => method === 'ping').length, channel.closes]).toEqual([3, 1]);
  });

  test('after a cancelled call without a deadline, a hung server is closed after ten minutes', async () => {
    const { clock, session, channel } = await open('legacy', false, () => undefined);
    const caller = new AbortController();
    const deadlineAtMs = Number.POSITIVE_INFINITY;
    const call = session.callTool('x', '{}', { deadlineAtMs, signal: caller.signal });
    call.catch(() => {});
    caller.abort();
    await clock.advanceAsync(600_000);
    expect(channel.closes).toBe(0);
    await clock.advanceAsync(30);
    expect(channel.closes).toBe(1);
  });

  test('an unreadable answer counts as an answer', async () => {
    let nested: unknown = [];
    for (let i = 0; i < 200; i++) nested = [nested];
    const { session, clock } = await open('legacy', false, ({ method }) =>
      method === 'ping' ? { result: nested } : undefined,
    );
    expect(await session.probe(clock.nowMs() + 10)).toBe('alive');
  });

  test.each([
    ['is throttled', 'overloaded', 429, 'alive'],
    ['has a proxy that asks for a pause', 'overloaded', 503, 'silent'],
  ] as const)(
    'W26 a probe of a server that %s counts only if it was sent',
    async (_what, code, httpStatus, answered) => {
      const { session, clock } = await open('legacy', false, () => undefined);
      const refusal = new HostError(code, 'later', { httpStatus, retryAfterMs: 20_000 });
      session.request = () => Promise.reject(refusal);
      expect(await session.probe(clock.nowMs() + 10, 'breaker')).toBe(answered);
      session.request = () => Promise.reject(refusal.with({ phase: 'queued', execution: 'not_executed' }));
      expect(await session.probe(clock.nowMs() + 10, 'breaker')).toBe('unasked');
    },
  );

  test.each([
    ['supervisor', 'silent'],
    ['breaker', 'unasked'],
  ] as const)('W26 when the server refuses a connection, the %s gets: %s', async (asker, result) => {
    const refused = { error: { code: -32022, message: 'another era', data: { supported: [], requested: 'x' } } };
    const { session, clock, until, channel } = await open('modern', true, () => undefined);
    const earlier = session.callTool('x', '{}', until());
    earlier.catch(() => {});
    channel.onSend = ({ id, method }) => {
      if (id !== undefined && method !== 'tools/call')
        queueMicrotask(() => channel.say({ jsonrpc: '2.0', id, ...refused }));
    };
    void session.request('tools/list', undefined, until()).catch(() => {});
    await clock.advanceAsync(1);
    expect(channel.closes).toBe(0);
    const probe = session.probe(clock.nowMs() + 4_000, asker);
    await clock.advanceAsync(6_000);
    expect([await probe, channel.closes]).toEqual([result, 1]);
  });

  /** The events of the session after a call has timed out, in order. */
  async function doubted() {
    const told: string[] = [];
    const parts = await open('legacy', false, () => undefined, {
      missed: () => told.push('missed'),
      answered: () => told.push('answered'),
      closed: ({ details }) => told.push(`closed: ${details.reason}`),
    });
    await timedOut(parts);
    return { ...parts, told };
  }

  test('the first miss is reported at once and only once, long before the server is closed', async () => {
    const { clock, told } = await doubted();
    await clock.advanceAsync(59);
    expect(told).toEqual([]);
    await clock.advanceAsync(1);
    expect(told).toEqual(['missed']);
    await clock.advanceAsync(20);
    expect(told).toEqual(['missed', 'closed: unresponsive']);
  });

  test('a message after a miss makes the server live again, and a later silence is a new miss', async () => {
    const parts = await doubted();
    const { clock, channel, told } = parts;
    await clock.advanceAsync(62);
    channel.say({ jsonrpc: '2.0', method: 'notifications/message' });
    await clock.advanceAsync(8);
    expect(told).toEqual(['missed', 'answered']);
    await clock.advanceAsync(1_000);
    expect(told).toEqual(['missed', 'answered']);
    await timedOut(parts, 100);
    await clock.advanceAsync(10);
    expect(told).toEqual(['missed', 'answered', 'missed']);
    expect(channel.closes).toBe(0);
  });

  test.each([429, 500, 405])('status %i is a sign of life', async (httpStatus) => {
    const refusal = () => new HostError('overloaded', 'no', { httpStatus, execution: 'uncertain' });
    const parts = await open('legacy', true, ({ method }) => (method === 'ping' ? refusal() : undefined));
    await timedOut(parts);
    await parts.clock.advanceAsync(5_000);
    expect([parts.channel.closes, parts.methods().filter((method) => method === 'ping').length]).toEqual([0, 1]);
  });

  test('probes that fail at once are still spaced, and unsent probes do not count', async () => {
    const parts = await open('legacy', true, () => undefined);
    const { clock, channel, methods } = parts;
    await timedOut(parts);
    channel.refuseWith = new HostError('overloaded', 'full', { execution: 'not_executed', phase: 'queued' });
    await clock.advanceAsync(1_000);
    expect(channel.closes).toBe(0);
    channel.refuseWith = undefined;
    channel.onSend = ({ method }, frame) => {
      if (method === 'ping')
        queueMicrotask(() => channel.fail(frame, new HostError('transport', 'reset', { phase: 'writing' })));
    };
    await clock.advanceAsync(25);
    expect(methods().filter((method) => method === 'ping').length).toBeLessThanOrEqual(3);
    await clock.advanceAsync(200);
    expect(channel.closes).toBe(1);
  });

  test.each([
    ['nothing', 'silent'],
    ['some', 'unasked'],
  ] as const)('a probe in the pipe of a server that has read %s from the pipe results in: %s', async (read, result) => {
    const { clock, session, channel, until } = await open('legacy', false, () => undefined);
    channel.held = true;
    const calls = [1, 2].map(() => session.callTool('x', '{}', until()));
    for (const call of calls) call.catch(() => {});
    const probe = session.probe(clock.nowMs() + 10);
    if (read === 'some') channel.flushOne();
    await clock.advanceAsync(10);
    expect(await probe).toBe(result);
  });

  test('a server that reads nothing is closed after its calls have timed out', async () => {
    const parts = await open('legacy', false, () => undefined);
    parts.channel.held = true;
    await timedOut(parts);
    await parts.clock.advanceAsync(79);
    expect(parts.channel.closes).toBe(0);
    await parts.clock.advanceAsync(1);
    expect(parts.channel.closes).toBe(1);
  });

  test('a slow server that sends any message, or answers the probe with an error, is not closed', async () => {
    const parts = await open('legacy', false, ({ method }) =>
      method === 'ping' ? { error: { code: -32601, message: 'no ping here' } } : undefined,
    );
    const { clock, channel } = parts;
    await timedOut(parts);
    await clock.advanceAsync(1_000);
    for (let i = 0; i < 20; i++) {
      channel.say({ jsonrpc: '2.0', method: 'notifications/message' });
      await timedOut(parts, 90);
    }
    expect(channel.closes).toBe(0);
  });
});

test('close closes the channel and fails unanswered requests', async () => {
  const { session, channel, until } = await open('legacy', false, () => undefined);
  const call = session.callTool('x', '{}', until());
  call.catch(() => {});
  await session.close();
  await expect(call).rejects.toMatchObject({ code: 'transport' });
  expect(channel.closes).toBe(1);
});

describe('a relayed request', () => {
  const relay = { meta: '"traceparent":"00-1"', members: '"requestState":"s"', capabilities: '{"elicitation":{}}' };
  const sentBy = (channel: ScriptedChannel) => JSON.parse(String(channel.sent.at(-1)?.payload)) as object;

  test.each([
    ['legacy', { traceparent: '00-1' }],
    ['modern', { traceparent: '00-1', 'io.modelcontextprotocol/clientCapabilities': { elicitation: {} } }],
  ] as const)('sends a %s server what its caller passes, as a call or otherwise', async (era, meta) => {
    const { session, channel, until } = await open(era, false, () => ({ result: {} }));
    await new Promise((resolve) => session.callToolWithCallback('x', '{}', { ...until(), relay }, resolve));
    expect(sentBy(channel)).toMatchObject({ _meta: meta, name: 'x', requestState: 's', arguments: {} });
    await session.request('prompts/get', '{"name":"p"}', { ...until(), relay });
    expect(sentBy(channel)).toMatchObject({ _meta: meta, name: 'p', requestState: 's' });
    if (era === 'legacy') expect(JSON.stringify(sentBy(channel))).not.toContain('io.modelcontextprotocol');
  });

  test('whose server waits for an answer of the client does not make the server suspect, however long it waits', async () => {
    const handlers = { missed: () => missed.push('missed') };
    const missed: string[] = [];
    const { session, channel, clock } = await open('legacy', false, () => undefined, handlers);
    const asked: InboundRequest[] = [];
    const deadlineAtMs = clock.nowMs() + 1_100;
    const call = session.callTool('x', '{}', { deadlineAtMs, onServerRequest: (request) => asked.push(request) });
    const failed = call.catch((error: HostError) => error.code);
    const pings = () => channel.messages.filter(({ method }) => method === 'ping').length;
    channel.say({ jsonrpc: '2.0', id: 'q', method: 'elicitation/create', params: {} });
    await clock.advanceAsync(1_000);
    expect([asked.length, pings(), missed]).toEqual([1, 0, []]);
    asked[0]?.respond('{}');
    await clock.advanceAsync(200);
    expect([await failed, pings() > 0, missed, session.closedBy?.details.reason]).toEqual([
      'timeout',
      true,
      ['missed'],
      'unresponsive',
    ]);
  });
});
