import { describe, expect, test } from 'vitest';
import { FakeCircuit } from '../../test/fakes/gated-circuit.js';
import {
  answering,
  failureOf,
  fakeCall,
  fakeList,
  fakeResult,
  promised,
  staged,
} from '../../test/fakes/policy-call.js';
import { HostError, type HostErrorOptions } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { Breaker, type CheckResult, defaultBreakerPlan } from './breaker.js';
import { breakerStage, strikeOf } from './breaker-stage.js';
import type { Call } from './operation.js';

const error = (code: ConstructorParameters<typeof HostError>[0], details: HostErrorOptions = {}) =>
  new HostError(code, 'could not connect', details);

describe('AC-H11 failures of the connection count against a server, by code and facts, whatever the text', () => {
  const timedOut = error('timeout', { phase: 'written', execution: 'uncertain' });
  test.each([
    ['the end of its stream', 'loss', error('transport', { reason: 'exit' })],
    ['a deadline after the call was sent', 'timeout', timedOut],
    ['a write that failed', 'loss', error('transport', { phase: 'writing' })],
    ['use after the connection was lost', 'loss', error('transport', { phase: 'queued', execution: 'not_executed' })],
    ['a connection that could not be opened', 'loss', error('connect_failed')],
    ['an unknown outcome after a loss', 'loss', error('outcome_uncertain', { cause: error('transport') })],
    ['an unknown outcome after a deadline', 'timeout', error('outcome_uncertain', { cause: timedOut })],
    ['an unknown outcome without a cause', 'loss', error('outcome_uncertain')],
    ['a message that cannot be read', 'protocol', error('protocol_error', { reason: 'frame_too_large' })],
    ['a status of 500', 'loss', error('transport', { httpStatus: 500 })],
  ])('%s is a strike of kind %s', (_what, strike, thrown) => {
    expect(strikeOf(thrown)).toBe(strike);
  });

  describe('K3 an answer, a refusal or a caller that cancels', () => {
    test.each([
      ['an error the server answered with', error('tool_error', { reason: 'rpc_error' })],
      ['bad arguments', error('invalid_arguments', { rpcCode: -32602 })],
      ['a refused authorization', error('needs_reauth', { httpStatus: 401 })],
      ['too many requests', error('overloaded', { httpStatus: 429 })],
      ['a refusal as an HTTP status', error('protocol_error', { httpStatus: 403 })],
      ['a caller that cancelled', error('cancelled')],
      ['a caller whose deadline passed before anything was sent', error('timeout', { phase: 'queued' })],
      ['D-37 a server that is just reconnecting', error('reconnecting')],
      ['a server that is parked', error('server_parked')],
      ['a denial', error('denied')],
      ['an internal error', new Error('could not connect')],
      ['W24 a cancelled call that was caused by a lost connection', error('cancelled', { cause: error('transport') })],
    ])('no strike: %s', (_what, thrown) => {
      expect(strikeOf(thrown)).toBeUndefined();
    });
  });
});

/** A server behind a breaker with the numbers of AC-C1: three failures, sixty seconds. */
function guarded(answer: (call: Call) => Promise<ReturnType<typeof fakeResult>>) {
  const clock = new FakeClock();
  const breaker = new Breaker({ ...defaultBreakerPlan, threshold: 3, resetMs: 60_000 });
  const circuit = new FakeCircuit(breaker);
  let sent = 0;
  const stage = breakerStage(() => circuit, clock);
  const send = promised(
    staged(stage)(
      answering((call) => {
        sent++;
        return answer(call);
      }),
    ),
  );
  const call = (part: Partial<Call> = {}) => send(fakeCall({ deadlineAtMs: clock.nowMs() + 30_000, ...part }));
  return { clock, breaker, circuit, call, sent: () => sent };
}

async function opened(answer: (call: Call) => Promise<ReturnType<typeof fakeResult>>) {
  let fails = true;
  const server = guarded((call) => (fails ? Promise.reject(error('protocol_error')) : answer(call)));
  for (let i = 0; i < 3; i++) await failureOf(server.call());
  fails = false;
  return server;
}

