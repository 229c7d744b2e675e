import { describe, expect, test, vi } from 'vitest';
import { legacyEra, modernEra } from '../../test/fakes/eras.js';
import { ScriptedChannel } from '../../test/fakes/scripted-channel.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { LIMITS } from '../kernel/limits.js';
import type { InboundRequest } from './inbound-requests.js';
import { Peer } from './peer.js';
import type { InboundNotification, PeerHandlers } from './peer-interface.js';
import { inboundTooLarge } from './wire-errors.js';

function connect(handlers: PeerHandlers = {}) {
  const clock = new FakeClock(1_000);
  const channel = new ScriptedChannel();
  const peer = new Peer('files', channel, clock, handlers);
  const ask = (method = 'tools/call', options = {}) =>
    peer.request(method, '{}', { deadlineAtMs: clock.nowMs() + 1_000, ...options });
  return { clock, channel, peer, ask };
}

const failureOf = (promise: Promise<unknown>): Promise<HostError> =>
  promise.then(
    () => Promise.reject(new Error('it was answered')),
    (error) => (error instanceof HostError ? error : Promise.reject(error)),
  );

describe('answers', () => {
  test('reach the request whose id they carry, in any order', async () => {
    const { channel, ask } = connect();
    const calls = [ask(), ask(), ask()];
    channel.say({ jsonrpc: '2.0', id: 3, result: 'c' });
    channel.say({ jsonrpc: '2.0', id: 1, result: 'a' });
    channel.say({ jsonrpc: '2.0', id: 2, error: { code: 1, message: 'b' } });
    const answers = await Promise.all(calls);
    expect(answers.map((answer) => [answer.kind, answer.bytes.toString()])).toEqual([
      ['result', '"a"'],
      ['error', '{"code":1,"message":"b"}'],
      ['result', '"c"'],
    ]);
  });

  test('late, repeated and unknown ones are dropped and counted', async () => {
    const { channel, peer, ask } = connect();
    const call = ask();
    channel.say({ jsonrpc: '2.0', id: '1', result: {} });
    channel.say({ jsonrpc: '2.0', id: 99, result: {} });
    channel.say({ jsonrpc: '2.0', id: 0, result: {} });
    channel.say({ jsonrpc: '2.0', id: null, error: { code: -32700, message: 'parse' } });
    channel.say({ jsonrpc: '2.0', id: 1, result: 'mine' });
    channel.say({ jsonrpc: '2.0', id: 1, result: 'again' });
    expect((await call).bytes.toString()).toBe('"mine"');
    expect(peer.counters).toMatchObject({ unknown: 4, late: 1 });
  });

  test('X18 that nest too deep to be read end the call they name, and no other', async () => {
    const { channel, ask } = connect();
    const calls = [ask(), ask()];
    let nested: unknown = [];
    for (let i = 0; i < LIMITS.depth; i++) nested = [nested];
    channel.say({ jsonrpc: '2.0', id: 1, result: nested });
    channel.say({ jsonrpc: '2.0', id: 2, result: 'fine' });
    expect(await failureOf(calls[0] as Promise<unknown>)).toMatchObject({
      code: 'protocol_error',
      details: { server: 'files', reason: 'too_deep', limit: LIMITS.depth, phase: 'answered', execution: 'uncertain' },
    });
    expect((await calls[1])?.bytes.toString()).toBe('"fine"');
  });

  test('to a request that has not been written are guesses, and are ignored', async () => {
    const { channel, peer, ask } = connect();
    channel.held = true;
    const call = ask();
    channel.say({ jsonrpc: '2.0', id: 1, result: 'guessed' });
    channel.flush();
    channel.say({ jsonrpc: '2.0', id: 1, result: 'real' });
    expect((await call).bytes.toString()).toBe('"real"');
    expect(peer.counters.unknown).toBe(1);
  });

  test('in the response stream of another request are ignored', async () => {
    const { channel, peer, ask } = connect();
    const [mine, other] = [ask(), ask()];
    channel.say({ jsonrpc: '2.0', id: 1, result: 'smuggled' }, channel.sent[1]);
    channel.say({ jsonrpc: '2.0', id: 1, result: 'mine' }, channel.sent[0]);
    channel.say({ jsonrpc: '2.0', id: 2, result: 'other' }, channel.sent[1]);
    expect((await mine).bytes.toString()).toBe('"mine"');
    expect((await other).bytes.toString()).toBe('"other"');
    expect(peer.counters.unknown).toBe(1);
  });
});

