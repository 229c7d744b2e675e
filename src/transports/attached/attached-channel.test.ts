import { describe, expect, test } from 'vitest';
import { modernEra } from '../../../test/fakes/eras.js';
import { RecordingListener, request } from '../../../test/fakes/http-listener.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { LIMITS } from '../../kernel/limits.js';
import { notificationFrame, type OutboundFrame } from '../../wire/channel.js';
import type { AttachableTransport } from './attachable.js';
import { AttachedChannel, closeMsMax } from './attached-channel.js';

interface Sent {
  readonly id: number;
  readonly method: string;
}

/** A transport that does nothing by itself. */
class PassiveTransport implements AttachableTransport {
  onmessage?: (message: unknown, extra?: unknown) => unknown;
  onclose?: () => void;
  onerror?: (error: Error) => void;
  readonly sent: Sent[] = [];
  readonly options: unknown[] = [];
  closes = 0;
  start = async () => {};
  send = async (message: Sent, options?: unknown) => {
    this.sent.push(message);
    this.options.push(options);
  };
  close = async () => {
    this.closes++;
  };
}

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

async function open(transport: AttachableTransport & object = new PassiveTransport()) {
  const clock = new FakeClock();
  const problems: unknown[] = [];
  const onProblem = (error: unknown) => void problems.push(error);
  const channel = new AttachedChannel('x', transport, { clock, cleanText: (text) => text, onProblem });
  const listener = new RecordingListener();
  channel.start(listener);
  await settle();
  return { channel, listener, clock, problems, transport: transport as PassiveTransport };
}

/** Sends the frame and waits until the transport has received it. */
async function sent(channel: AttachedChannel, frame: OutboundFrame = request('tools/call')): Promise<OutboundFrame> {
  expect(channel.send(frame)).toBeUndefined();
  await settle();
  return frame;
}

const answer = (id: number | undefined, result: unknown = {}) => ({ jsonrpc: '2.0', id, result });

