import { describe, expect, test } from 'vitest';
import { managedSession } from '../../test/fakes/managed-session.js';
import { asked, failureOf, fakeCall, fakeList, promised } from '../../test/fakes/policy-call.js';
import { HostError, type HostErrorOptions } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import type { Call, Operation } from '../policy/operation.js';
import { ReconnectBackoff } from '../policy/retry.js';
import { ServerThrottle } from '../policy/throttles.js';
import type { CallOptions, Session } from '../session/session.js';
import type { Answer } from '../wire/peer-interface.js';
import { dispatch } from './dispatch.js';

const unsent = { phase: 'queued', execution: 'not_executed' } as const;
const failure = (code: 'connect_failed' | 'transport' | 'timeout' | 'overloaded', details: HostErrorOptions) =>
  new HostError(code, code, { server: 'a', ...details });

/** The last stage before a session, which fails in the same tick as the test says. */
function setUp() {
  const clock = new FakeClock();
  const world = { fails: undefined as HostError | undefined, sentAtMs: [] as number[], replays: 0 };
  const options: CallOptions[] = [];
  const session = {
    closedBy: undefined as HostError | undefined,
    lastMessageAtMs: 0,
    facts: { era: 'legacy' },
    callToolWithCallback: (_tool: string, _args: unknown, own: CallOptions, done: (o: Answer | Error) => void) => {
      options.push(own);
      if (own.signal?.aborted) return done(new HostError('cancelled', 'cancelled', unsent));
      world.sentAtMs.push(clock.nowMs());
      done(world.fails ?? { kind: 'result', bytes: Buffer.from('{"content":[]}'), mayHold: 0 });
    },
    close: () => Promise.resolve(),
  };
  const managed = managedSession('a', session as unknown as Session, clock, { trustAnnotations: true });
  managed.learn([{ key: 'read', raw: Buffer.from('{"name":"read","annotations":{"readOnlyHint":true}}') }], () => true);
  const reconnects = new ReconnectBackoff(clock, () => 0.5);
  const throttle = new ServerThrottle(clock);
  const send = promised(
    asked(
      dispatch({
        serverOf: () => managed,
        targetOf: (server) => server,
        clock,
        reconnects,
        clean: (text) => text,
        pinRefusal: () => undefined,
        serverThrottle: throttle,
        exchange: async () => {
          world.sentAtMs.push(clock.nowMs());
          if (world.fails) throw world.fails;
          return { items: [], ttlMs: 0, isPublic: false };
        },
        onReplay: () => world.replays++,
      }),
    ),
  );
  const call = (part: Partial<Call> = {}) =>
    send(fakeCall({ server: 'a', tool: 'write', deadlineAtMs: clock.nowMs() + 5_000, ...part }));
  const list = (part: Partial<Operation> = {}) =>
    send(fakeList({ server: 'a', deadlineAtMs: clock.nowMs() + 5_000, ...part }) as Call);
  const limit = () => throttle.failed('a', failure('overloaded', { httpStatus: 429, retryAfterMs: 60_000 }));
  return { clock, world, options, session, managed, reconnects, call, list, limit };
}

describe('W19 a call whose connection is refused', () => {
  test.each([60, 1_000])('for %d ms is answered, and costs no retry', async (awayMs) => {
    const { clock, world, managed, call } = setUp();
    world.fails = failure('connect_failed', { ...unsent, reason: 'ECONNREFUSED' });
    const outcome = call();
    await clock.advanceAsync(awayMs);
    expect(managed.retries).toMatchObject({ tokens: 500, inFlight: 0 });
    world.fails = undefined;
    await clock.advanceAsync(500);
    expect((await outcome).isError).toBe(false);
    expect(world.replays).toBe(world.sentAtMs.length - 1);
  });

  test('permanently ends with the refusal, 50 ms before its deadline', async () => {
    const { clock, world, call } = setUp();
    world.fails = failure('connect_failed', { ...unsent, reason: 'ECONNREFUSED' });
    const outcome = failureOf(call());
    await clock.advanceAsync(4_949);
    expect(world.sentAtMs.length).toBeGreaterThan(10);
    await clock.advanceAsync(1);
    expect((await outcome).toJSON()).toMatchObject({
      code: 'connect_failed',
      execution: 'not_executed',
      retryable: true,
    });
  });

  test('may be one of 64 at once: each dials once, then only one of them per step, and none fails', async () => {
    const { clock, world, call, reconnects } = setUp();
    world.fails = failure('connect_failed', unsent);
    const outcomes = Array.from({ length: 64 }, () => call());
    await clock.advanceAsync(1_000);
    expect(world.sentAtMs.length).toBe(64 + 4);
    world.fails = undefined;
    await clock.advanceAsync(500);
    expect((await Promise.all(outcomes)).length).toBe(64);
    expect(world.sentAtMs.length).toBe(64 + 4 + 64);
    await clock.advanceAsync(100);
    expect(reconnects.size).toBe(0);
  });

  test('ends at once when its caller leaves', async () => {
    const { clock, world, call } = setUp();
    world.fails = failure('connect_failed', unsent);
    const leaving = new AbortController();
    const outcome = failureOf(call({ signal: leaving.signal }));
    await clock.advanceAsync(1);
    leaving.abort();
    expect((await outcome).code).toBe('cancelled');
    expect(world.sentAtMs).toEqual([0]);
  });

  test('is not tried again for a caller that has sent it before', async () => {
    const { clock, world, call } = setUp();
    world.fails = failure('connect_failed', unsent);
    const outcome = failureOf(call({ attempt: 1 }));
    await clock.advanceAsync(0);
    expect([(await outcome).code, world.sentAtMs.length]).toEqual(['connect_failed', 1]);
  });
});

