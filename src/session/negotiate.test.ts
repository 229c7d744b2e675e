import { describe, expect, test } from 'vitest';
import { ScriptedChannel } from '../../test/fakes/scripted-channel.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { Era } from '../wire/channel.js';
import { createEraMemory, type EraMemory } from './eras/eras.js';
import { legacyEra } from './eras/legacy/legacy-era.js';
import { openSession } from './open-session.js';

type Reply = Record<string, unknown> | 'silence' | 'exit' | 'broken pipe' | { httpStatus: number };

const discovered = { supportedVersions: ['2026-07-28'], capabilities: { tools: { x: 1 } }, instructions: 'be kind' };
const initialized = {
  protocolVersion: '2025-06-18',
  capabilities: { tools: {} },
  serverInfo: { name: 's', vendor: true },
};
const unknownMethod = { error: { code: -32601, message: 'unknown' } };

/** A server that answers each method as the test says, on any kind of channel. */
function start(
  script: Record<string, Reply>,
  {
    kind = 'memory',
    remembered,
    eras = createEraMemory(),
  }: { kind?: ScriptedChannel['kind'] | 'stdio' | 'streamable-http'; remembered?: Era; eras?: EraMemory } = {},
) {
  const clock = new FakeClock();
  const channels: ScriptedChannel[] = [];
  const variants: string[] = [];
  const closed: HostError[] = [];
  if (remembered) eras.opened('srv', remembered);
  const session = openSession({
    server: 'srv',
    client: { name: 'hostler', version: '0', capabilities: { roots: {} } },
    clock,
    eras,
    startTimeoutMs: 10_000,
    clean: (text) => text,
    handlers: { closed: (error) => closed.push(error) },
    open: (variant) => {
      variants.push(variant);
      const channel = new ScriptedChannel();
      Object.defineProperty(channel, 'kind', { value: variant === 'http-sse' ? 'http-sse' : kind });
      let sent = 0;
      channel.onSend = ({ id, method }, frame) => {
        sent += 1;
        const nth = `${method}#${channels.length}`;
        const reply = script[`${nth}.${sent}`] ?? script[nth] ?? script[method as string];
        if (reply === undefined || reply === 'silence') return;
        queueMicrotask(() => {
          if (reply === 'exit') channel.lose(new HostError('transport', 'exited', { reason: 'exit', exitCode: 1 }));
          else if (reply === 'broken pipe') {
            channel.fail(frame, new HostError('transport', 'closed its input', { reason: 'stdin_closed' }));
            channel.lose(new HostError('transport', 'closed its input; said: no key', { reason: 'stdin_closed' }));
          } else if ('httpStatus' in reply) {
            channel.fail(frame, new HostError('protocol_error', 'http', { httpStatus: reply.httpStatus as number }));
          } else channel.say({ jsonrpc: '2.0', id, ...('error' in reply ? reply : { result: reply }) });
        });
      };
      channels.push(channel);
      return Promise.resolve(channel);
    },
  });
  session.catch(() => {});
  const methods = () => channels.map((channel) => channel.messages.map((message) => message.method));
  return { clock, session, channels, methods, eras, variants, closed };
}