describe('to the server', () => {
  test('frames are delivered in order, as separate objects, after the start of the transport and never inside send', async () => {
    const transport = new PassiveTransport();
    let isStarted = () => {};
    transport.start = () =>
      new Promise((resolve) => {
        isStarted = resolve;
      });
    const { channel } = await open(transport);
    const frames = [request('a'), request('b'), request('c')];
    for (const frame of frames) channel.send(frame);
    await settle();
    expect([transport.sent, frames[0]?.phase]).toEqual([[], 'queued']);
    isStarted();
    await settle();
    expect(transport.sent.map(({ method }) => method)).toEqual(['a', 'b', 'c']);
    channel.send(request('d'));
    expect(transport.sent).toHaveLength(3);
  });

  test('E23 a transport may answer inside its own send', async () => {
    const transport = new PassiveTransport();
    transport.send = async ({ id }) => void transport.onmessage?.(answer(id, { now: true }));
    const { channel, listener } = await open(transport);
    const frame = request('tools/call');
    channel.send(frame);
    expect(listener.messages).toEqual([]);
    await listener.settled(frame);
    expect(listener.answerTo(frame)?.text).toBe('{"now":true}');
  });

  test('a waiting frame is withdrawn unsent, and a sent frame needs a cancellation', async () => {
    const { channel, transport } = await open();
    const waiting = request('a');
    channel.send(waiting);
    expect(channel.withdraw(waiting)).toBe('unsent');
    expect(channel.withdraw(await sent(channel, request('b')))).toBe('notify');
    expect(transport.sent.map(({ method }) => method)).toEqual(['b']);
  });

  test('E23 an error or wrong result of send fails only its own request, and is not thrown elsewhere', async () => {
    const { channel, listener, transport } = await open();
    const works = transport.send;
    const textless = Object.assign(new Error('x'), { message: Object.create(null) });
    const returned = Promise.resolve();
    void Object.defineProperty(returned, 'constructor', {
      get: () => {
        throw textless;
      },
    });
    for (const send of [() => Promise.reject(textless), () => returned]) {
      transport.send = send;
      await sent(channel);
    }
    transport.send = () => {
      throw textless;
    };
    await sent(channel);
    transport.send = works;
    const last = await sent(channel);
    expect(listener.failures.map(({ error }) => error.details.reason)).toEqual(Array(3).fill('send_failed'));
    transport.onmessage?.({
      jsonrpc: '2.0',
      id: last.id,
      result: {
        toJSON: () => {
          throw textless;
        },
      },
    });
    expect(listener.failures.at(-1)?.error.details.reason).toBe('not_json');
  });

  test('a failed send fails its own request; for a notification the failure is ignored', async () => {
    const { channel, listener, transport } = await open();
    const works = transport.send;
    transport.send = async () => {
      throw new Error('no route');
    };
    channel.send(notificationFrame('notifications/x', '{}'));
    const frame = await sent(channel);
    transport.send = () => {
      throw new Error('at once');
    };
    const other = await sent(channel);
    transport.send = works;
    const last = await sent(channel);
    transport.onmessage?.(answer(last.id));
    expect(listener.failures.map(({ frame: { id }, error }) => [id, error.code, error.details.execution])).toEqual([
      [frame.id, 'transport', 'uncertain'],
      [other.id, 'transport', 'uncertain'],
    ]);
    expect([listener.failureOf(frame)?.message, listener.ends.length, listener.answerTo(last)?.text]).toEqual([
      "server 'x': its transport could not send: no route",
      0,
      '{}',
    ]);
  });

  test.each([
    [{ code: 404 }, 'protocol_error', 404, 'not_executed'],
    [{ status: 400 }, 'protocol_error', 400, 'not_executed'],
    [{ status: 503 }, 'transport', 503, 'uncertain'],
    [{ code: 401 }, 'needs_reauth', 401, 'not_executed'],
    [{ name: 'UnauthorizedError' }, 'needs_reauth', 401, 'not_executed'],
    [{ code: -1 }, 'transport', undefined, 'uncertain'],
  ])(
    'E23 a status of an SDK transport is reported, and the transport manages its session itself: %j',
    async (facts, ...expected) => {
      const { channel, listener, transport } = await open();
      transport.send = () => Promise.reject(Object.assign(new Error('refused'), facts));
      const error = listener.failureOf(await sent(channel));
      expect([error?.code, error?.details.httpStatus, error?.details.execution]).toEqual(expected);
      expect(listener.ends).toEqual([]);
    },
  );

  test('E23 bytes that the transport has not sent are bounded, and are released when they are sent', async () => {
    const { channel, transport } = await open();
    const pending: Array<() => void> = [];
    transport.send = () => new Promise((resolve) => pending.push(resolve));
    const half = (): OutboundFrame => ({ ...request('big'), bytes: LIMITS.outboundBytes / 2 });
    await sent(channel, half());
    const second = await sent(channel, half());
    expect(channel.send(half())).toMatchObject({ code: 'overloaded', details: { execution: 'not_executed' } });
    expect(channel.withdraw(second)).toBe('notify');
    await sent(channel, half());
    for (const resolve of pending) resolve();
    await settle();
    expect(channel.send(half())).toBeUndefined();
  });

  test('with a stream for each request a modern request is cancelled by ending its stream, and headers are sent with it', async () => {
    const transport = Object.assign(new PassiveTransport(), { hasPerRequestStream: true });
    const { channel, listener } = await open(transport);
    const frame = await sent(channel, request('tools/call', {}, { params: [['Region', 'é']] }));
    const options = transport.options[0] as {
      requestSignal: AbortSignal;
      headers: object;
      onRequestStreamEnd: () => void;
    };
    expect([options.headers, channel.mirrorsHeaders]).toEqual([{ 'Mcp-Param-Region': expect.any(String) }, true]);
    channel.adopt({ era: modernEra, version: '2026-07-28' });
    expect([channel.withdraw(frame), options.requestSignal.aborted]).toEqual(['aborted', true]);
    const other = await sent(channel);
    (transport.options[1] as typeof options).onRequestStreamEnd();
    expect(listener.failureOf(other)).toMatchObject({ code: 'transport', details: { execution: 'uncertain' } });
  });
});