describe('deadlines', () => {
  test('D-32 are absolute, include the wait for the write, and notify the server', async () => {
    const { clock, channel, ask } = connect();
    const call = failureOf(ask());
    clock.advance(999);
    expect(channel.withdrawn).toHaveLength(0);
    clock.advance(1);
    const error = await call;
    expect(error.toJSON()).toMatchObject({
      code: 'timeout',
      phase: 'written',
      execution: 'uncertain',
      retryable: false,
    });
    expect(channel.messages.at(-1)).toMatchObject({ method: 'notifications/cancelled', params: { requestId: 1 } });
  });

  test('of a request that was never written promise that it did not run', async () => {
    const { clock, channel, ask } = connect();
    channel.held = true;
    const call = failureOf(ask());
    clock.advance(1_000);
    expect((await call).toJSON()).toMatchObject({ code: 'timeout', phase: 'queued', execution: 'not_executed' });
    expect(channel.sent).toHaveLength(0);
  });

  test('K9 that passed while a request waited to be written prevent the write, however late the timer is', async () => {
    const { clock, channel, ask } = connect();
    channel.held = true;
    const nowMs = clock.nowMs();
    const calls = [1, 5, 100].map((inMs) => failureOf(ask('a', { deadlineAtMs: nowMs + inMs })));
    // The timer wakes for the first deadline and again one step later, which is after the second deadline.
    clock.advance(6);
    expect(channel.sent).toHaveLength(2);
    channel.beforeWrite();
    channel.flush();
    expect(channel.messages.map(({ id }) => id)).toEqual([3]);
    expect((await (calls[1] as (typeof calls)[0])).toJSON()).toMatchObject({
      ...{ code: 'timeout', phase: 'queued', execution: 'not_executed' },
    });
    // The remaining request still times out.
    clock.advance(100);
    expect((await (calls[2] as (typeof calls)[0])).code).toBe('timeout');
    expect(clock.pendingTimers).toBe(0);
  });

  test('K9 expired requests are withdrawn before the server is notified of one, because the notification would write them', async () => {
    const { clock, channel, ask } = connect();
    const nowMs = clock.nowMs();
    const written = failureOf(ask('a', { deadlineAtMs: nowMs + 5 }));
    channel.held = true;
    const waiting = failureOf(ask('b', { deadlineAtMs: nowMs + 5 }));
    const send = channel.send.bind(channel);
    // As in a pipe: an urgent frame is written together with the waiting frames.
    channel.send = (frame) => {
      const refused = send(frame);
      if (frame.kind === 'notification') channel.flush();
      return refused;
    };
    clock.advance(5);
    expect((await written).details.execution).toBe('uncertain');
    expect((await waiting).toJSON()).toMatchObject({ code: 'timeout', phase: 'queued', execution: 'not_executed' });
    expect(channel.messages.map(({ method }) => method)).toEqual(['a', 'notifications/cancelled']);
  });

  test('in the past, or that are no number, refuse the request', async () => {
    const { channel, ask } = connect();
    for (const deadlineAtMs of [1_000, Number.NaN]) {
      expect((await failureOf(ask('a', { deadlineAtMs }))).details.execution).toBe('not_executed');
    }
    expect(channel.sent).toHaveLength(0);
  });

  test('share one timer, however many calls wait, and none is left behind', async () => {
    const { clock, channel, ask } = connect();
    const calls = Array.from({ length: 500 }, (_, i) => ask('a', { deadlineAtMs: 10_000 - i }));
    expect(clock.pendingTimers).toBe(1);
    for (let id = 1; id <= 500; id++) channel.say({ jsonrpc: '2.0', id, result: {} });
    await Promise.all(calls);
    clock.advance(20_000);
    expect(clock.pendingTimers).toBe(0);
  });

  test('of many calls are each kept within one step', async () => {
    const { clock, ask } = connect();
    const ended: number[] = [];
    for (let i = 0; i < 100; i++)
      ask('a', { deadlineAtMs: 2_000 + i * 7 }).catch(() => ended.push(clock.nowMs() - (2_000 + i * 7)));
    await clock.advanceAsync(5_000);
    expect(ended).toHaveLength(100);
    expect(Math.min(...ended)).toBeGreaterThanOrEqual(0);
    expect(Math.max(...ended)).toBeLessThanOrEqual(10);
  });

  test('D-32 move on with progress, but not past the hard limit', async () => {
    const { clock, channel, ask } = connect();
    const call = failureOf(ask('a', { extend: { byMs: 1_000, untilMs: 3_500 } }));
    for (let i = 0; i < 5; i++) {
      clock.advance(500);
      channel.say({ jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken: 1, progress: i } });
    }
    expect(clock.nowMs()).toBe(3_500);
    expect((await call).code).toBe('timeout');
  });

  test('D-32 a server that floods notifications and never answers is still timed out', async () => {
    const { clock, channel, ask } = connect();
    const call = failureOf(ask('a', { deadlineAtMs: 1_300 }));
    for (let i = 0; i < 30; i++) {
      clock.advance(10);
      channel.say({ jsonrpc: '2.0', method: 'notifications/message', params: {} });
    }
    expect((await call).code).toBe('timeout');
  });
});