describe('on a pipe', () => {
  test('a modern server is recognised by its answer to server/discover; every request carries the envelope', async () => {
    const { session, channels, methods, eras } = start({ 'server/discover': discovered });
    const { facts } = await session;
    expect(facts).toMatchObject({ era: 'modern', version: '2026-07-28', instructions: 'be kind' });
    expect(facts.capabilities.toString()).toBe('{"tools":{"x":1}}');
    expect(methods()).toEqual([['server/discover']]);
    expect(channels[0]?.messages[0]).toMatchObject({
      params: {
        _meta: {
          'io.modelcontextprotocol/protocolVersion': '2026-07-28',
          'io.modelcontextprotocol/clientInfo': { name: 'hostler', version: '0' },
          'io.modelcontextprotocol/clientCapabilities': { roots: {} },
        },
      },
    });
    expect(eras.get('srv')).toBe('modern');
  });

  test('an unknown method error for server/discover means legacy, and initialize is sent on the same pipe', async () => {
    const { session, methods, eras, channels } = start({ 'server/discover': unknownMethod, initialize: initialized });
    expect((await session).facts).toMatchObject({ era: 'legacy', version: '2025-06-18' });
    expect((await session).facts.serverInfo?.toString()).toBe('{"name":"s","vendor":true}');
    expect(methods()).toEqual([['server/discover', 'initialize', 'notifications/initialized']]);
    expect(channels[0]?.agreement).toEqual({ era: legacyEra, version: '2025-06-18' });
    expect(eras.get('srv')).toBe('legacy');
  });

  test('a remembered era is not negotiated again', async () => {
    const { session, methods } = start({ initialize: initialized }, { remembered: 'legacy' });
    await session;
    expect(methods()).toEqual([['initialize', 'notifications/initialized']]);
  });

  test('if server/discover gets no answer, initialize is sent after it, and nothing is cancelled', async () => {
    const { session, clock, methods } = start({ 'server/discover': 'silence', initialize: initialized });
    await clock.advanceAsync(2_001);
    expect((await session).facts.era).toBe('legacy');
    expect(methods()).toEqual([['server/discover', 'initialize', 'notifications/initialized']]);
  });

  test.each([
    ['refuses initialize', { error: { code: -32601, message: 'unknown' } }],
    ['answers both', { result: initialized }],
  ])(
    'a modern server that starts slowly and %s counts as modern, and no legacy session is opened',
    async (_what, second) => {
      const { session, clock, channels, methods } = start({ 'server/discover': 'silence', initialize: 'silence' });
      await clock.advanceAsync(3_000);
      channels[0]?.say([
        { jsonrpc: '2.0', id: 1, result: discovered },
        { jsonrpc: '2.0', id: 2, ...second },
      ]);
      await clock.advanceAsync(1);
      expect((await session).facts.era).toBe('modern');
      expect(channels[0]?.agreement).toMatchObject({ era: { name: 'modern' } });
      expect(methods()[0]).not.toContain('notifications/initialized');
    },
  );

  test('an answer to server/discover that arrives after the answer to initialize changes nothing', async () => {
    const { session, clock, channels } = start({ 'server/discover': 'silence', initialize: initialized });
    await clock.advanceAsync(3_000);
    expect((await session).facts.era).toBe('legacy');
    channels[0]?.say({ jsonrpc: '2.0', id: 1, result: discovered });
    await clock.advanceAsync(1);
    expect(channels[0]?.agreement).toMatchObject({ era: { name: 'legacy' } });
  });

  test('for a slow legacy server that refuses server/discover, the initialize already sent opens the session', async () => {
    const { session, clock, channels, methods } = start({ 'server/discover': 'silence', initialize: 'silence' });
    await clock.advanceAsync(3_000);
    channels[0]?.say({ jsonrpc: '2.0', id: 1, ...unknownMethod });
    channels[0]?.say({ jsonrpc: '2.0', id: 2, result: initialized });
    await clock.advanceAsync(1);
    expect((await session).facts.era).toBe('legacy');
    expect(methods()[0]?.filter((method) => method === 'initialize')).toHaveLength(1);
  });

  test('an empty result is no answer to server/discover', async () => {
    const { session } = start({ 'server/discover': {}, initialize: initialized });
    expect((await session).facts.era).toBe('legacy');
  });

  test('capabilities that are no object count as none', async () => {
    const { session } = start({ 'server/discover': unknownMethod, initialize: { ...initialized, capabilities: null } });
    expect((await session).facts.capabilities.toString()).toBe('{}');
  });

  test('a server that exits at server/discover is legacy and is started once more', async () => {
    const { session, methods } = start({ 'server/discover': 'exit', initialize: initialized }, { kind: 'stdio' });
    expect((await session).facts.era).toBe('legacy');
    expect(methods()).toEqual([['server/discover'], ['initialize', 'notifications/initialized']]);
  });

  test('a server that exits every time is started only twice', async () => {
    const { session, channels } = start({ 'server/discover': 'exit', initialize: 'exit' }, { kind: 'stdio' });
    await expect(session).rejects.toMatchObject({ code: 'transport', details: { reason: 'exit', exitCode: 1 } });
    expect(channels.map((channel) => channel.closes)).toEqual([1, 1]);
  });

  test('a server whose pipe breaks before its exit is seen is refused with its stderr', async () => {
    const { session } = start({ 'server/discover': 'broken pipe' }, { kind: 'stdio' });
    await expect(session).rejects.toMatchObject({ message: 'closed its input; said: no key' });
  });

  test('a server that answers server/discover and exits at initialize is started once more', async () => {
    const script = { 'server/discover': unknownMethod, 'initialize#1': 'exit', initialize: initialized } as const;
    const { session, channels } = start(script, { kind: 'stdio' });
    expect((await session).facts.era).toBe('legacy');
    expect(channels).toHaveLength(2);
  });

  test('a remembered era that is wrong is forgotten', async () => {
    const { session, eras } = start(
      { 'server/discover': discovered, initialize: unknownMethod },
      { remembered: 'legacy' },
    );
    expect((await session).facts.era).toBe('modern');
    expect(eras.get('srv')).toBe('modern');
  });

  describe('W21 start after start', () => {
    const dead = { 'server/discover': 'exit', initialize: 'exit' } as const;

    /** The first request to each process of each start. */
    async function startsOf(scripts: readonly Record<string, Reply>[], eras = createEraMemory()) {
      const asked: (string | undefined)[][] = [];
      for (const script of scripts) {
        const { session, methods } = start(script, { kind: 'stdio', eras });
        await session.catch(() => {});
        asked.push(methods().map(([first]) => first as string));
      }
      return asked;
    }

    const knownIn = (era: Era) => {
      const eras = createEraMemory();
      eras.opened('srv', era);
      return eras;
    };

    test('an unknown server that exits gets a second process only in its first start', async () => {
      const asked = await startsOf(Array.from({ length: 6 }, () => dead));
      expect(asked.map((processes) => processes.length)).toEqual([2, 1, 1, 1, 1, 1]);
      // Every third start tries the other era first.
      expect(asked.slice(1).flat()).toEqual([
        'server/discover',
        'initialize',
        'server/discover',
        'server/discover',
        'initialize',
      ]);
    });

    test.each([
      ['legacy', ['initialize', 'initialize', 'server/discover', 'initialize']],
      ['modern', ['server/discover', 'server/discover', 'initialize', 'server/discover']],
    ] as const)('a server known to be %s that exits has one process for each start', async (era, questions) => {
      expect(await startsOf([dead, dead, dead, dead], knownIn(era))).toEqual(questions.map((question) => [question]));
    });

    test('a server that exits at server/discover is recognised by its third start at the latest, and remembered after the next', async () => {
      const old = { 'server/discover': 'exit', initialize: initialized } as const;
      const eras = createEraMemory();
      const asked = await startsOf([dead, old, old, old, old], eras);
      expect(asked).toEqual([
        ['server/discover', 'initialize'],
        ['server/discover'],
        ['initialize'],
        ['server/discover', 'initialize'],
        ['initialize'],
      ]);
      expect(eras.get('srv')).toBe('legacy');
    });

    test('a server of both eras that starts when legacy is tried is not remembered as legacy', async () => {
      const both = { 'server/discover': discovered, initialize: initialized };
      const eras = knownIn('modern');
      expect(await startsOf([dead, dead, both, both], eras)).toEqual([
        ['server/discover'],
        ['server/discover'],
        ['initialize'],
        ['server/discover'],
      ]);
      expect(eras.get('srv')).toBe('modern');
    });

    test('a modern server that refuses initialize is asked with server/discover in the same start', async () => {
      const modern = { 'server/discover': discovered, initialize: unknownMethod };
      const eras = createEraMemory();
      expect(await startsOf([dead, dead, modern], eras)).toEqual([
        ['server/discover', 'initialize'],
        ['server/discover'],
        ['initialize', 'server/discover'],
      ]);
      expect([eras.get('srv'), eras.failedStarts('srv')]).toEqual(['modern', 0]);
    });
  });

  test('failed attempts are not reported as the end of a session', async () => {
    const { session, closed } = start({ 'server/discover': 'exit', initialize: 'exit' }, { kind: 'stdio' });
    await expect(session).rejects.toMatchObject({ code: 'transport' });
    expect(closed).toEqual([]);
  });

  test('a server that never answers is closed at the start limit', async () => {
    const { session, clock, channels } = start({});
    await clock.advanceAsync(10_000);
    await expect(session).rejects.toMatchObject({
      code: 'timeout',
      message: expect.stringMatching(/did not become ready within 10s$/),
      details: { reason: 'start_timeout', limit: 10_000 },
    });
    expect(channels.map((channel) => channel.closes)).toEqual([1]);
    expect(clock.pendingTimers).toBe(0);
  });
});

