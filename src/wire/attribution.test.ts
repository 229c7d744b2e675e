import { describe, expect, test } from 'vitest';
import { ScriptedChannel } from '../../test/fakes/scripted-channel.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { InboundRequest } from './inbound-requests.js';
import { Peer } from './peer.js';
import type { PeerHandlers, RequestOptions } from './peer-interface.js';

const minute = 60_000;

/** A peer whose server is the test, and callers that record the questions and notifications they get. */
function setUp(handlers: PeerHandlers = {}, isShared = true) {
  const clock = new FakeClock(1_000);
  const channel = new ScriptedChannel();
  const peer = new Peer('files', channel, clock, handlers, { isShared });
  const asked: [who: string, request: InboundRequest][] = [];
  const told: string[] = [];
  const outcomes: string[] = [];
  const call = (who: string, options: Partial<RequestOptions> = {}, method = 'tools/call') => {
    const done = (outcome: unknown) =>
      outcomes.push(
        outcome instanceof HostError ? outcome.code : 'wasAsked' in (outcome as object) ? `${who} asked` : `${who} ok`,
      );
    peer.requestWithCallback(
      method,
      '{}',
      {
        deadlineAtMs: clock.nowMs() + minute,
        onServerRequest: (request) => asked.push([who, request]),
        onServerNotification: (name) => told.push(`${who} ${name}`),
        ...options,
      },
      done,
    );
    return peer.nextId - 1;
  };
  const frameOf = (id: number) => channel.sent.find((frame) => frame.id === id);
  const elicit = (origin?: number, id: number | string = 'q') =>
    channel.say(
      { jsonrpc: '2.0', id, method: 'elicitation/create', params: {} },
      origin === undefined ? undefined : frameOf(origin),
    );
  const note = (method: string, origin?: number) =>
    channel.say({ jsonrpc: '2.0', method, params: {} }, origin === undefined ? undefined : frameOf(origin));
  const reply = (id: number) => channel.say({ jsonrpc: '2.0', id, result: {} });
  /** The answers that the server got. */
  const answers = () => channel.messages.filter(({ method }) => method === undefined);
  const whom = () => asked.map(([who]) => who);
  return { clock, channel, peer, asked, whom, told, outcomes, call, elicit, note, reply, answers };
}

const errorOf = (message: Record<string, unknown> | undefined) => message?.error as { code: number; message: string };