describe('from the server', () => {
  const cyclic: { self?: unknown } = {};
  cyclic.self = cyclic;
  const throwing = {
    get boom() {
      throw new Error('boom');
    },
  };

  test.each([
    ['a cycle', cyclic, 'protocol_error'],
    ['a BigInt', { n: 1n }, 'protocol_error'],
    ['a getter that throws', throwing, 'protocol_error'],
    ['more nested levels than the stack holds', deep(100_000), 'protocol_error'],
    ['more bytes than a frame', { text: 'x'.repeat(LIMITS.frameBytes) }, 'result_too_large'],
  ])('E23 an answer with %s fails its request alone, and the server gets the error', async (_title, result, code) => {
    const { channel, listener, transport } = await open();
    const [frame, other] = [await sent(channel), await sent(channel)];
    const refusal = transport.onmessage?.(answer(frame.id, result));
    expect(listener.failureOf(frame)).toMatchObject({ code, details: { phase: 'answered', execution: 'uncertain' } });
    expect([refusal, channel.counters.junk]).toEqual([expect.objectContaining({ code }), 1]);
    transport.onmessage?.(answer(other.id));
    expect([listener.answerTo(other)?.text, listener.ends]).toEqual(['{}', []]);
  });

  test('E23 the limits of the text apply: depth, batches, and junk', async () => {
    const { channel, listener, transport } = await open();
    const frame = await sent(channel);
    for (const junk of ['text', 7, null, undefined, () => {}, { jsonrpc: '2.0' }, Array(101).fill(answer(1))])
      transport.onmessage?.(junk);
    // A batch of more than 100 is cut or refused, never delivered whole.
    expect(listener.messages.length).toBeLessThanOrEqual(LIMITS.batch);
    const before = channel.counters.junk;
    transport.onmessage?.(answer(frame.id, deep(LIMITS.depth + 1)));
    expect(channel.counters.junk).toBe(before + 1);
  });

  test('E23 relatedRequestId names the request that a message belongs to, also after it has ended', async () => {
    const { channel, listener, transport } = await open();
    const [first, second] = [await sent(channel), await sent(channel)];
    const log = { jsonrpc: '2.0', method: 'notifications/message', params: {} };
    const say = (relatedRequestId?: unknown) => {
      transport.onmessage?.(log, { relatedRequestId });
      return listener.messages.at(-1)?.origin;
    };
    expect([say(first.id), say(second.id), say()]).toEqual([first, second, undefined]);
    transport.onmessage?.(answer(first.id), { relatedRequestId: second.id });
    expect(listener.messages.at(-1)).toMatchObject({ kind: 'result', origin: undefined });
    // A frame without an id is no request in progress, so the message reaches no client.
    for (const ended of [first.id, 4711, 'a', {}]) expect(say(ended)).toMatchObject({ id: undefined });
    channel.withdraw(second);
    expect(say(second.id)).toMatchObject({ id: undefined });
  });
});

describe('the end', () => {
  test('a start that fails closes the channel with its cause', async () => {
    const transport = new PassiveTransport();
    const cause = new Error('no such host');
    transport.start = () => Promise.reject(cause);
    const { channel, listener } = await open(transport);
    expect(listener.ends).toMatchObject([{ code: 'connect_failed', cause }]);
    expect(channel.send(request('a'))).toMatchObject({ code: 'transport', details: { execution: 'not_executed' } });
  });

  test('E23 messages after the close are ignored, and handlers of the application are still called', async () => {
    const transport = new PassiveTransport();
    const own: string[] = [];
    transport.onclose = () => void own.push('close');
    transport.onerror = ({ message }) => {
      own.push(message);
      throw new Error('handler');
    };
    const { listener, problems } = await open(transport);
    transport.onerror?.(new Error('reset'));
    transport.onclose?.();
    transport.onclose?.();
    expect(transport.onmessage?.(answer(1))).toMatchObject({ code: 'transport', details: { reason: 'closed' } });
    expect([own, listener.ends.length, listener.late, listener.messages]).toEqual([
      ['reset', 'close', 'close'],
      1,
      0,
      [],
    ]);
    expect(listener.ends[0]).toMatchObject({ code: 'transport', cause: { message: 'reset' } });
    expect(problems).toMatchObject([{ message: 'handler' }]);
  });

  test('E23 the object is closed once, whichever side closes first', async () => {
    const { channel, listener, transport } = await open();
    transport.onclose?.();
    await Promise.all([channel.close(), channel.close()]);
    expect([transport.closes, listener.ends.length, listener.late]).toEqual([1, 1, 0]);
  });

  test('E23 an object that does not close is abandoned after 5 s, and that is reported', async () => {
    const { channel, transport, clock, problems, listener } = await open();
    transport.close = () => new Promise(() => {});
    let isClosed = false;
    const closing = channel.close().then(() => {
      isClosed = true;
    });
    expect(listener.ends).toHaveLength(1);
    await clock.advanceAsync(closeMsMax - 1);
    expect([isClosed, problems]).toEqual([false, []]);
    await clock.advanceAsync(1);
    await closing;
    const message = expect.stringMatching(/did not settle within 5s$/);
    expect([closeMsMax, problems]).toEqual([5_000, [expect.objectContaining({ code: 'timeout', message })]]);
    expect([clock.pendingTimers, problems[0]]).toMatchObject([0, { details: { reason: 'close_timeout' } }]);
  });

  test.each([
    ['throws', () => throwNow()],
    ['rejects', () => Promise.reject(new Error('stuck'))],
  ])('a close that %s is reported, and still ends the channel', async (_title, close) => {
    const { channel, transport, clock, problems } = await open();
    transport.close = close;
    await channel.close();
    expect([clock.pendingTimers, problems]).toMatchObject([0, [{ details: { reason: 'close_failed' } }]]);
  });
});

function throwNow(): never {
  throw new Error('stuck');
}

function deep(levels: number): unknown {
  let value: unknown = 1;
  for (let i = 0; i < levels; i++) value = [value];
  return value;
}