describe('versions', () => {
  test('-32022 with an old version in its list means legacy', async () => {
    const tooNew = {
      error: { code: -32022, message: 'v', data: { supported: ['2025-11-25'], requested: '2026-07-28' } },
    };
    const { session } = start({ 'server/discover': tooNew, initialize: initialized });
    expect((await session).facts.era).toBe('legacy');
  });

  describe.each(['memory', 'streamable-http'] as const)(
    'a server that refuses, with -32022, a version that it offers, over %s',
    (kind) => {
      const refused = (...supported: string[]) => ({
        error: { code: -32022, message: 'v', data: { supported, requested: '2026-07-28' } },
      });

      test('is asked once more', async () => {
        const script = { 'server/discover#1.1': refused('2026-07-28'), 'server/discover': discovered };
        const { session, methods } = start(script, { kind });
        expect((await session).facts).toMatchObject({ era: 'modern', version: '2026-07-28' });
        expect(methods()).toEqual([['server/discover', 'server/discover']]);
      });

      test('is asked no more than twice', async () => {
        const { session, methods } = start({ 'server/discover': refused('2026-07-28') }, { kind });
        await expect(session).rejects.toMatchObject({ details: { reason: 'no_common_version' } });
        expect(methods()).toEqual([['server/discover', 'server/discover']]);
      });

      test('is legacy when it keeps refusing and also offers an older version', async () => {
        const script = { 'server/discover': refused('2026-07-28', '2025-11-25'), initialize: initialized };
        const { session, methods } = start(script, { kind });
        expect((await session).facts.era).toBe('legacy');
        expect(methods()).toEqual([['server/discover', 'server/discover', 'initialize', 'notifications/initialized']]);
      });
    },
  );

  test.each([
    ['in server/discover', { 'server/discover': { supportedVersions: ['2031-01-01'] } }],
    [
      'in -32022',
      { 'server/discover': { error: { code: -32022, message: 'v', data: { supported: ['2031-01-01'] } } } },
    ],
    [
      'in initialize',
      { 'server/discover': unknownMethod, initialize: { ...initialized, protocolVersion: '1999-01-01' } },
    ],
    ['at all', { 'server/discover': unknownMethod, initialize: {} }],
  ])('no common version %s is reported as no_common_version', async (_where, script) => {
    const { session, channels } = start(script as unknown as Record<string, Reply>);
    await expect(session).rejects.toMatchObject({ code: 'protocol_error', details: { reason: 'no_common_version' } });
    expect(channels[0]?.closes).toBe(1);
  });

  test('an error of initialize is reported with the code of the server', async () => {
    const { session } = start({
      'server/discover': unknownMethod,
      initialize: { error: { code: -7, message: 'no\u001b[31m' } },
    });
    await expect(session).rejects.toMatchObject({ code: 'protocol_error', details: { rpcCode: -7 } });
    const error = (await session.catch((thrown: unknown) => thrown)) as Error;
    expect(error.message).toContain('\\u{1b}');
  });
});