describe('cancelling', () => {
  test('withdraws an unwritten request, and the server gets no message', async () => {
    const { channel, ask } = connect();
    channel.held = true;
    const abort = new AbortController();
    const call = failureOf(ask('a', { signal: abort.signal }));
    abort.abort();
    expect((await call).toJSON()).toMatchObject({ code: 'cancelled', execution: 'not_executed', phase: 'queued' });
    expect(channel.sent).toHaveLength(0);
  });

  test('notifies a legacy server by a notification and a modern HTTP server by ending the exchange', async () => {
    for (const [era, told] of [
      [legacyEra, 1],
      [modernEra, 0],
    ] as const) {
      const { channel, peer, ask } = connect();
      peer.adopt({ era, version: 'x' });
      const abort = new AbortController();
      const call = failureOf(ask('a', { signal: abort.signal }));
      abort.abort();
      expect((await call).details.execution).toBe('uncertain');
      expect(channel.messages.filter((message) => message.method === 'notifications/cancelled')).toHaveLength(told);
    }
  });

  test('does not cancel initialize, but only ends the wait', async () => {
    const { clock, channel, ask } = connect();
    const call = failureOf(ask('initialize', { uncancellable: true }));
    clock.advance(1_000);
    await call;
    expect(channel.messages).toHaveLength(1);
  });

  test('leaves no listener on the signal once the call is over', async () => {
    const { channel, ask } = connect();
    const { signal } = new AbortController();
    const add = vi.spyOn(signal, 'addEventListener');
    const remove = vi.spyOn(signal, 'removeEventListener');
    const call = ask('a', { signal });
    channel.say({ jsonrpc: '2.0', id: 1, result: {} });
    await call;
    expect(remove).toHaveBeenCalledTimes(add.mock.calls.length);
  });

  test('by a server that guessed an id before the request was written is ignored', async () => {
    const { channel, ask } = connect();
    channel.held = true;
    const call = ask();
    channel.say({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } });
    channel.flush();
    channel.say({ jsonrpc: '2.0', id: 1, result: {} });
    expect((await call).kind).toBe('result');
  });

  test('by the server ends our own request', async () => {
    const { channel, ask } = connect();
    const call = failureOf(ask('subscriptions/listen'));
    channel.say({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } });
    expect((await call).toJSON()).toMatchObject({ code: 'cancelled', reason: 'by_server' });
  });
});