describe('a question of the server', () => {
  test('goes to the only request that can be its cause, whatever own requests of Hostler are in progress', () => {
    const { peer, call, elicit, whom, answers, asked, outcomes, reply } = setUp();
    for (const method of ['ping', 'tools/list', 'subscriptions/listen', 'resources/subscribe', 'server/discover'])
      void peer.request(method, undefined, { deadlineAtMs: 10 * minute }).catch(() => {});
    const id = call('ann', {}, 'prompts/get');
    elicit();
    expect(whom()).toEqual(['ann']);
    asked[0]?.[1].respond('{"action":"accept"}');
    expect(answers()).toEqual([{ jsonrpc: '2.0', id: 'q', result: { action: 'accept' } }]);
    reply(id);
    expect(outcomes).toEqual(['ann asked']);
  });

  test('goes to no client while two requests could be the cause, and the answers of both are marked with `wasAsked`', () => {
    const { peer, call, elicit, whom, answers, outcomes, reply } = setUp();
    const ids = [call('ann'), call('bob')];
    elicit();
    expect(whom()).toEqual([]);
    expect(errorOf(answers()[0])).toEqual({
      code: -32603,
      message:
        'ambiguous: 2 requests are in progress, Hostler does not guess which one asked; set isolation: per-client',
    });
    expect(peer.counters.unattributed).toBe(1);
    for (const id of ids) reply(id);
    expect(outcomes).toEqual(['ann asked', 'bob asked']);
  });

  test('considers only requests that were written', () => {
    const { channel, call, elicit, whom } = setUp();
    call('ann');
    channel.held = true;
    call('bob');
    elicit();
    expect(whom()).toEqual(['ann']);
  });

  test('goes to the request in whose stream it came, and to no client if that request has ended', () => {
    const { call, elicit, whom, answers, reply } = setUp();
    const [ann, bob] = [call('ann'), call('bob')];
    elicit(bob, 'q1');
    elicit(ann, 'q2');
    expect(whom()).toEqual(['bob', 'ann']);
    reply(bob);
    elicit(bob, 'q3');
    expect([whom().length, errorOf(answers().at(-1))]).toEqual([
      2,
      { code: -32603, message: 'the request that caused this has ended' },
    ]);
  });

  test('is refused if its owner accepts no questions, and otherwise goes to the handler of the connection', () => {
    const { call, elicit, answers } = setUp();
    call('ann', { onServerRequest: undefined });
    elicit();
    expect(errorOf(answers()[0])).toEqual({
      code: -32601,
      message: 'the client cannot be asked for elicitation/create',
    });
    const heard: string[] = [];
    const whole = setUp({ request: ({ method }) => heard.push(method) });
    whole.call('ann', { onServerRequest: undefined });
    whole.elicit(undefined, 'q1');
    whole.call('bob');
    whole.elicit(undefined, 'q2');
    expect([heard, whole.whom()]).toEqual([['elicitation/create', 'elicitation/create'], []]);
  });

  test('on a connection of one client goes to its newest request, even if there are abandoned requests', () => {
    const { call, elicit, whom, answers } = setUp({}, false);
    const stop = new AbortController();
    call('gone', { signal: stop.signal });
    call('old');
    call('new');
    stop.abort();
    elicit();
    expect([whom(), answers()]).toEqual([['new'], []]);
  });

  test('is answered with an error if its handler throws, and the error is reported once', () => {
    const errors: unknown[] = [];
    const { call, elicit, answers } = setUp({ handlerError: (error) => errors.push(error) });
    call('ann', {
      onServerRequest: () => {
        throw new Error('mine');
      },
    });
    elicit();
    expect([errors.length, errorOf(answers()[0]).code]).toEqual([1, -32603]);
  });
});

describe('a question that comes before any request', () => {
  const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

  test('waits for the first request of the only client, and belongs to it from then on', async () => {
    const { peer, clock, call, elicit, whom, answers, asked } = setUp({}, false);
    elicit(undefined, 'q1');
    elicit(undefined, 'q2');
    void peer.request('tools/list', undefined, { deadlineAtMs: 10 * minute }).catch(() => {});
    await settle();
    clock.advance(4_999);
    expect([whom(), answers(), peer.openServerRequests]).toEqual([[], [], 2]);
    const stop = new AbortController();
    call('ann', { signal: stop.signal });
    await settle();
    call('new');
    expect(whom()).toEqual(['ann', 'ann']);
    asked[0]?.[1].respond('{}');
    clock.advance(5_000);
    expect(answers()).toEqual([{ jsonrpc: '2.0', id: 'q1', result: {} }]);
    stop.abort();
    expect([peer.openServerRequests, asked[1]?.[1].signal.aborted]).toEqual([0, true]);
  });

  test('is refused after five seconds, if its client cannot be asked, and if too many questions wait', async () => {
    const { clock, call, elicit, answers, whom } = setUp({}, false);
    for (let i = 0; i < 17; i++) elicit(undefined, i);
    const refusal = { code: -32601, message: 'this client does not offer elicitation/create' };
    expect(answers()).toEqual([{ jsonrpc: '2.0', id: 16, error: refusal }]);
    clock.advance(5_000);
    expect(answers().length).toBe(17);
    elicit(undefined, 'q');
    call('ann', { onServerRequest: undefined });
    await settle();
    expect([errorOf(answers().at(-1)).message, whom()]).toEqual([
      'the client cannot be asked for elicitation/create',
      [],
    ]);
    expect(clock.pendingTimers).toBe(1);
  });

  test('ends with the connection, or when the server cancels it', async () => {
    const { clock, channel, peer, call, elicit, whom } = setUp({}, false);
    elicit(undefined, 'q1');
    channel.say({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'q1' } });
    call('ann');
    await settle();
    expect([whom(), peer.openServerRequests]).toEqual([[], 0]);
    const other = setUp({}, false);
    other.elicit();
    await other.peer.close();
    expect([other.clock.pendingTimers, clock.pendingTimers]).toEqual([0, 1]);
  });

  test('is refused at once if several clients share the server', () => {
    const { elicit, answers } = setUp();
    elicit();
    expect(errorOf(answers()[0]).code).toBe(-32601);
  });
});