describe('over HTTP', () => {
  const http = { kind: 'streamable-http' } as const;

  test.each([400, 404, 405, 406])('%i to server/discover means legacy', async (httpStatus) => {
    const { session } = start({ 'server/discover': { httpStatus }, initialize: initialized }, http);
    expect((await session).facts.era).toBe('legacy');
  });

  test.each([401, 403, 429, 500, 503])(
    'status %i gives no evidence about the era and is reported as the error',
    async (httpStatus) => {
      const { session, methods } = start({ 'server/discover': { httpStatus }, initialize: initialized }, http);
      await expect(session).rejects.toMatchObject({ details: { httpStatus } });
      expect(methods()).toEqual([['server/discover']]);
    },
  );

  test('HTTP+SSE is tried after both eras were refused', async () => {
    const script = {
      'server/discover': { httpStatus: 404 },
      'initialize#1': { httpStatus: 405 },
      initialize: initialized,
    };
    const { session, variants, methods } = start(script, http);
    expect((await session).facts.era).toBe('legacy');
    expect(variants).toEqual(['default', 'http-sse']);
    expect(methods()[1]).toEqual(['initialize', 'notifications/initialized']);
  });

  test('a JSON-RPC error with a modern code means modern', async () => {
    const script = { 'server/discover': { error: { code: -32020, message: 'headers' } }, initialize: initialized };
    const { session, methods } = start(script, http);
    await expect(session).rejects.toMatchObject({ details: { rpcCode: -32020 } });
    expect(methods()).toEqual([['server/discover']]);
  });
});
