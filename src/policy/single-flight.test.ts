import { describe, expect, test } from 'vitest';
import { answering, failureOf, fakeCall, fakeResult, promised } from '../../test/fakes/policy-call.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { InboundRequest } from '../wire/inbound-requests.js';
import type { Call, CallResult } from './operation.js';
import { type SendShared, SingleFlight } from './single-flight.js';

/** A server that answers when the test says so, and stops when cancelled. */
function setUp() {
  const clock = new FakeClock();
  const flights = new SingleFlight(clock);
  const sent: { call: Call; resolve: (result: CallResult) => void; reject: (error: Error) => void }[] = [];
  const send = answering(
    (call) =>
      new Promise<CallResult>((resolve, reject) => {
        sent.push({ call, resolve, reject });
        call.signal?.addEventListener('abort', () => reject(new Error('aborted')));
      }),
  );
  const join = (part: Partial<Call> = {}, key = 'k') =>
    promised((call, done) => flights.join(key, call, send as SendShared, done))(fakeCall(part));
  return { clock, flights, sent, join, answer: (text: string) => sent[0]?.resolve(fakeResult(text)) };
}

test('X9 a thousand equal calls become one', async () => {
  const { flights, sent, join, answer } = setUp();
  const calls = Array.from({ length: 1_000 }, () => join());
  expect([sent.length, flights.size]).toEqual([1, 1]);
  answer('one');
  const results = await Promise.all(calls);
  expect(new Set(results.map(({ bytes }) => bytes.toString()))).toEqual(new Set(['one']));
  expect(flights.size).toBe(0);
});

test('calls that are not equal are sent separately', () => {
  const { sent, join } = setUp();
  void join({}, 'a');
  void join({}, 'b');
  expect(sent).toHaveLength(2);
});

test('a caller after the answer sends its own request', async () => {
  const { sent, join, answer } = setUp();
  const first = join();
  answer('one');
  await first;
  void join();
  expect(sent).toHaveLength(2);
});

test('D-64 no caller can change the answer for another', async () => {
  const { join, answer } = setUp();
  const calls = [join(), join(), join()];
  const spoil = calls.map((call) =>
    call.then(({ bytes }) => {
      const text = bytes.toString();
      bytes.fill('x');
      return text;
    }),
  );
  answer('answer');
  expect(await Promise.all(spoil)).toEqual(['answer', 'answer', 'answer']);
});

test('an error is shared and not cached', async () => {
  const { sent, join } = setUp();
  const failures = [failureOf(join({ requestId: 'r1' })), failureOf(join({ requestId: 'r2' }))];
  const error = new HostError('transport', 'gone', { execution: 'uncertain', hint: 'wait' });
  sent[0]?.reject(error);
  for (const failure of await Promise.all(failures)) expect(failure).toBe(error);
  void join();
  expect(sent).toHaveLength(2);
});

describe('a caller that leaves', () => {
  test.each([0, 1])('does not cancel the others: number %i', async (leaver) => {
    const { clock, sent, join, answer } = setUp();
    const controllers = [new AbortController(), new AbortController()];
    const calls = controllers.map(({ signal }) => join({ signal }));
    const leaving = failureOf(calls[leaver] as Promise<CallResult>);
    controllers[leaver]?.abort();
    expect((await leaving).code).toBe('cancelled');
    expect(sent[0]?.call.signal?.aborted).toBe(false);
    answer('one');
    expect((await calls[1 - leaver])?.bytes.toString()).toBe('one');
    expect(clock.pendingTimers).toBe(0);
  });

  test('and was the last one cancels the call, and the next caller starts another', async () => {
    const { flights, sent, join } = setUp();
    const controller = new AbortController();
    const failure = failureOf(join({ signal: controller.signal }));
    controller.abort();
    expect([sent[0]?.call.signal?.aborted, flights.size]).toEqual([true, 0]);
    void join();
    expect((await failure).code).toBe('cancelled');
    expect([sent.length, sent[1]?.call.signal?.aborted, flights.size]).toEqual([2, false, 1]);
  });

  test('before it joined starts nothing', async () => {
    const { sent, join } = setUp();
    const error = await failureOf(join({ signal: AbortSignal.abort() }));
    expect([error.code, error.details.execution, sent.length]).toEqual(['cancelled', 'not_executed', 0]);
  });
});