describe('progress', () => {
  const progress = (token: unknown, more = '') =>
    `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${token},"progress":1.0${more}}}`;

  test('is matched by the id of the request, and the raw params are forwarded', async () => {
    const { channel, peer, ask } = connect();
    const seen: string[] = [];
    const watch = (name: string) => ({ onProgress: (params: Buffer) => seen.push(`${name}:${params}`) });
    expect(peer.nextId).toBe(1);
    const calls = [ask('a', watch('a')), ask('b', watch('b'))];
    channel.say(progress(2));
    channel.say(progress(1));
    // Neither a string nor an unknown number.
    for (const token of ['"1"', '3', 'null', '[1]']) channel.say(progress(token));
    expect(seen).toEqual(['b:{"progressToken":2,"progress":1.0}', 'a:{"progressToken":1,"progress":1.0}']);
    channel.say({ jsonrpc: '2.0', id: 1, result: {} });
    channel.say({ jsonrpc: '2.0', id: 2, result: {} });
    await Promise.all(calls);
    channel.say(progress(1));
    expect(seen).toHaveLength(2);
    expect(peer.counters.late).toBe(5);
  });

  test('of a request with the params of an earlier one is matched by the token in them', async () => {
    const { channel, ask } = connect();
    const seen: string[] = [];
    const call = ask('a', { progressToken: 41, onProgress: (params: Buffer) => seen.push(String(params)) });
    channel.say(progress(41));
    expect(seen).toEqual(['{"progressToken":41,"progress":1.0}']);
    channel.say({ jsonrpc: '2.0', id: 1, result: {} });
    await call;
    channel.say(progress(41));
    expect(seen).toHaveLength(1);
  });

  test('of a request that was not written yet is a guess, and extends no deadline', async () => {
    const { channel, clock, ask } = connect();
    channel.held = true;
    const call = failureOf(ask('a', { extend: { byMs: 5_000, untilMs: 50_000 } }));
    channel.say(progress(1));
    clock.advance(1_000);
    expect((await call).code).toBe('timeout');
  });
});

describe('loss of the connection', () => {
  test('settles each call once, also one that is given up in the callback of another', () => {
    const { channel, peer, clock } = connect();
    const told: string[] = [];
    const second = new AbortController();
    const options = { deadlineAtMs: clock.nowMs() + 1_000 };
    peer.requestWithCallback('a', '{}', options, (outcome) => {
      told.push(`a ${(outcome as HostError).code}`);
      second.abort();
    });
    peer.requestWithCallback('b', '{}', { ...options, signal: second.signal }, (outcome) =>
      told.push(`b ${(outcome as HostError).code}`),
    );
    channel.lose(new HostError('transport', 'gone'));
    expect(told).toEqual(['a transport', 'b cancelled']);
  });

  test('settles every call by its own phase, and later calls at once', async () => {
    const { channel, ask } = connect();
    const written = failureOf(ask());
    channel.held = true;
    const queued = failureOf(ask());
    channel.lose(new HostError('transport', 'gone', { reason: 'exit', exitCode: 3 }));
    expect((await written).toJSON()).toMatchObject({
      code: 'transport',
      reason: 'exit',
      exitCode: 3,
      phase: 'written',
      execution: 'uncertain',
    });
    expect((await queued).toJSON()).toMatchObject({ phase: 'queued', execution: 'not_executed', retryable: true });
    expect((await failureOf(ask())).details.execution).toBe('not_executed');
  });

  test('is reported once, and leaves no timer', () => {
    const closed = vi.fn();
    const { channel, clock, ask } = connect({ closed });
    ask().catch(() => {});
    channel.lose(new HostError('transport', 'gone'));
    channel.lose(new HostError('transport', 'gone again'));
    expect(closed).toHaveBeenCalledTimes(1);
    expect(clock.pendingTimers).toBe(0);
  });

  test('of one exchange fails that request alone', async () => {
    const { channel, ask } = connect();
    const [first, second] = [failureOf(ask()), ask()];
    channel.fail(channel.sent[0] as never, new HostError('transport', 'reset', { execution: 'uncertain' }));
    channel.say({ jsonrpc: '2.0', id: 2, result: {} });
    expect((await first).message).toBe('reset');
    expect((await second).kind).toBe('result');
  });
});