describe('an abandoned request', () => {
  const abandoned = () => {
    const world = setUp();
    const stop = new AbortController();
    const id = world.call('gone', { signal: stop.signal });
    stop.abort();
    return { ...world, id };
  };

  test('may still be the cause: no other client is asked', () => {
    const { call, elicit, whom, answers } = abandoned();
    call('ann');
    elicit();
    expect([whom(), errorOf(answers()[0]).code]).toEqual([[], -32603]);
  });

  test('is forgotten when its late answer comes', () => {
    const { call, elicit, whom, reply, id } = abandoned();
    call('ann');
    reply(id);
    elicit();
    expect(whom()).toEqual(['ann']);
  });

  test('is forgotten five seconds after the server was notified, and not before', () => {
    const { clock, call, elicit, whom, answers } = abandoned();
    call('ann');
    clock.advance(4_999);
    elicit(undefined, 'q1');
    expect([whom(), errorOf(answers()[0]).message]).toEqual([
      [],
      'ambiguous: 1 request is in progress and 1 was given up and may still be at work, Hostler does not guess which one asked; set isolation: per-client',
    ]);
    clock.advance(1);
    elicit(undefined, 'q2');
    expect(whom()).toEqual(['ann']);
  });

  test('that ended by its deadline is also forgotten five seconds after the server was notified', () => {
    const { clock, call, elicit, whom, answers } = setUp();
    call('gone', { deadlineAtMs: 2_000 });
    clock.advance(1_000);
    elicit(undefined, 'q1');
    expect(errorOf(answers()[0]).message).toMatch(/^ambiguous: 1 request was given up and may still be at work, /);
    call('ann');
    clock.advance(5_000);
    elicit(undefined, 'q2');
    expect(whom()).toEqual(['ann']);
  });

  test('is a possible cause for five minutes if the server was not notified', () => {
    const { clock, channel, call, elicit, whom } = setUp();
    const stop = new AbortController();
    call('gone', { signal: stop.signal });
    channel.refuseWith = new HostError('overloaded', 'the pipe is full');
    stop.abort();
    channel.refuseWith = undefined;
    call('ann', { deadlineAtMs: 20 * minute });
    clock.advance(5 * minute - 1);
    elicit(undefined, 'q1');
    expect(whom()).toEqual([]);
    clock.advance(1);
    elicit(undefined, 'q2');
    expect(whom()).toEqual(['ann']);
  });

  test('is a possible cause as long as its cancellation waits to be written', () => {
    const { clock, channel, call, elicit, whom } = setUp();
    const stop = new AbortController();
    call('gone', { signal: stop.signal });
    call('ann', { deadlineAtMs: 20 * minute });
    channel.held = true;
    stop.abort();
    clock.advance(minute);
    elicit(undefined, 'q1');
    channel.flush();
    clock.advance(4_999);
    elicit(undefined, 'q2');
    expect(whom()).toEqual([]);
    clock.advance(1);
    elicit(undefined, 'q3');
    expect(whom()).toEqual(['ann']);
  });

  test('is a possible cause also after a timeout or a broken stream, but not if it was refused or never sent', () => {
    const late = setUp();
    late.call('gone', { deadlineAtMs: 2_000 });
    late.clock.advance(2_000);
    late.call('ann');
    late.elicit();
    const broken = setUp();
    broken.call('gone');
    const lost = new HostError('transport', 'the stream ended', { execution: 'uncertain' });
    broken.channel.fail(broken.channel.sent[0] as never, lost);
    broken.call('ann');
    broken.elicit();
    const refused = setUp();
    refused.call('gone');
    refused.channel.fail(refused.channel.sent[0] as never, lost.with({ httpStatus: 500 }));
    refused.call('ann');
    refused.elicit();
    const unsent = setUp();
    unsent.channel.held = true;
    const stop = new AbortController();
    unsent.call('gone', { signal: stop.signal });
    stop.abort();
    unsent.channel.held = false;
    unsent.call('ann');
    unsent.elicit();
    expect([late, broken, refused, unsent].map(({ whom }) => whom())).toEqual([[], [], ['ann'], ['ann']]);
  });

  test('is forgotten together with a thousand others, five seconds after the newest of them', () => {
    const { clock, call, elicit, whom, reply } = setUp();
    const stops = Array.from({ length: 1_001 }, () => {
      const stop = new AbortController();
      return { stop, id: call('gone', { signal: stop.signal }) };
    });
    for (const { stop } of stops) stop.abort();
    for (const { id } of stops) reply(id);
    call('ann', { deadlineAtMs: 20 * minute });
    elicit(undefined, 'q1');
    clock.advance(5_000);
    elicit(undefined, 'q2');
    expect(whom()).toEqual(['ann']);
  });
});