test('AC-C1 while the breaker is open nothing is sent; after the open time one call passes, and a success closes it', async () => {
  const { clock, breaker, call, sent } = await opened(() => Promise.resolve(fakeResult()));
  const refused = await failureOf(call());
  expect(refused.toJSON()).toMatchObject({
    code: 'circuit_open',
    execution: 'not_executed',
    retryable: true,
    retryAfterMs: 60_000,
  });
  expect([refused.message.includes('unreachable'), sent()]).toEqual([true, 3]);
  clock.advance(61_000);
  await call();
  expect([sent(), breaker.failures, breaker.circuit(clock.nowMs())]).toEqual([4, 0, 'closed']);
});

test('AC-C2 a trial that fails opens the breaker again at once', async () => {
  const { clock, call, sent } = await opened(() => Promise.reject(error('transport')));
  clock.advance(61_000);
  expect((await failureOf(call())).code).toBe('transport');
  expect((await failureOf(call())).code).toBe('circuit_open');
  expect(sent()).toBe(4);
});

test('D-39 a trial ends at its caller’s deadline, and frees its place if it gave no evidence about the server', async () => {
  const deadlines: number[] = [];
  const { clock, call, sent } = await opened(({ deadlineAtMs }) => {
    deadlines.push(deadlineAtMs);
    return Promise.reject(error('cancelled'));
  });
  clock.advance(60_000);
  await failureOf(call());
  await failureOf(call());
  expect([deadlines, sent()]).toEqual([[90_000, 90_000], 5]);
});

describe('W9 the check before a trial', () => {
  /** An open breaker whose open time is over, and a check that ends when the test says so. */
  async function due() {
    const server = await opened(() => Promise.resolve(fakeResult()));
    server.clock.advance(60_000);
    let find: (result: CheckResult) => void = () => {};
    server.circuit.finds = new Promise((resolve) => {
      find = resolve;
    });
    const timersBefore = server.clock.pendingTimers;
    return { ...server, find, timersBefore };
  }

  test.each(['alive', 'unasked'] as const)(
    'with the result %s lets the call pass, which closes the breaker',
    async (found) => {
      const { breaker, call, sent, find, clock, timersBefore } = await due();
      const trial = call();
      expect([sent(), (await failureOf(call())).code]).toEqual([3, 'circuit_open']);
      find(found);
      await trial;
      expect([sent(), breaker.isClosed, clock.pendingTimers]).toEqual([4, true, timersBefore]);
    },
  );

  test.each(['timeout', 'loss'] as const)(
    'with the result %s is a failed trial, and nothing is sent',
    async (found) => {
      const { breaker, call, sent, find, clock, timersBefore } = await due();
      const trial = failureOf(call());
      find(found);
      expect((await trial).toJSON()).toMatchObject({
        code: 'circuit_open',
        execution: 'not_executed',
        retryAfterMs: 120_000,
      });
      expect([sent(), breaker.failures, breaker.circuit(clock.nowMs())]).toEqual([3, 4, 'open']);
      expect([breaker.checkAtMs !== undefined, clock.pendingTimers]).toEqual([found === 'loss', timersBefore]);
    },
  );

  test.each([
    ['deadline', 'timeout'],
    ['signal', 'cancelled'],
  ])('goes on after the caller’s %s has ended the call, and its result still counts', async (how, code) => {
    const { breaker, call, sent, find, clock, timersBefore } = await due();
    const leaving = new AbortController();
    const left = failureOf(call({ deadlineAtMs: clock.nowMs() + 10, signal: leaving.signal }));
    if (how === 'signal') leaving.abort();
    clock.advance(10);
    expect([(await left).toJSON(), sent()]).toMatchObject([{ code, execution: 'not_executed' }, 3]);
    find('timeout');
    await Promise.resolve();
    expect([breaker.circuit(clock.nowMs()), breaker.failures, clock.pendingTimers]).toEqual(['open', 4, timersBefore]);
  });

  test('is sent even for a caller that has already cancelled, and that caller is answered at once', async () => {
    const { call, sent, find, clock, breaker, timersBefore } = await due();
    const left = await failureOf(call({ signal: AbortSignal.abort() }));
    expect([left.toJSON(), sent()]).toMatchObject([{ code: 'cancelled', execution: 'not_executed' }, 3]);
    find('timeout');
    await Promise.resolve();
    expect([breaker.circuit(clock.nowMs()), clock.pendingTimers]).toEqual(['open', timersBefore]);
  });

  test.each([
    ['alive', 'ok', 4, 0],
    ['timeout', 'circuit_open', 3, 4],
  ] as const)(
    'that goes on after its caller left decides about the next call: %s',
    async (found, outcome, sentThen, failures) => {
      const { breaker, call, sent, find, clock } = await due();
      const left = failureOf(call({ deadlineAtMs: clock.nowMs() + 10 }));
      clock.advance(10);
      await left;
      const next = call().then(
        () => 'ok',
        ({ code }) => code,
      );
      find(found);
      expect([await next, sent(), breaker.failures]).toEqual([outcome, sentThen, failures]);
    },
  );

  test('is not made for later trials: a server that handles one request at a time is busy with the first', async () => {
    const ends: (() => void)[] = [];
    const { clock, call, circuit, sent } = await opened(
      () => new Promise((resolve) => ends.push(() => resolve(fakeResult()))),
    );
    clock.advance(60_000);
    circuit.finds = Promise.resolve('alive');
    const first = call();
    await Promise.resolve();
    await Promise.resolve();
    clock.advance(5_000);
    circuit.finds = Promise.resolve('timeout');
    const more = [call(), call()];
    expect([(await failureOf(call())).code, sent(), circuit.checks]).toEqual(['circuit_open', 6, 1]);
    for (const end of ends) end();
    await Promise.all([first, ...more]);
  });

  test('is followed by a later stage that throws: the place of the trial is free, and the caller gets the error', async () => {
    const { clock, call } = await opened(() => {
      throw error('server_not_found');
    });
    clock.advance(60_000);
    for (let i = 0; i < 2; i++) expect((await failureOf(call())).code).toBe('server_not_found');
  });
});

