import { PassThrough, Writable } from 'node:stream';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { initialize, type Json, legacy, META, modern, notice } from '../../../test/fakes/messages.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { embedder } from '../../policy/operation.js';
import { LEGACY_VERSIONS } from '../../session/eras/legacy/revisions.js';
import { MODERN_VERSION } from '../../session/eras/modern/protocol.js';
import type { Client, ClientSession, Exchange, Router } from '../exchange.js';
import { answerBytesMax, createStdioIngress, exchangesMax, pauseBytes, type StdioIngress } from './stdio-ingress.js';

/** Answers `initialize` and `echo`; everything else waits in `exchanges`. */
class FakeRouter implements Router {
  readonly exchanges: Exchange[] = [];
  readonly sessions: ClientSession[] = [];
  hasAny = true;
  hasEndpoint = () => this.hasAny;
  handle(exchange: Exchange): void {
    const { method, client, params } = exchange;
    if (method === 'initialize') return exchange.succeed(`{"protocolVersion":"${client.version}"}`);
    if (method === 'echo') return exchange.succeed('{"params":', params ?? 'null', '}');
    if (method === 'throw') throw new Error('router');
    this.exchanges.push(exchange);
  }
  opened = (session: ClientSession) => void this.sessions.push(session);
  mirroredArguments = () => undefined;
}

/** An error for a message whose id could not be read. */
const withoutId = (code: number) => ({ jsonrpc: '2.0', error: { code, message: expect.any(String) } });

let ingress: StdioIngress | undefined;
afterEach(async () => {
  await ingress?.close();
});

function open(output: Writable | undefined = undefined) {
  const router = new FakeRouter();
  const clock = new FakeClock();
  const input = new PassThrough();
  const out = new PassThrough();
  const problems: unknown[] = [];
  let text = '';
  out.on('data', (chunk: Buffer) => {
    text += chunk;
  });
  ingress = createStdioIngress({
    router,
    clock,
    input,
    output: output ?? out,
    principal: embedder,
    endpoint: { kind: 'all' },
    onProblem: (error) => problems.push(error),
  });
  const pipe = ingress;
  /** All output since the last call. */
  const writtenText = async (): Promise<string> => {
    for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
    const taken = text;
    text = '';
    return taken;
  };
  const written = async (): Promise<(Json & { id?: unknown; error?: Json; result?: Json })[]> => {
    const lines = (await writtenText()).split('\n').filter(Boolean);
    return lines.map((line) => JSON.parse(line));
  };
  const send = async (...messages: unknown[]) => {
    for (const message of messages) input.write(`${typeof message === 'string' ? message : JSON.stringify(message)}\n`);
    return written();
  };
  return { router, clock, input, out, problems, pipe, written, writtenText, send };
}

test('E4 a process is one client in both eras, and its end is reported once', async () => {
  const clients: (readonly string[])[] = [];
  for (const messages of [
    [modern(1, 'a')],
    [initialize(), notice('notifications/initialized'), legacy(1, 'a'), modern(2, 'a')],
  ]) {
    const { router, send, pipe } = open();
    const ended: string[] = [];
    Object.assign(router, { endedBeforeOpen: ({ id }: Client) => ended.push(id) });
    await send(...messages);
    const ids = new Set(router.exchanges.map(({ client }) => client.id));
    await pipe.close();
    const sessions = router.sessions.map(({ id, signal }) => (signal.aborted ? id : 'open'));
    expect([...ended, ...sessions]).toEqual([...ids]);
    clients.push([...ids]);
  }
  expect(clients.map(({ length }) => length)).toEqual([1, 1]);
  expect(new Set([...clients.flat(), embedder.id]).size).toBe(3);
});

test.each(['ended', 'destroyed'])('a client whose pipe was %s before it was served is released', async (how) => {
  const [input, output] = [new PassThrough(), new PassThrough()];
  if (how === 'destroyed') for (const stream of [input, output]) stream.destroy();
  else input.resume().end();
  await new Promise((resolve) => input.once('close', resolve));
  const ended: string[] = [];
  const router = Object.assign(new FakeRouter(), { endedBeforeOpen: ({ id }: Client) => ended.push(id) });
  ingress = createStdioIngress({
    ...{ router, clock: new FakeClock(), input, output, principal: embedder, endpoint: { kind: 'all' } },
    onProblem: (error) => expect.unreachable(String(error)),
  });
  await ingress.closed;
  expect(ended.length).toBe(1);
});