describe('while a question is open', () => {
  const extend = { byMs: minute, untilMs: 10 * minute };

  test('its call does not time out before ten minutes', () => {
    const { clock, call, elicit, asked, outcomes } = setUp();
    call('ann', { extend });
    elicit();
    clock.advance(10 * minute - 1_001);
    expect(outcomes).toEqual([]);
    clock.advance(1);
    expect([outcomes, asked[0]?.[1].signal.aborted]).toEqual([['timeout'], true]);
  });

  test('its answer starts the time limit of the call anew', () => {
    const { clock, call, elicit, asked, outcomes } = setUp();
    call('ann', { extend });
    elicit();
    clock.advance(5 * minute);
    asked[0]?.[1].respond('{}');
    clock.advance(minute - 1);
    expect(outcomes).toEqual([]);
    clock.advance(1);
    expect(outcomes).toEqual(['timeout']);
  });

  test('its call is not the cause of the next question, if there is one other call', () => {
    const { clock, call, elicit, whom, answers } = setUp();
    call('ann');
    elicit(undefined, 'q1');
    call('bob');
    clock.advance(250);
    elicit(undefined, 'q2');
    expect([whom(), errorOf(answers()[0]).code]).toEqual([['ann'], -32603]);
    clock.advance(1);
    elicit(undefined, 'q3');
    expect(whom()).toEqual(['ann', 'bob']);
    // Both calls wait now, and a third question may belong to either of them.
    clock.advance(minute / 2);
    elicit(undefined, 'q4');
    call('cid');
    call('dan');
    elicit(undefined, 'q5');
    expect([whom(), answers().length]).toEqual([['ann', 'bob'], 3]);
  });

  test('its call may cause more questions while it is the only call', () => {
    const { clock, call, elicit, whom } = setUp();
    call('ann');
    elicit(undefined, 'q1');
    clock.advance(1_000);
    elicit(undefined, 'q2');
    expect(whom()).toEqual(['ann', 'ann']);
  });

  test('its call may still be the cause of a notification', () => {
    const { clock, call, elicit, note, told } = setUp();
    call('ann');
    elicit();
    call('bob');
    clock.advance(1_000);
    note('notifications/message');
    expect(told).toEqual([]);
  });

  test('its call keeps its deadline if it has no `extend`', () => {
    const { clock, call, elicit, outcomes } = setUp();
    call('ann');
    elicit();
    clock.advance(minute);
    expect(outcomes).toEqual(['timeout']);
  });

  test('the end of its call ends the question, and the server gets no answer', () => {
    const { call, elicit, asked, answers, peer } = setUp();
    const stop = new AbortController();
    call('ann', { signal: stop.signal });
    elicit();
    const [, request] = asked[0] as (typeof asked)[0];
    expect([request.signal.aborted, peer.openServerRequests]).toEqual([false, 1]);
    stop.abort();
    request.respond('{"action":"accept"}');
    expect([request.signal.aborted, peer.openServerRequests, answers()]).toEqual([true, 0, []]);
  });
});