describe('W19 a call that is sent again on a connection that stays', () => {
  test.each([
    ['a write that was not sent', 'write', unsent],
    ['a read that was sent', 'read', { phase: 'written', execution: 'uncertain' }],
  ] as const)('waits between the tries: %s', async (_name, tool, details) => {
    const { clock, world, call } = setUp();
    world.fails = failure('transport', { ...details, reason: 'reset' });
    const outcome = failureOf(call({ tool }));
    await clock.advanceAsync(1_000);
    expect((await outcome).code).toBe('transport');
    expect(world.sentAtMs).toEqual([0, 50, 200]);
  });

  test('waits at most half of the remaining time', async () => {
    const { clock, world, call } = setUp();
    world.fails = failure('transport', unsent);
    const outcome = failureOf(call({ deadlineAtMs: 20 }));
    await clock.advanceAsync(20);
    await outcome;
    expect(world.sentAtMs).toEqual([0, 10, 15]);
  });

  test('ends at once when its caller leaves', async () => {
    const { clock, world, call } = setUp();
    world.fails = failure('transport', unsent);
    const leaving = new AbortController();
    const outcome = failureOf(call({ signal: leaving.signal }));
    await clock.advanceAsync(1);
    leaving.abort();
    expect([(await outcome).code, world.sentAtMs]).toEqual(['cancelled', [0]]);
  });
});

test('W19 a call whose connection is lost is sent on the next one without a further wait', async () => {
  const { clock, world, session, managed, call } = setUp();
  await call();
  world.fails = failure('transport', unsent);
  session.closedBy = failure('transport', { reason: 'exit' });
  const outcome = call();
  world.fails = undefined;
  await clock.advanceAsync(0);
  session.closedBy = undefined;
  // Only the wait of the supervisor before it restarts the server.
  await clock.advanceAsync(200);
  await outcome;
  expect(managed.supervisor.snapshot().run).toBe(2);
});

test('W15 a call that timed out before it was sent is not sent again', async () => {
  const { clock, world, call } = setUp();
  world.fails = failure('timeout', unsent);
  const outcome = failureOf(call());
  await clock.advanceAsync(5_000);
  expect([(await outcome).code, world.sentAtMs.length]).toEqual(['timeout', 1]);
});

test('W24 a repeated call that may have run stays uncertain even if the last attempt was not sent', async () => {
  const { clock, world, call } = setUp();
  world.fails = failure('transport', { phase: 'written', execution: 'uncertain' });
  const outcome = failureOf(call({ tool: 'read' }));
  await clock.advanceAsync(1);
  expect(world.sentAtMs.length).toBe(1);
  world.fails = failure('transport', unsent);
  await clock.advanceAsync(5_000);
  expect(world.sentAtMs.length).toBeGreaterThan(1);
  expect((await outcome).toJSON()).toMatchObject({ execution: 'uncertain', retryable: false });
});

describe('W11 a request is not sent to a throttled server', () => {
  const throttled = { code: 'overloaded', reason: 'throttled', execution: 'not_executed', retryAfterMs: 60_000 };

  test.each(['call', 'list', 'read', 'request'] as const)(
    'when it had to wait for the connection: %s',
    async (kind) => {
      const { clock, world, call, list, limit } = setUp();
      // The server is started for this request, and asks for fewer requests meanwhile.
      const outcome = failureOf(kind === 'call' ? call() : list({ kind }));
      limit();
      await clock.advanceAsync(0);
      expect((await outcome).toJSON()).toMatchObject(throttled);
      expect(world.sentAtMs).toEqual([]);
    },
  );

  test('when it is sent again', async () => {
    const { clock, world, call, limit } = setUp();
    world.fails = failure('transport', unsent);
    const outcome = failureOf(call());
    await clock.advanceAsync(1);
    limit();
    await clock.advanceAsync(5_000);
    expect((await outcome).toJSON()).toMatchObject({ ...throttled, retryAfterMs: expect.any(Number) });
    expect(world.sentAtMs).toEqual([0]);
  });

  test('when it had to wait for a new session', async () => {
    const { options, call, limit } = setUp();
    await call();
    const [{ resend } = {}] = options;
    expect(resend?.refusal()).toBeUndefined();
    limit();
    expect(resend?.refusal()).toMatchObject({ code: 'overloaded', details: { reason: 'throttled' } });
  });
});