describe('the modern era', () => {
  test('a request needs no session, and its params reach the router unchanged', async () => {
    const { router, send } = open();
    const line = JSON.stringify(modern(7, 'tools/call', { arguments: { n: 1 } })).replace(
      '"n":1',
      '"n":9007199254740993',
    );
    expect(await send(line)).toEqual([]);
    const [exchange] = router.exchanges;
    expect(exchange?.params?.toString()).toContain('"n":9007199254740993');
    expect(exchange?.client).toMatchObject({ era: 'modern', version: '2026-07-28', principal: embedder });
    expect(exchange?.ask).toBeUndefined();
  });

  test('the id is returned as it was written', async () => {
    const { send, router, writtenText } = open();
    await send(
      '{"jsonrpc":"2.0","id":9007199254740993,"method":"x","params":{"_meta":'.concat(JSON.stringify(META), '}}'),
    );
    router.exchanges[0]?.succeed('{}');
    expect(await writtenText()).toBe('{"jsonrpc":"2.0","id":9007199254740993,"result":{}}\n');
  });

  test.each([
    ['no envelope and no session', legacy(1, 'tools/list'), -32602],
    [
      'no capabilities',
      legacy(1, 'tools/list', { _meta: { ...META, [Object.keys(META)[1] as string]: undefined } }),
      -32602,
    ],
    [
      'an unknown version',
      legacy(1, 'tools/list', { _meta: { ...META, [Object.keys(META)[0] as string]: '2099-01-01' } }),
      -32022,
    ],
    ['params that are a list', { ...legacy(1, 'tools/list'), params: [] }, -32602],
  ])('a request with %s is refused with its code', async (_what, message, code) => {
    const { send, router } = open();
    expect(await send(message)).toMatchObject([{ id: 1, error: { code } }]);
    expect(router.exchanges).toEqual([]);
  });

  test('supported and requested versions are reported', async () => {
    const { send } = open();
    const old = { ...META, 'io.modelcontextprotocol/protocolVersion': '2025-11-25' };
    const [answer] = await send(legacy(1, 'server/discover', { _meta: old }));
    expect(answer?.error?.data).toEqual({ supported: [MODERN_VERSION, ...LEGACY_VERSIONS], requested: '2025-11-25' });
  });
});