describe('W10 a call that ends by its caller’s deadline', () => {
  function timingOut(afterMs: number, { phase = 'written', lastMessageAtMs = 0 } = {}) {
    const clock = new FakeClock();
    const circuit = new FakeCircuit(new Breaker());
    circuit.lastMessageAtMs = lastMessageAtMs;
    const send = promised(
      staged(breakerStage(() => circuit, clock))((call, done) => {
        call.stage.sentAtMs = clock.nowMs();
        clock.at(call.deadlineAtMs, () => done(error('timeout', { phase: phase as 'written' })));
      }),
    );
    const call = failureOf(send(fakeCall({ deadlineAtMs: clock.nowMs() + afterMs })));
    clock.advance(afterMs);
    return { call, circuit };
  }

  test.each([
    ['after more than 5 s without a sign of life makes the server suspect', 5_001, {}, 1],
    ['after 5 s does not make the server suspect', 5_000, {}, 0],
    ['of 5 ms does not make the server suspect', 5, {}, 0],
    ['does not make the server suspect if a message arrived in the last 5 s', 30_000, { lastMessageAtMs: 25_000 }, 0],
    ['makes the server suspect if the last message is older than 5 s', 30_000, { lastMessageAtMs: 24_999 }, 1],
    ['does not make the server suspect if nothing was sent', 30_000, { phase: 'queued' }, 0],
  ])('%s', async (_what, afterMs, facts, suspects) => {
    const { call, circuit } = timingOut(afterMs, facts);
    expect((await call).code).toBe('timeout');
    expect([circuit.suspects.length, circuit.breaker.failures]).toEqual([suspects, 0]);
  });
});