describe('messages that the server sends on its own', () => {
  test('ping is answered with the same id, digit by digit', () => {
    const { channel } = connect();
    channel.say('{"jsonrpc":"2.0","id":18446744073709551615,"method":"ping"}');
    expect(channel.sent.map((frame) => frame.head + frame.payload + frame.tail)).toEqual([
      '{"jsonrpc":"2.0","id":18446744073709551615,"result":{}}',
    ]);
  });

  test('an unknown request is refused with -32601 without a handler', () => {
    const { channel } = connect();
    channel.say({ jsonrpc: '2.0', id: 'x', method: 'sampling/createMessage', params: {} });
    expect(channel.messages).toMatchObject([{ id: 'x', error: { code: -32601 } }]);
  });

  test('a request is delivered raw, answered once, and its cancellation is delivered', () => {
    const asked: InboundRequest[] = [];
    const { channel, ask } = connect({ request: (request) => asked.push(request) });
    ask().catch(() => {});
    channel.say('{"jsonrpc":"2.0","id":"e1","method":"elicitation/create","params":{"n":1.0}}', channel.sent[0]);
    channel.say('{"jsonrpc":"2.0","id":"e2","method":"elicitation/create"}');
    channel.say({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'e2' } });
    const [first, second] = asked as [InboundRequest, InboundRequest];
    expect([first.params?.toString(), first.origin, second.origin]).toEqual(['{"n":1.0}', 1, undefined]);
    expect([first.signal.aborted, second.signal.aborted]).toEqual([false, true]);
    first.respond('{"action":"accept"}');
    first.respond('{"action":"twice"}');
    second.respond('{"action":"too late"}');
    expect(channel.messages.slice(1)).toEqual([{ jsonrpc: '2.0', id: 'e1', result: { action: 'accept' } }]);
  });

  test('a legacy server cancels its own request, never a request of Hostler with the same id', async () => {
    const asked: InboundRequest[] = [];
    const { channel, peer, ask } = connect({ request: (request) => asked.push(request) });
    peer.adopt({ era: legacyEra, version: '2025-11-25' });
    const [first, second] = [ask(), ask()];
    const takesBack = (requestId: number) =>
      channel.say({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } });
    channel.say({ jsonrpc: '2.0', id: 1, method: 'elicitation/create', params: {} });
    takesBack(1);
    expect(asked[0]?.signal.aborted).toBe(true);
    // Too late: the question had already ended.
    takesBack(1);
    takesBack(2);
    channel.say({ jsonrpc: '2.0', id: 1, result: 'a' });
    channel.say({ jsonrpc: '2.0', id: 2, result: 'b' });
    expect([(await first).bytes.toString(), (await second).bytes.toString()]).toEqual(['"a"', '"b"']);
  });

  test('answers to pings that are not read are bounded', () => {
    const { channel } = connect();
    channel.held = true;
    for (let id = 0; id < 1_000; id++) channel.say({ jsonrpc: '2.0', id, method: 'ping' });
    expect(channel.sent).toHaveLength(64);
    channel.flush();
    channel.say({ jsonrpc: '2.0', id: 1_000, method: 'ping' });
    expect(channel.sent).toHaveLength(65);
  });

  test('requests that hold more bytes than the limit are refused', () => {
    const { channel } = connect({ request: () => {} });
    const message = 'x'.repeat(4_000_000);
    for (let id = 0; id < 6; id++)
      channel.say({ jsonrpc: '2.0', id, method: 'elicitation/create', params: { message } });
    expect(channel.messages.map(({ id }) => id)).toEqual([4, 5]);
  });

  test('an answer that is not one JSON value is refused before it is sent', () => {
    const asked: InboundRequest[] = [];
    const { channel } = connect({ request: (request) => asked.push(request) });
    channel.say({ jsonrpc: '2.0', id: 1, method: 'roots/list' });
    expect(() => asked[0]?.respond('{}},"x":{')).toThrow(HostError);
    asked[0]?.respond('{}');
    expect(channel.messages).toEqual([{ jsonrpc: '2.0', id: 1, result: {} }]);
  });

  test('more open requests than the limit are refused', () => {
    const { channel } = connect({ request: () => {} });
    for (let id = 0; id <= LIMITS.inboundRequests; id++) channel.say({ jsonrpc: '2.0', id, method: 'roots/list' });
    expect(channel.messages).toMatchObject([{ id: LIMITS.inboundRequests, error: { code: -32603 } }]);
  });

  test('a request with the id of an open request is refused, and the error names the cause', () => {
    const { channel } = connect({ request: () => {} });
    for (const method of ['roots/list', 'elicitation/create']) channel.say({ jsonrpc: '2.0', id: 7, method });
    expect(channel.messages).toMatchObject([
      { id: 7, error: { code: -32603, message: expect.stringContaining('id is open') } },
    ]);
  });

  test('requests of a modern server violate the protocol, and are dropped and counted', () => {
    const { channel, peer } = connect({ request: (request) => request.respond('{}') });
    peer.adopt({ era: modernEra, version: '2026-07-28' });
    channel.say({ jsonrpc: '2.0', id: 1, method: 'sampling/createMessage' });
    expect([channel.sent.length, peer.counters.forbidden]).toEqual([0, 1]);
  });

  test('a handler that throws affects nothing else', async () => {
    const errors: unknown[] = [];
    const { channel, ask } = connect({
      notification: () => {
        throw new Error('handler');
      },
      request: () => {
        throw new Error('handler');
      },
      handlerError: (error) => errors.push(error),
    });
    const call = ask();
    channel.say({ jsonrpc: '2.0', method: 'notifications/tools/list_changed' });
    channel.say({ jsonrpc: '2.0', id: 5, method: 'roots/list' });
    channel.say({ jsonrpc: '2.0', id: 1, result: {} });
    expect((await call).kind).toBe('result');
    expect(errors).toHaveLength(2);
    expect(channel.messages.at(-1)).toMatchObject({ id: 5, error: { code: -32603 } });
  });

  test('notifications are delivered with raw params while no request is in progress', () => {
    const seen: InboundNotification[] = [];
    const { channel } = connect({ notification: (notification) => seen.push(notification) });
    channel.say('{"jsonrpc":"2.0","method":"notifications/x","params":{"n":9007199254740993}}');
    expect(seen.map(({ method, params }) => [method, params?.toString()])).toEqual([
      ['notifications/x', '{"n":9007199254740993}'],
    ]);
  });
});