describe('the legacy era', () => {
  test('initialize opens the session, and the router is notified when the client continues', async () => {
    const { send, router } = open();
    expect(await send(initialize(1, '2025-06-18'))).toEqual([
      { jsonrpc: '2.0', id: 1, result: { protocolVersion: '2025-06-18' } },
    ]);
    expect(router.sessions).toEqual([]);
    await send(notice('notifications/initialized'), notice('notifications/initialized'));
    expect(router.sessions).toHaveLength(1);
    expect(router.sessions[0]?.id).not.toBe(embedder.id);
  });

  test('a client that does not wait for its handshake, or never sends initialized, gets a session too', async () => {
    const first = open();
    await first.send(initialize(1), notice('notifications/initialized'));
    expect(first.router.sessions).toHaveLength(1);
    await first.pipe.close();
    const second = open();
    await second.send(initialize(1));
    await second.send(legacy(2, 'echo'));
    expect(second.router.sessions).toHaveLength(1);
  });

  test('both eras share one pipe', async () => {
    const { send, router } = open();
    await send(initialize(0));
    const answers = await send(legacy(1, 'echo', { a: 1 }), modern(2, 'echo'), legacy(3, 'wait'), modern(4, 'wait'));
    expect(answers.map(({ id }) => id)).toEqual([1, 2]);
    expect(router.exchanges.map(({ client }) => client.era)).toEqual(['legacy', 'modern']);
  });

  test('a second initialize is refused, and one that failed can be tried again', async () => {
    const { send, router } = open();
    const handle = vi.spyOn(router, 'handle');
    handle.mockImplementationOnce((exchange) => exchange.fail({ code: -31003, message: 'denied' }));
    expect(await send(initialize(1))).toMatchObject([{ error: { code: -31003 } }]);
    expect(await send(initialize(2))).toMatchObject([{ id: 2, result: {} }]);
    expect(await send(initialize(3))).toMatchObject([{ id: 3, error: { code: -32600 } }]);
  });

  test('ping is answered by the ingress, before and after the handshake; modern clients have no ping', async () => {
    const { send, router } = open();
    expect(await send(legacy(1, 'ping'))).toMatchObject([{ id: 1, result: {} }]);
    expect(await send(initialize(2), legacy(3, 'ping'))).toMatchObject([{ id: 2 }, { id: 3, result: {} }]);
    await send(modern(4, 'ping'));
    expect(router.exchanges.map(({ method }) => method)).toEqual(['ping']);
  });

  test('notifications of the session are written at once; those of the client are not forwarded', async () => {
    const { send, router, written } = open();
    await send(initialize(), notice('notifications/initialized'));
    router.sessions[0]?.notify('notifications/tools/list_changed', undefined);
    router.sessions[0]?.notify('notifications/message', '{"level":\n"info"}');
    expect(await written()).toEqual([
      { jsonrpc: '2.0', method: 'notifications/tools/list_changed' },
      { jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info' } },
    ]);
    expect(await send(notice('notifications/roots/list_changed', { a: 1 }))).toEqual([]);
    expect(router.exchanges).toEqual([]);
  });

  test('only 2025-03-26 has batches; their answers are written together, without those of cancelled requests', async () => {
    const { send, router, written, pipe } = open();
    await send(initialize(0, '2025-03-26'));
    const batch = [
      legacy(1, 'echo'),
      legacy(2, 'wait'),
      notice('notifications/x'),
      5,
      legacy(3, 'wait'),
      modern(4, 'echo'),
    ];
    expect(await send(batch)).toEqual([]);
    router.exchanges[0]?.succeed('{}');
    expect(await written()).toEqual([]);
    const [answers] = await send(notice('notifications/cancelled', { requestId: 3 }));
    expect((answers as unknown as Json[]).map(({ id, error }) => [id, (error as Json)?.code])).toEqual([
      [1, undefined],
      [undefined, -32600],
      [4, -32600],
      [2, undefined],
    ]);
    expect(await send([notice('notifications/x')], [])).toEqual([withoutId(-32600)]);
    expect(await send(Array.from({ length: 101 }, (_, i) => legacy(i + 10, 'echo')))).toEqual([withoutId(-32600)]);
    await pipe.close();
    const other = open();
    await other.send(initialize(0, '2025-06-18'));
    expect(await other.send([legacy(1, 'echo')])).toEqual([withoutId(-32600)]);
  });
});

describe('cancelling', () => {
  test('aborts the exchange, and nothing more is written for it', async () => {
    const { send, router, written, pipe } = open();
    await send(modern('a', 'subscriptions/listen'));
    const [exchange] = router.exchanges;
    exchange?.notify('notifications/subscriptions/acknowledged', '{}');
    expect(await written()).toHaveLength(1);
    await send(notice('notifications/cancelled', { requestId: 'b' }), notice('notifications/cancelled'));
    expect(exchange?.signal.aborted).toBe(false);
    await send(notice('notifications/cancelled', { requestId: 'a' }));
    expect(exchange?.signal.aborted).toBe(true);
    exchange?.notify('notifications/progress', '{}');
    exchange?.succeed('{}');
    exchange?.fail({ code: 1, message: 'x' });
    expect(await written()).toEqual([]);
    expect(pipe.inFlight).toBe(0);
  });

  test('an id is free again once its request is over, and not before', async () => {
    const { send, router, written } = open();
    await send(modern(1, 'wait'));
    expect(await send(modern(1, 'wait'))).toMatchObject([{ id: 1, error: { code: -32600 } }]);
    router.exchanges[0]?.succeed('{}');
    router.exchanges[0]?.succeed('{}');
    expect(await written()).toHaveLength(1);
    await send(modern(1, 'wait'), modern('1', 'wait'));
    expect(router.exchanges).toHaveLength(3);
  });
});

describe('asking the client', () => {
  const asking = async () => {
    const all = open();
    await all.send(initialize(1), notice('notifications/initialized'), legacy(2, 'wait'));
    const [exchange] = all.router.exchanges;
    const ask = (deadlineAtMs = 1_000, signal?: AbortSignal) =>
      exchange?.ask?.('elicitation/create', '{"message":"?"}', { deadlineAtMs, ...(signal ? { signal } : {}) });
    return { ...all, exchange, ask };
  };

  test('an answer settles the request with its id, once', async () => {
    const { send, written, ask } = await asking();
    const [first, second] = [ask(), ask()];
    expect(await written()).toMatchObject([
      { id: 1, method: 'elicitation/create', params: { message: '?' } },
      { id: 2, method: 'elicitation/create' },
    ]);
    await send({ jsonrpc: '2.0', id: '1', result: { wrong: 1 } }, { jsonrpc: '2.0', id: 99, result: {} });
    await send(
      { jsonrpc: '2.0', id: 2, error: { code: -1, message: 'no' } },
      { jsonrpc: '2.0', id: 1, result: { right: 1 } },
    );
    await send({ jsonrpc: '2.0', id: 1, result: { late: 1 } });
    expect((await first)?.bytes.toString()).toBe('{"right":1}');
    expect(await second).toMatchObject({ kind: 'error' });
  });

  test('E13 no request is sent before the client has sent initialized', async () => {
    const { router, send, written } = open();
    await send(initialize(1), legacy(2, 'wait'));
    const asked = router.exchanges[0]?.ask?.('elicitation/create', '{}', { deadlineAtMs: 1_000 });
    expect(await written()).toEqual([]);
    expect(await send(notice('notifications/initialized'))).toMatchObject([{ id: 1, method: 'elicitation/create' }]);
    await send({ jsonrpc: '2.0', id: 1, result: {} });
    expect(await asked).toMatchObject({ kind: 'result' });
  });

  test('a deadline, a signal and the end of the request each withdraw the question', async () => {
    const { written, ask, clock, exchange } = await asking();
    const abort = new AbortController();
    const asks = [ask(500), ask(9_000, abort.signal), ask(9_000)].map((asked) => asked?.catch(({ code }) => code));
    await written();
    clock.advance(500);
    abort.abort();
    exchange?.succeed('{}');
    expect(await Promise.all(asks)).toEqual(['timeout', 'cancelled', 'cancelled']);
    const found = await written();
    expect(found.filter(({ method }) => method === 'notifications/cancelled').map(({ params }) => params)).toEqual([
      { requestId: 1 },
      { requestId: 2 },
      { requestId: 3 },
    ]);
    expect(clock.pendingTimers).toBe(0);
    await expect(ask()).rejects.toMatchObject({ code: 'cancelled' });
  });

  test('the end of the pipe ends every question to the client', async () => {
    const { ask, pipe, clock } = await asking();
    const asked = ask()?.catch(({ code }) => code);
    await pipe.close();
    expect(await asked).toBe('transport');
    expect(clock.pendingTimers).toBe(0);
  });
});

describe('bad lines', () => {
  test.each([
    ['not JSON', 'hello', -32700, undefined],
    ['half of a message', '{"jsonrpc":"2.0","id":1,"method":"x"', -32700, undefined],
    ['a number', '7', -32600, undefined],
    ['another version', '{"jsonrpc":"1.0","id":1,"method":"x"}', -32600, 1],
    ['a malformed answer', '{"jsonrpc":"2.0","id":1}', -32600, undefined],
    ['the id twice', '{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}', -32600, undefined],
    ['a key with escapes', '{"jsonrpc":"2.0","id":1,"Method":"x","method":"y"}', -32600, undefined],
    ['an id that is null', '{"jsonrpc":"2.0","id":null,"method":"x"}', -32600, undefined],
    ['an id that is an object', '{"jsonrpc":"2.0","id":{},"method":"x"}', -32600, undefined],
    ['a very long id', `{"jsonrpc":"2.0","id":"${'i'.repeat(2_000)}","method":"x"}`, -32600, undefined],
    ['a very long method', `{"jsonrpc":"2.0","id":1,"method":"${'m'.repeat(300)}"}`, -32600, 1],
    [
      'too deep',
      `{"jsonrpc":"2.0","id":1,"method":"x","params":${'['.repeat(500)}${']'.repeat(500)}}`,
      -32600,
      undefined,
    ],
    ['a batch without a session', '[]', -32600, undefined],
  ])('E13 %s: an error, with the id only where it can be read', async (_what, line, code, id) => {
    const { send } = open();
    expect(await send(line)).toEqual([id === undefined ? withoutId(code) : { ...withoutId(code), id }]);
    expect(await send(modern(5, 'echo'))).toMatchObject([{ id: 5, result: {} }]);
  });

  test('a line that is not UTF-8 is refused', async () => {
    const { input, written } = open();
    input.write(Buffer.from('{"jsonrpc":"2.0","id":1,"method":"\xff"}\n', 'latin1'));
    expect(await written()).toEqual([withoutId(-32700)]);
  });

  test('blank lines and a byte-order mark are ignored', async () => {
    const { send } = open();
    expect(await send('', '  \t', '\r', `\ufeff${JSON.stringify(modern(1, 'echo'))}\r`)).toMatchObject([{ id: 1 }]);
  });

  test('a line beyond the limit is refused once, and the next is read', async () => {
    const { input, send, written } = open();
    const part = Buffer.alloc(1024 * 1024, 'x');
    for (let i = 0; i < 10; i++) input.write(part);
    input.write('\n');
    expect(await written()).toEqual([withoutId(-32600)]);
    const whole = Buffer.concat([
      Buffer.alloc(9 * 1024 * 1024, 'y'),
      Buffer.from(`\n${JSON.stringify(modern(1, 'echo'))}\n`),
    ]);
    input.write(whole);
    expect(await send(modern(2, 'echo'))).toMatchObject([withoutId(-32600), { id: 1 }, { id: 2 }]);
  });

  test('if the router throws, the client gets -32603 and the error is reported', async () => {
    const { send, problems } = open();
    expect(await send(modern(1, 'throw'))).toMatchObject([{ id: 1, error: { code: -32603 } }]);
    expect(problems).toHaveLength(1);
  });

  test('a request to a missing endpoint is refused', async () => {
    const { send, router } = open();
    router.hasAny = false;
    expect(await send(modern(1, 'echo'))).toMatchObject([{ id: 1, error: { code: -31005 } }]);
  });
});

describe('bounds', () => {
  test(`request ${exchangesMax + 1} is refused as overloaded`, async () => {
    const { send, router, written } = open();
    const lines = Array.from({ length: exchangesMax + 1 }, (_, i) => modern(i, 'wait'));
    expect(await send(...lines)).toMatchObject([
      { id: exchangesMax, error: { code: -31015, data: { code: 'overloaded', retryable: true } } },
    ]);
    router.exchanges[0]?.succeed('{}');
    await written();
    expect(await send(modern('next', 'echo'))).toMatchObject([{ id: 'next', result: {} }]);
  });

  test('refusals of many requests beyond the bound are paced, so that accepted requests are answered first', async () => {
    const { send, router, written, clock, input } = open();
    const lines = Array.from({ length: exchangesMax + 100 }, (_, i) => modern(i, 'wait'));
    expect(await send(...lines)).toHaveLength(32);
    router.exchanges[0]?.succeed('{}');
    expect(await written()).toMatchObject([{ id: 0, result: {} }]);
    clock.advance(5);
    expect(await written()).toHaveLength(32);
    input.end();
    expect((await written()).filter(({ error }) => error)).toHaveLength(36);
  });

  test('if a client does not read, its input is paused, and its answers do not accumulate', async () => {
    const taken: (() => void)[] = [];
    let output = '';
    const slow = new Writable({
      write(chunk, _encoding, done) {
        if (chunk.length < 1_000) output += chunk;
        taken.push(done);
      },
    });
    const { router, input, written } = open(slow);
    for (let i = 0; i < 12; i++) input.write(`${JSON.stringify(modern(i, 'wait'))}\n`);
    await written();
    const big = Buffer.alloc(answerBytesMax / 8, 0x20);
    router.exchanges[0]?.succeed('{', big.subarray(0, pauseBytes), '}');
    expect(input.isPaused()).toBe(true);
    for (const exchange of router.exchanges.slice(1, 11)) exchange.succeed('{', big, '}');
    router.exchanges[11]?.notify('notifications/progress', '{}');
    for (let turn = 0; turn < 100 && input.isPaused(); turn++) {
      taken.shift()?.();
      await written();
    }
    expect(input.isPaused()).toBe(false);
    for (let turn = 0; turn < 20; turn++) {
      taken.shift()?.();
      await written();
    }
    const lines = output.split('\n').filter((line) => line.startsWith('{"jsonrpc"') && line.endsWith('}'));
    const refused = lines.map((line) => JSON.parse(line)).filter(({ error }) => error);
    expect(refused.map(({ id, error }) => [id, error.data.reason])).toEqual([
      [9, 'backpressure'],
      [10, 'backpressure'],
    ]);
    expect(output).not.toContain('notifications/progress');
  });
});

test('a session and open subscriptions are counted in the metrics while they last', async () => {
  const { send, pipe } = open();
  const figures = (legacy: number, modern: number) => ({
    clients: { legacy, modern },
    httpAnswers: {},
  });
  expect(pipe.figures()).toEqual(figures(0, 0));
  await send(initialize(1), modern(2, 'subscriptions/listen'), modern(3, 'wait'));
  expect(pipe.figures()).toEqual(figures(1, 1));
  await send(notice('notifications/cancelled', { requestId: 2 }));
  expect(pipe.figures()).toEqual(figures(1, 0));
  await pipe.close();
  expect(pipe.figures()).toEqual(figures(0, 0));
});

describe('the end', () => {
  test('after the end of the input requests in progress are answered, and then the pipe ends', async () => {
    const { input, router, pipe, written, clock } = open();
    input.write(`${JSON.stringify(initialize(0))}\n${JSON.stringify(legacy(1, 'wait'))}\n`);
    input.write(`${JSON.stringify(modern(3, 'subscriptions/listen'))}\n`);
    input.end(JSON.stringify(modern(2, 'echo')));
    expect((await written()).map(({ id }) => id)).toEqual([0, 2]);
    const [waiting, listening] = router.exchanges;
    expect([waiting?.signal.aborted, listening?.signal.aborted]).toEqual([false, true]);
    expect(pipe.inFlight).toBe(1);
    waiting?.succeed('{}');
    await pipe.closed;
    expect((await written()).map(({ id }) => id)).toEqual([1]);
    expect(router.sessions[0]?.signal.aborted).toBe(true);
    router.sessions[0]?.notify('x', undefined);
    expect([await written(), clock.pendingTimers]).toEqual([[], 0]);
  });

  test('requests are cancelled ten seconds after the end of the input, or after the time that close allows', async () => {
    const { input, router, pipe, clock, written } = open();
    input.end(`${JSON.stringify(modern(1, 'wait'))}\n`);
    await written();
    await clock.advanceAsync(9_999);
    expect(router.exchanges[0]?.signal.aborted).toBe(false);
    await clock.advanceAsync(1);
    await pipe.closed;
    expect(router.exchanges[0]?.signal.aborted).toBe(true);
    const other = open();
    await other.send(modern(1, 'wait'), modern(2, 'wait'));
    const closed = other.pipe.close(500);
    // No further request is accepted.
    expect(await other.send(modern(3, 'echo'))).toEqual([]);
    other.router.exchanges[0]?.succeed('{}');
    expect((await other.written()).map(({ id }) => id)).toEqual([1]);
    await other.clock.advanceAsync(500);
    await closed;
    expect(other.router.exchanges[1]?.signal.aborted).toBe(true);
  });

  test('the ingress does not wait for a request to a client that is gone', async () => {
    const { input, send, router } = open();
    await send(initialize(0), notice('notifications/initialized'), legacy(1, 'wait'));
    const asked = router.exchanges[0]?.ask?.('roots/list', undefined, { deadlineAtMs: 60_000 });
    input.end();
    await expect(asked).rejects.toMatchObject({ code: 'transport' });
  });

  test('a broken output ends the ingress too', async () => {
    const { out, pipe, router, send } = open();
    await send(modern(1, 'wait'));
    out.destroy(new Error('EPIPE'));
    await pipe.closed;
    expect(router.exchanges[0]?.signal.aborted).toBe(true);
  });

  test('a client that stops reading delays the end by two seconds', async () => {
    const { pipe, clock, input } = open(new Writable({ write: () => {} }));
    input.write(`${JSON.stringify(modern(1, 'echo'))}\n`);
    await new Promise((resolve) => setImmediate(resolve));
    let isClosed = false;
    const closed = pipe.close().then(() => {
      isClosed = true;
    });
    clock.advance(1_999);
    await new Promise((resolve) => setImmediate(resolve));
    expect(isClosed).toBe(false);
    clock.advance(1);
    await closed;
    expect(clock.pendingTimers).toBe(0);
  });
});