describe('deadlines', () => {
  test('a caller with less time than the shared call leaves at its own deadline', async () => {
    const { clock, sent, join, answer } = setUp();
    const patient = join({ deadlineAtMs: 1_000 });
    const hasty = failureOf(join({ deadlineAtMs: 100 }));
    clock.advance(100);
    expect((await hasty).code).toBe('timeout');
    answer('one');
    expect((await patient).bytes.toString()).toBe('one');
    expect([sent.length, clock.pendingTimers]).toEqual([1, 0]);
  });

  test('a caller with a little more time shares the call all the same', () => {
    const { sent, join } = setUp();
    void join({ deadlineAtMs: 1_000 });
    void join({ deadlineAtMs: 2_000 });
    expect(sent.map(({ call }) => call.deadlineAtMs)).toEqual([1_000]);
  });

  test('a caller with much more time makes a call that later ones join, also after the first has ended', async () => {
    const { sent, join, answer } = setUp();
    const first = join({ deadlineAtMs: 1_000 });
    void join({ deadlineAtMs: 5_000 });
    answer('one');
    await first;
    void join({ deadlineAtMs: 5_500 });
    expect(sent.map(({ call }) => call.deadlineAtMs)).toEqual([1_000, 5_000]);
  });
});

test('progress goes to all callers that asked for it, to each in its own bytes', () => {
  const { sent, join } = setUp();
  const seen: string[] = [];
  const onProgress = (params: Buffer) => {
    seen.push(params.toString());
    params.fill('x');
  };
  const broken = () => {
    throw new Error('broken');
  };
  void join({ onProgress: broken });
  void join({ onProgress });
  void join({ onProgress });
  void join();
  sent[0]?.call.onProgress?.(Buffer.from('half'));
  expect(seen).toEqual(['half', 'half']);
});

test('a large answer is copied for a bounded number of callers: the others share the next call', async () => {
  const { sent, join } = setUp();
  const large = fakeResult('x'.repeat(8 * 1024 * 1024));
  const calls = Array.from({ length: 20 }, () => join());
  sent[0]?.resolve(large);
  await Promise.all(calls.slice(0, 9));
  expect(sent).toHaveLength(2);
  sent[1]?.resolve(large);
  await Promise.all(calls.slice(9, 18));
  sent[2]?.resolve(large);
  await Promise.all(calls);
  expect(sent).toHaveLength(3);
});

describe('a question of the server', () => {
  /** The members that a flight reads. */
  const question = () => {
    const refusals: [number, string][] = [];
    const request = { method: 'elicitation/create', refuse: (...told: [number, string]) => refusals.push(told) };
    return { refusals, request: request as unknown as InboundRequest };
  };
  const asking = (sent: { call: Call }[], request: InboundRequest) => sent[0]?.call.relay?.onServerRequest?.(request);

  test('is sent to the only caller, and from then on no other caller joins the call', () => {
    const { sent, join } = setUp();
    const asked: string[] = [];
    void join({ relay: { onServerRequest: () => asked.push('ann') } });
    const { request, refusals } = question();
    asking(sent, request);
    void join();
    expect([asked, refusals, sent.length]).toEqual([['ann'], [], 2]);
  });

  test('is refused when there are several callers, and no other joins them either', () => {
    const { sent, join } = setUp();
    const asked: string[] = [];
    for (const who of ['ann', 'bob']) void join({ relay: { onServerRequest: () => asked.push(who) } });
    const { request, refusals } = question();
    asking(sent, request);
    void join();
    expect([asked, sent.length, refusals]).toEqual([
      [],
      2,
      [
        [
          -32603,
          'ambiguous: 2 equal calls share this request, and none of them can be asked for the others; set isolation: per-client',
        ],
      ],
    ]);
  });

  test('is sent to the only remaining caller, and refused when that caller cannot be asked', async () => {
    const { sent, join } = setUp();
    const stop = new AbortController();
    const asked: string[] = [];
    const gone = failureOf(join({ signal: stop.signal, relay: { onServerRequest: () => asked.push('ann') } }));
    void join();
    stop.abort();
    await gone;
    const { request, refusals } = question();
    asking(sent, request);
    expect([asked, refusals]).toEqual([[], [[-32601, 'the client cannot be asked for elicitation/create']]]);
  });

  test('is for one caller, but notifications of the server go to all callers', () => {
    const { sent, join } = setUp();
    const told: string[] = [];
    for (const who of ['ann', 'bob'])
      void join({ relay: { onServerNotification: (method, params) => told.push(`${who} ${method} ${params}`) } });
    sent[0]?.call.relay?.onServerNotification?.('notifications/message', Buffer.from('{}'));
    expect(told).toEqual(['ann notifications/message {}', 'bob notifications/message {}']);
  });
});

test('an answer that requests a continuation is for one caller: the others send their own calls', async () => {
  const { sent, join } = setUp();
  const calls = [join(), join(), join()];
  const again = '{"resultType":"input_required","requestState":"s"}';
  sent[0]?.resolve(fakeResult(again));
  expect((await calls[0])?.bytes.toString()).toBe(again);
  expect(sent).toHaveLength(3);
  sent[1]?.resolve(fakeResult('{"resultType":"complete"}'));
  sent[2]?.reject(new HostError('transport', 'gone'));
  expect((await calls[1])?.bytes.toString()).toBe('{"resultType":"complete"}');
  expect((await failureOf(calls[2] as Promise<CallResult>)).code).toBe('transport');
});