describe('W10 a call that its caller cancels', () => {
  test.each([
    ['after more than 5 s without a sign of life makes the server suspect', 5_001, 'uncertain', 1],
    ['after 5 s does not make the server suspect', 5_000, 'uncertain', 0],
    ['does not make the server suspect if the call was not sent', 30_000, 'not_executed', 0],
  ] as const)('%s', async (_what, afterMs, execution, suspects) => {
    const clock = new FakeClock();
    const circuit = new FakeCircuit(new Breaker());
    circuit.lastMessageAtMs = 0;
    const send = promised(
      staged(breakerStage(() => circuit, clock))((call, done) => {
        call.stage.sentAtMs = clock.nowMs();
        clock.at(afterMs, () => done(error('cancelled', { execution })));
      }),
    );
    const call = failureOf(send(fakeCall({ deadlineAtMs: clock.nowMs() + 60_000 })));
    clock.advance(afterMs);
    expect((await call).code).toBe('cancelled');
    expect([circuit.suspects.length, circuit.breaker.failures]).toEqual([suspects, 0]);
  });
});

describe('W10 calls that end by their callers’ deadlines one after the other', () => {
  /** One call after another, each sent a second before its deadline. */
  async function oneASecond(count: number, hears: (nowMs: number) => number, asksFirst = false) {
    const clock = new FakeClock();
    const circuit = new FakeCircuit(new Breaker());
    const send = promised(
      staged(breakerStage(() => circuit, clock))((call, done) => {
        call.stage.sentAtMs = asksFirst && clock.nowMs() === 0 ? Number.POSITIVE_INFINITY : clock.nowMs();
        clock.at(call.deadlineAtMs, () => done(error('timeout', { phase: 'written' })));
      }),
    );
    for (let i = 0; i < count; i++) {
      circuit.lastMessageAtMs = hears(clock.nowMs());
      const call = failureOf(send(fakeCall({ deadlineAtMs: clock.nowMs() + 1_000 })));
      clock.advance(1_000);
      await call;
    }
    return circuit.suspects.length;
  }

  test('make the server suspect after more than 5 s of silence in all', async () => {
    expect([await oneASecond(5, () => -1), await oneASecond(6, () => -1)]).toEqual([0, 1]);
  });

  test('do not count if the server had asked their caller a question', async () => {
    expect([await oneASecond(6, () => -1, true), await oneASecond(7, () => -1, true)]).toEqual([0, 1]);
  });

  test('of 5 ms do not make the server suspect, however long it is silent between the calls', async () => {
    const clock = new FakeClock();
    const circuit = new FakeCircuit(new Breaker());
    circuit.lastMessageAtMs = 0;
    const send = promised(
      staged(breakerStage(() => circuit, clock))((call, done) => {
        call.stage.sentAtMs = clock.nowMs();
        clock.at(call.deadlineAtMs, () => done(error('timeout', { phase: 'written' })));
      }),
    );
    for (let i = 0; i < 20; i++) {
      clock.advance(6_000);
      const call = failureOf(send(fakeCall({ deadlineAtMs: clock.nowMs() + 5 })));
      clock.advance(5);
      await call;
    }
    expect([circuit.suspects.length, circuit.breaker.failures]).toEqual([0, 0]);
  });

  test('do not make the server suspect while messages arrive between them', async () => {
    expect(await oneASecond(20, (nowMs) => Math.floor(nowMs / 5_000) * 5_000)).toBe(0);
  });
});

test('K1 of a thousand callers at the end of the open time exactly one is the trial, in every round', async () => {
  let release: (() => void)[] = [];
  const { clock, call, sent } = await opened(
    () => new Promise((_resolve, reject) => release.push(() => reject(error('protocol_error')))),
  );
  for (let round = 1; round <= 20; round++) {
    clock.advance(300_000);
    const calls = Array.from({ length: 1_000 }, () => failureOf(call()));
    expect(sent()).toBe(3 + round);
    for (const settle of release.splice(0)) settle();
    const codes = (await Promise.all(calls)).map(({ code }) => code);
    expect(codes.filter((code) => code === 'circuit_open')).toHaveLength(999);
    release = [];
  }
});