describe('a notification of the server', () => {
  test('goes to the only request that can be its cause, otherwise to the handler of the connection', () => {
    const heard: string[] = [];
    const { call, note, told } = setUp({ notification: ({ method }) => heard.push(method) });
    const ann = call('ann');
    note('notifications/message');
    call('bob');
    note('notifications/message');
    note('notifications/message', ann);
    expect([told, heard]).toEqual([
      ['ann notifications/message', 'ann notifications/message'],
      ['notifications/message'],
    ]);
  });

  test('a completed URL elicitation is attributed by the stream of its call, or on a connection of one client', () => {
    const method = 'notifications/elicitation/complete';
    const shared = setUp();
    const ann = shared.call('ann');
    shared.note(method);
    expect(shared.told).toEqual([]);
    shared.note(method, ann);
    const own = setUp({}, false);
    own.call('bob');
    own.note(method);
    expect([shared.told, own.told]).toEqual([[`ann ${method}`], [`bob ${method}`]]);
  });

  test.each([
    'notifications/tools/list_changed',
    'notifications/resources/updated',
    'notifications/subscriptions/acknowledged',
  ])('%s is for the whole connection', (method) => {
    const heard: string[] = [];
    const { call, note, told } = setUp({ notification: (notification) => heard.push(notification.method) });
    call('ann');
    note(method);
    expect([told, heard]).toEqual([[], [method]]);
  });
});