test('more requests than the limit are refused, and the error names the limit', async () => {
  const { ask } = connect();
  for (let i = 0; i < LIMITS.pendingRequests; i++) ask().catch(() => {});
  expect((await failureOf(ask())).toJSON()).toMatchObject({
    code: 'overloaded',
    reason: 'pending_requests',
    limit: LIMITS.pendingRequests,
    execution: 'not_executed',
  });
});

test('if the channel refuses a call, it is rejected and forgotten', async () => {
  const { channel, peer, ask } = connect();
  channel.refuseWith = new HostError('overloaded', 'full', { execution: 'not_executed' });
  expect((await failureOf(ask())).code).toBe('overloaded');
  expect(peer.pending.unanswered).toBe(0);
});

test('a message above the limit is refused before anything is written, and the error names the limit', async () => {
  const { channel, peer, clock } = connect();
  const params = Buffer.alloc(LIMITS.frameBytes, 'x');
  const error = await failureOf(peer.request('tools/call', params, { deadlineAtMs: clock.nowMs() + 1_000 }));
  expect(error.toJSON()).toMatchObject({
    code: 'invalid_arguments',
    reason: 'frame_too_large',
    limit: LIMITS.frameBytes,
    execution: 'not_executed',
    server: 'files',
  });
  expect([channel.sent.length, peer.pending.unanswered]).toEqual([0, 0]);
});