test('a connection that is lost under many calls is handled by its supervisor, and is no strike', async () => {
  const clock = new FakeClock();
  const circuit = new FakeCircuit(new Breaker({ ...defaultBreakerPlan, threshold: 3 }));
  circuit.isLost = true;
  const fails = answering(() => Promise.reject(error('outcome_uncertain', { execution: 'uncertain' })));
  const send = promised(staged(breakerStage(() => circuit, clock))(fails));
  for (let i = 0; i < 16; i++) {
    await failureOf(send(fakeCall()));
    clock.advance(1_000);
  }
  expect([circuit.breaker.isClosed, circuit.breaker.failures]).toEqual([true, 0]);
  circuit.isLost = false;
  for (let i = 0; i < 3; i++) {
    await failureOf(send(fakeCall()));
    clock.advance(1_000);
  }
  expect(circuit.breaker.isClosed).toBe(false);
});

describe('how the breaker counts an outcome', () => {
  test('W24 a success in between clears the failures, so two more do not open the breaker', async () => {
    let outcome: HostError | undefined = error('protocol_error');
    const { breaker, call } = guarded(() => (outcome ? Promise.reject(outcome) : Promise.resolve(fakeResult())));
    const fail = async (count: number) => {
      outcome = error('protocol_error');
      for (let i = 0; i < count; i++) await failureOf(call());
    };
    await fail(2);
    expect(breaker.failures).toBe(2);
    outcome = undefined;
    await call();
    expect(breaker.failures).toBe(0);
    await fail(2);
    expect([breaker.failures, breaker.isClosed]).toEqual([2, true]);
  });

  test.each([
    ['a lost connection', 0, error('transport')],
    ['a protocol error', 0, error('protocol_error')],
    ['a timeout', 1, error('timeout', { phase: 'written' })],
  ])('W24 %s adds %i failures while the supervisor sees the connection as lost', async (_what, failures, outcome) => {
    const { breaker, circuit, call } = guarded(() => Promise.reject(outcome));
    circuit.isLost = true;
    await failureOf(call());
    expect(breaker.failures).toBe(failures);
  });

  test('W24 a lost connection just before a deadline is no strike, and causes no check', async () => {
    const { breaker, circuit, call, clock } = guarded(() => Promise.reject(error('transport')));
    circuit.lastMessageAtMs = 0;
    clock.advance(60_000);
    await failureOf(call({ deadlineAtMs: clock.nowMs() }));
    expect([breaker.failures, circuit.suspects]).toEqual([0, []]);
  });

  test('W24 a server that cannot be found fails the call, and no breaker counts it', async () => {
    const stage = breakerStage(() => {
      throw error('server_not_found');
    }, new FakeClock());
    const send = promised(staged(stage)(answering(() => Promise.resolve(fakeResult()))));
    expect((await failureOf(send(fakeCall()))).code).toBe('server_not_found');
  });

  test('W24 a status below 500 counts as an answer, 500 does not', () => {
    expect(strikeOf(error('transport', { httpStatus: 499 }))).toBeUndefined();
    expect(strikeOf(error('transport', { httpStatus: 500 }))).toBe('loss');
  });

  test.each([
    ['a lost connection is a strike', error('transport'), 1],
    ['a message that cannot be read is a strike', error('protocol_error'), 1],
    ['the time limit is no strike', error('timeout', { phase: 'written' }), 0],
    ['its caller’s cancellation is no strike', error('cancelled', { execution: 'uncertain' }), 0],
  ])('%s, if it ends a request that waits for its caller’s answer to a question', async (_what, outcome, failures) => {
    const { breaker, circuit, call } = guarded((request) => {
      request.stage.sentAtMs = Number.POSITIVE_INFINITY;
      return Promise.reject(outcome);
    });
    circuit.lastMessageAtMs = 0;
    await failureOf(call(fakeList({ kind: 'request', method: 'prompts/get' }) as Call));
    expect([breaker.failures, circuit.suspects]).toEqual([failures, []]);
  });
});