describe('E3 requests of several clients on one connection', () => {
  const refused =
    'ambiguous: a request that ended in the last 30 s may still be at work, Hostler does not guess which one asked; set isolation: per-client';
  const twoClients = () => {
    const noticed: string[] = [];
    const world = setUp({ unattributed: (method) => noticed.push(method) });
    const as = (client: string, options: Partial<RequestOptions> = {}, method?: string) =>
      world.call(client, { client, deadlineAtMs: 20 * minute, ...options }, method);
    return { ...world, as, noticed };
  };

  test.each([300, 1_500, 29_999])(
    'E3 a question %i ms after the call of another client ended reaches no client',
    (ms) => {
      const { clock, as, elicit, reply, whom, answers, peer, noticed, outcomes } = twoClients();
      reply(as('ann'));
      clock.advance(ms);
      const bob = as('bob');
      elicit();
      expect([whom(), errorOf(answers()[0])]).toEqual([[], { code: -32603, message: refused }]);
      expect([peer.counters.unattributed, noticed]).toEqual([1, ['elicitation/create']]);
      // The answer to the call may depend on the refusal, so it is not cached.
      reply(bob);
      expect(outcomes).toEqual(['ann ok', 'bob asked']);
    },
  );

  test('E3 30 s after the last request of another client ended, the only call in progress gets the question', () => {
    const { clock, as, elicit, note, reply, whom, told } = twoClients();
    reply(as('ann'));
    as('bob');
    clock.advance(30_000);
    elicit();
    note('notifications/message');
    expect([whom(), told]).toEqual([['bob'], ['bob notifications/message']]);
  });

  test('E3 earlier calls of the same client change nothing', () => {
    const { as, elicit, note, reply, whom, told } = twoClients();
    reply(as('ann'));
    as('ann');
    elicit();
    note('notifications/message');
    expect([whom(), told]).toEqual([['ann'], ['ann notifications/message']]);
  });

  test('E3 a log line after the call of another client ended reaches no client, and is reported to operators', () => {
    const { clock, as, note, reply, told, peer, noticed } = twoClients();
    reply(as('ann'));
    note('notifications/message');
    // Nothing was in progress: no client misses anything.
    expect(peer.counters.unattributed).toBe(0);
    as('bob');
    clock.advance(1_500);
    note('notifications/message');
    expect([told, peer.counters.unattributed, noticed]).toEqual([[], 1, ['notifications/message']]);
  });

  test('E3 progress is attributed by its token, whatever has ended', () => {
    const { channel, as, reply } = twoClients();
    const ann = as('ann');
    reply(ann);
    const heard: string[] = [];
    const bob = as('bob', { onProgress: (params) => heard.push(String(params)) });
    for (const progressToken of [ann, bob])
      channel.say({ jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken } });
    expect(heard).toEqual([JSON.stringify({ progressToken: bob })]);
  });

  test('E3 an abandoned request of another client counts as ended, and again when its late answer comes', () => {
    const { clock, as, elicit, whom } = twoClients();
    const stop = new AbortController();
    as('ann', { signal: stop.signal });
    stop.abort();
    as('bob');
    clock.advance(29_999);
    elicit(undefined, 'q1');
    expect(whom()).toEqual([]);
    clock.advance(1);
    elicit(undefined, 'q2');
    expect(whom()).toEqual(['bob']);
    const late = twoClients();
    const untold = new AbortController();
    const hers = late.as('ann', { signal: untold.signal });
    late.channel.refuseWith = new HostError('overloaded', 'the pipe is full');
    untold.abort();
    late.channel.refuseWith = undefined;
    late.as('bob');
    late.clock.advance(minute);
    late.reply(hers);
    late.elicit(undefined, 'q1');
    late.clock.advance(30_000);
    late.elicit(undefined, 'q2');
    expect([late.whom(), late.answers().length]).toEqual([['bob'], 1]);
  });

  test('E3 requests that cannot cause questions, and requests that were never sent, do not count as ended', () => {
    const { channel, as, elicit, reply, whom } = twoClients();
    reply(as('ann', {}, 'resources/subscribe'));
    channel.held = true;
    const stop = new AbortController();
    as('ann', { signal: stop.signal });
    stop.abort();
    channel.held = false;
    as('bob');
    elicit();
    expect(whom()).toEqual(['bob']);
  });

  test('E3 with two clients, a request that waits for an answer may still be the cause', () => {
    const { clock, as, elicit, whom } = twoClients();
    as('ann');
    elicit(undefined, 'q1');
    as('bob');
    clock.advance(minute / 2);
    elicit(undefined, 'q2');
    expect(whom()).toEqual(['ann']);
    const one = twoClients();
    one.as('ann');
    one.elicit(undefined, 'q1');
    const second = one.as('ann');
    one.clock.advance(minute / 2);
    one.elicit(undefined, 'q2');
    expect([one.whom(), one.asked[1]?.[1].origin, second]).toEqual([['ann', 'ann'], undefined, 2]);
  });

  test('E3 a server request without a call in progress is refused with the same error, and queued for no other client', () => {
    const { as, elicit, reply, whom, answers } = twoClients();
    reply(as('ann'));
    elicit();
    as('bob');
    expect([whom(), errorOf(answers()[0])]).toEqual([[], { code: -32603, message: refused }]);
  });

  test('E3 a stream or the id of a named request is proof, even if a request of another client has just ended', () => {
    const { channel, as, reply, whom, told, answers } = twoClients();
    const ann = as('ann');
    reply(ann);
    const bob = as('bob');
    as('cid');
    const question = (id: string) => ({ jsonrpc: '2.0', id, method: 'elicitation/create', params: {} });
    const log = { jsonrpc: '2.0', method: 'notifications/message', params: {} };
    channel.say(question('q1'), bob);
    channel.say(log, bob);
    channel.say(question('q2'), ann);
    channel.say(log, ann);
    channel.say(question('q3'), 99);
    expect([whom(), told]).toEqual([['bob'], ['bob notifications/message']]);
    expect(answers().map((answer) => errorOf(answer).message)).toEqual(
      Array(2).fill('the request that caused this has ended'),
    );
  });
});