test('W14 an answer that is too large fails the request it names; the others lose their connection', async () => {
  const { channel, ask } = connect();
  const calls = [ask(), ask()];
  channel.held = true;
  calls.push(ask());
  const failures = calls.map(failureOf);
  const error = inboundTooLarge('files', 9_000_000);
  channel.tooLarge(2, error);
  // Neither an unsent nor an unknown request can have this answer.
  for (const id of [3, 99]) channel.tooLarge(id, error);
  channel.lose(error);
  const told = (await Promise.all(failures)).map(({ code, details }) => [code, details.phase, details.execution]);
  expect(told).toEqual([
    ['transport', 'written', 'uncertain'],
    ['result_too_large', 'answered', 'uncertain'],
    ['transport', 'queued', 'not_executed'],
  ]);
  const [bystander] = await Promise.all(failures);
  expect(bystander?.details.reason).toBe('frame_too_large');
  expect(bystander?.message).toBe(
    "server 'files' sent a message of more than 8388608 bytes, which ended the connection",
  );
  expect(bystander?.hint).toMatch(/may have run/);
});

test('more unanswered requests allow larger batches, up to a limit', () => {
  const { channel, ask } = connect();
  for (let i = 0; i < 200; i++) ask().catch(() => {});
  expect([0, 3, 7, 15, 63, 199].map((at) => channel.sent[at]?.batch)).toEqual([1, 1, 2, 4, 16, 16]);
});

test('the batch size stays large after many callers were answered together, and shrinks if only one calls again', async () => {
  const { channel, ask } = connect();
  const calls = Array.from({ length: 16 }, () => ask());
  for (let id = 1; id <= 16; id++) channel.say({ jsonrpc: '2.0', id, result: {} });
  await Promise.all(calls);
  const batches: (number | undefined)[] = [];
  for (let id = 17; id < 2_000; id++) {
    const call = ask();
    batches.push(channel.sent.at(-1)?.batch);
    channel.say({ jsonrpc: '2.0', id, result: {} });
    await call;
  }
  expect([batches[0], batches.at(-1)]).toEqual([4, 1]);
});

test('a long-lived request does not count as unanswered', async () => {
  const { clock, channel, peer, ask } = connect();
  let clears = 0;
  peer.onClear = () => clears++;
  const listening = failureOf(
    ask('subscriptions/listen', { deadlineAtMs: Number.POSITIVE_INFINITY, isLongLived: true }),
  );
  const call = ask();
  expect(peer.pending.unanswered).toBe(1);
  channel.say({ jsonrpc: '2.0', id: 2, result: {} });
  await call;
  expect([peer.pending.unanswered, clears]).toEqual([0, 1]);
  clock.advance(1_000_000_000);
  await peer.abandon(new HostError('transport', 'gone'));
  expect([(await listening).code, peer.pending.unanswered]).toEqual(['transport', 0]);
});
