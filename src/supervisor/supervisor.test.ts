import { getEventListeners } from 'node:events';
import { describe, expect, test } from 'vitest';
import { crashed, type FakeConnection, FakeServer } from '../../test/fakes/supervised-server.js';
import type { Clock } from '../kernel/clock.js';
import { Emitter } from '../kernel/emitter.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { CorrelatedFailures } from './correlated-failures.js';
import type { SupervisorOptions } from './ports.js';
import { Registry } from './registry.js';
import { defaultPlan, emptyLedger } from './restart-plan.js';
import { StartGate } from './start-gate.js';
import { Supervisor } from './supervisor.js';
import type { SupervisorEvent, SupervisorEvents } from './supervisor-events.js';

function setUp(options: Partial<SupervisorOptions<FakeConnection>> = {}) {
  const clock = new FakeClock();
  const server = new FakeServer(clock);
  const events = new Emitter<SupervisorEvents>();
  const heard: SupervisorEvent[] = [];
  events.on('supervisor', (event) => heard.push(event));
  const supervisor = new Supervisor<FakeConnection>({
    name: 'files',
    connect: server.connect,
    verify: async (connection) => connection.closedBy === undefined,
    clock,
    random: () => 0.5,
    gate: new StartGate(clock, { concurrent: 4 }),
    guard: new CorrelatedFailures(clock),
    events,
    isLazy: true,
    ...options,
  });
  const acquire = (withinMs = 60_000, signal?: AbortSignal) => supervisor.acquire(clock.nowMs() + withinMs, signal);
  return {
    clock,
    server,
    events,
    supervisor,
    acquire,
    state: () => supervisor.snapshot().state,
    heard: (kind: SupervisorEvent['kind']) => heard.filter((event) => event.kind === kind),
    settle: () => clock.advanceAsync(0),
    /** Fails every start until it is parked. */
    park: async () => {
      server.next = () => ({ error: crashed() });
      supervisor.start();
      await clock.advanceAsync(20_000);
      expect(supervisor.snapshot().state).toBe('parked');
    },
  };
}

/** The result of a promise, after all pending microtasks. */
const outcome = (promise: Promise<unknown>) =>
  promise.then(
    () => 'ok',
    (error: unknown) => (error instanceof HostError ? error.code : error),
  );

const failing = { error: crashed() };

describe('acquiring', () => {
  test('a ready server is acquired at once, with the same connection for all callers', async () => {
    const { acquire, server } = setUp();
    const first = await acquire();
    const second = await acquire();
    expect([first, second]).toEqual([
      { connection: server.connection, run: 1, sinceMs: 0 },
      { connection: server.connection, run: 1, sinceMs: 0 },
    ]);
    expect(server.starts).toBe(1);
  });

  test('the current connection belongs to this run, and is undefined after its end, reported or not', async () => {
    const { acquire, server, clock, supervisor } = setUp();
    expect(supervisor.current).toBeUndefined();
    await clock.advanceAsync(1_000);
    await acquire();
    expect(supervisor.current).toEqual({ connection: server.connection, run: 1, sinceMs: 1_000 });
    if (server.connection) server.connection.closedBy = crashed();
    expect([supervisor.current, supervisor.snapshot().state]).toEqual([undefined, 'ready']);
  });

  test('D-09 twenty callers at once of a server that is not running cause one start and get the same connection', async () => {
    const { acquire, server, clock } = setUp();
    server.next = () => ({ afterMs: 1_000 });
    const all = Array.from({ length: 20 }, () => acquire());
    await clock.advanceAsync(1_000);
    const connections = (await Promise.all(all)).map(({ connection }) => connection);
    expect([server.starts, new Set(connections).size]).toEqual([1, 1]);
  });

  test('D-09 a caller that gives up leaves, and the start continues for the others', async () => {
    const { acquire, server, clock, supervisor } = setUp();
    server.next = () => ({ afterMs: 1_000 });
    const abort = new AbortController();
    const quitter = outcome(acquire(60_000, abort.signal));
    const patient = outcome(acquire());
    abort.abort();
    expect(supervisor.snapshot().waiting).toBe(1);
    await clock.advanceAsync(1_000);
    expect([await quitter, await patient, server.starts]).toEqual(['cancelled', 'ok', 1]);
    expect(getEventListeners(abort.signal, 'abort')).toEqual([]);
    expect(await outcome(acquire(1, AbortSignal.abort()))).toBe('ok');
  });

  test('D-37 a caller waits at most five seconds, or until its deadline, and then fails with `reconnecting`', async () => {
    const { acquire, server, clock, supervisor } = setUp();
    server.next = () => ({ afterMs: 20_000 });
    const hurried = acquire(1_000);
    const patient = acquire(60_000);
    const endedAtMs: number[] = [];
    for (const each of [hurried, patient]) each.catch(() => endedAtMs.push(clock.nowMs()));
    await clock.advanceAsync(6_000);
    expect(endedAtMs).toEqual([1_000, 5_000]);
    const error: HostError = await patient.then(
      () => expect.unreachable(),
      (reason) => reason,
    );
    expect(error.toJSON()).toMatchObject({
      code: 'reconnecting',
      retryable: true,
      execution: 'not_executed',
      server: 'files',
    });
    expect(error.message).toMatch(/server 'files'.*reconnect/);
    expect(supervisor.snapshot().waiting).toBe(0);
    expect(await outcome(acquire(0))).toBe('reconnecting');
  });

  test('a caller that was served leaves no listener on its signal', async () => {
    const { acquire, server, clock } = setUp();
    server.next = () => ({ afterMs: 100 });
    const { signal } = new AbortController();
    const served = acquire(60_000, signal);
    expect(getEventListeners(signal, 'abort')).toHaveLength(1);
    await clock.advanceAsync(100);
    await served;
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });

  test('D-30 a caller waits through a restart and gets the new run', async () => {
    const { acquire, server, clock } = setUp();
    await acquire();
    server.connection?.die();
    const after = acquire();
    await clock.advanceAsync(100);
    expect((await after).run).toBe(2);
  });

  test('D-02 a connection that has ended is not acquired, even before its close event', async () => {
    const { acquire, server, clock } = setUp();
    await acquire();
    server.connection?.dieSilently();
    const again = acquire();
    await clock.advanceAsync(100);
    expect((await again).run).toBe(2);
  });

  test('callers beyond the limit are refused instead of queued', async () => {
    const { acquire, server, clock } = setUp({ waitersMax: 2 });
    server.next = () => ({ afterMs: 100 });
    const all = Promise.all([acquire(), acquire(), acquire()].map(outcome));
    await clock.advanceAsync(100);
    expect(await all).toEqual(['ok', 'ok', 'overloaded']);
  });

  test.each([
    ['stopped', 'server_stopped', /server 'files' is stopped/],
    ['disabled', 'server_disabled', /server 'files' is disabled/],
    ['parked', 'server_parked', /server 'files' is parked .*exited with code 1.* 5\d s.*reload/],
    ['ejected', 'server_ejected', /server 'files' is ejected .*exited with code 1.*reload/],
    ['auth_required', 'needs_reauth', /server 'files' needs a new authorization/],
  ] as const)('a server that is %s refuses with %s', async (kind, code, text) => {
    const onExhausted = kind === 'ejected' ? 'eject' : 'park';
    const { acquire, server, clock, supervisor, state } = setUp({ plan: { ...defaultPlan, onExhausted } });
    if (kind === 'stopped') await supervisor.stop();
    else if (kind === 'disabled') await supervisor.disable();
    else {
      const spoken = 'it wants a token.';
      const error = kind === 'auth_required' ? new HostError('needs_reauth', spoken) : crashed();
      server.next = () => ({ error });
      supervisor.start();
      await clock.advanceAsync(4_000);
    }
    expect(state()).toBe(kind);
    const error: HostError = await acquire().then(
      () => expect.unreachable(),
      (reason) => reason,
    );
    expect([error.code, error.details.execution, error.details.server]).toEqual([code, 'not_executed', 'files']);
    expect(error.message).toMatch(text);
    expect(error.message).not.toContain('.)');
    if (kind !== 'stopped' && kind !== 'disabled') expect(error.cause).toBeInstanceOf(HostError);
  });

  test('a server that is about to be parked refuses at once, not only after its old run is closed', async () => {
    const { acquire, server } = setUp({ plan: { ...defaultPlan, maxRestarts: 0 } });
    server.next = () => ({ closeMs: 5_000 });
    await acquire();
    server.connection?.die();
    expect(await outcome(acquire())).toBe('server_parked');
  });
});

describe('S9 parked', () => {
  test('ten thousand callers at once on one of a thousand parked servers cause one start', async () => {
    const clock = new FakeClock();
    const parts = {
      clock,
      random: () => 0.5,
      gate: new StartGate(clock, { startsPerSecond: 1_000, concurrent: 1_000 }),
      guard: new CorrelatedFailures(clock),
      events: new Emitter<SupervisorEvents>(),
      isLazy: true,
    };
    const verify = async () => true;
    const missing = new HostError('connect_failed', 'no such command', { reason: 'ENOENT' });
    const servers = Array.from({ length: 1_000 }, () => new FakeServer(clock));
    const supervisors = servers.map((server, i) => {
      server.next = () => ({ error: missing });
      return new Supervisor({ ...parts, name: `s${i}`, connect: server.connect, verify });
    });
    for (const supervisor of supervisors) supervisor.start();
    await clock.advanceAsync(6_000);
    expect(supervisors.every((supervisor) => supervisor.snapshot().state === 'parked')).toBe(true);
    expect(clock.pendingTimers).toBe(1_000);

    const [server, supervisor] = [servers[500] as FakeServer, supervisors[500] as Supervisor<FakeConnection>];
    for (const { attempt, answer } of [
      { attempt: { afterMs: 500, error: missing }, answer: 'server_parked' },
      { attempt: { afterMs: 500 }, answer: 'ok' },
    ]) {
      server.next = () => attempt;
      const before = server.starts;
      const all = Array.from({ length: 10_000 }, () => outcome(supervisor.acquire(clock.nowMs() + 4_000)));
      expect(supervisor.snapshot().waiting).toBe(10_000);
      await clock.advanceAsync(500);
      expect([server.starts - before, new Set(await Promise.all(all))]).toEqual([1, new Set([answer])]);
      expect(await outcome(supervisor.acquire(clock.nowMs() + 4_000))).toBe(answer);
      // After the next scheduled probe, which fails too, and the pause after it.
      server.next = () => ({ error: missing });
      await clock.advanceAsync(66_000);
    }
    await Promise.all(supervisors.map((each) => each.dispose()));
    expect(clock.pendingTimers).toBe(0);
  });

  test('D-34 a call wakes it once between two probes, and the refusal has the time of the next one', async () => {
    const { acquire, server, clock, park, heard } = setUp();
    await park();
    const before = server.starts;
    const answers: unknown[] = [];
    for (let second = 0; second < 35; second++) {
      answers.push(await outcome(acquire()));
      await clock.advanceAsync(1_000);
    }
    expect(server.starts - before).toBe(1);
    expect(new Set(answers)).toEqual(new Set(['server_parked']));
    // The same reason again: it is logged once.
    expect(heard('parked').map((event) => event.kind === 'parked' && event.repeats)).toEqual([0, 1]);
  });

  test('AC-C6 it is never abandoned: a scheduled probe, a reload and a start each restart it', async () => {
    for (const wake of ['probe', 'reload', 'start'] as const) {
      const { server, clock, park, supervisor, state, heard } = setUp({ isLazy: false });
      await park();
      server.next = () => ({});
      if (wake === 'reload') await supervisor.reload();
      if (wake === 'start') supervisor.start();
      await clock.advanceAsync(wake === 'probe' ? 60_000 : 0);
      expect([wake, state(), heard('revived').length]).toEqual([wake, 'ready', 1]);
      await supervisor.dispose();
      expect([server.live, clock.pendingTimers]).toEqual([0, 0]);
    }
  });
});

describe('starts and restarts', () => {
  test('D-03 a server that cannot start is started as often as its plan allows, for any number of calls', async () => {
    const { acquire, server, clock } = setUp({ random: () => 1 });
    server.next = () => failing;
    for (let i = 0; i < 3_600; i++) {
      acquire(500).catch(() => {});
      await clock.advanceAsync(1_000);
    }
    // Six starts within the budget; then a probe after 72, 144, 288 and each 360 s, and one start for callers between two.
    const probes = 3 + Math.floor((3_600 - 3 - 72 - 144 - 288) / 360);
    const minutes = server.startedAtMs.map((atMs) => Math.round(atMs));
    expect(minutes.slice(0, 6)).toEqual([0, 100, 300, 700, 1_500, 3_100]);
    expect(server.starts).toBe(6 + probes + (probes + 1));
  });

  test('D-07 fifty calls that fail with one crash charge one restart', async () => {
    const { acquire, server, clock, supervisor, heard } = setUp();
    const { run } = await acquire();
    supervisor.lost(run, new HostError('transport', 'the first word'));
    for (let i = 0; i < 49; i++) supervisor.lost(run, crashed());
    await clock.advanceAsync(200);
    expect(supervisor.snapshot()).toMatchObject({ state: 'ready', run: 2, restarts: 1, ejected: false });
    expect(supervisor.snapshot().lastError?.message).toBe('the first word');
    expect([server.starts, heard('restart').length]).toEqual([2, 1]);
  });

  test('D-08 a late event of an older run does not affect the newer one', async () => {
    const { acquire, server, clock, supervisor, state } = setUp();
    await acquire();
    server.connection?.die();
    await clock.advanceAsync(200);
    supervisor.lost(1, crashed());
    supervisor.missed(1);
    supervisor.succeeded(1, clock.nowMs());
    expect([state(), supervisor.snapshot().run, supervisor.snapshot().lastSuccessAtMs]).toEqual([
      'ready',
      2,
      undefined,
    ]);
  });

  test('S6 a start that can never work is tried once, and the reason is kept', async () => {
    const { acquire, server, clock, supervisor } = setUp();
    server.next = () => ({ error: new HostError('connect_failed', 'no such command', { reason: 'ENOENT' }) });
    const error: HostError = await acquire().catch((reason) => reason);
    await clock.advanceAsync(4_000);
    expect([error.code, error.details.reason, server.starts]).toEqual(['server_parked', 'ENOENT', 1]);
    expect(supervisor.snapshot()).toMatchObject({
      state: 'parked',
      ejected: false,
      reason: { code: 'connect_failed', message: 'no such command' },
      lastError: { code: 'connect_failed', message: 'no such command', atMs: 0 },
      nextProbeAtMs: 60_000,
    });
  });

  test('the first start of a package runner is not charged', async () => {
    const { server, clock, supervisor } = setUp({ isFirstStartFree: true });
    server.next = (run) => (run === 1 ? failing : {});
    supervisor.start();
    await clock.advanceAsync(100);
    expect(supervisor.snapshot()).toMatchObject({ state: 'ready', restarts: 0, run: 2 });
  });

  test('a run that dies before it is acquired counts as a failed start, and is closed first', async () => {
    const { server, clock, supervisor } = setUp();
    server.next = (run) => (run === 1 ? { isStillborn: true, closeMs: 50 } : {});
    supervisor.start();
    await clock.advanceAsync(49);
    expect([supervisor.snapshot().state, server.live]).toEqual(['connecting', 1]);
    await clock.advanceAsync(101);
    expect(supervisor.snapshot()).toMatchObject({ state: 'ready', run: 2, restarts: 1, lastError: { atMs: 50 } });
    expect(server.liveMax).toBe(1);
  });

  test('the next run waits until the old one is closed', async () => {
    const { acquire, server, clock } = setUp();
    server.next = () => ({ closeMs: 5_000 });
    await acquire();
    server.connection?.die();
    await clock.advanceAsync(4_999);
    expect(server.starts).toBe(1);
    await clock.advanceAsync(1);
    expect([server.starts, server.liveMax]).toEqual([2, 1]);
  });

  test('an error that is no HostError is an ordinary failed start, and its text is not shown', async () => {
    const { server, settle, supervisor } = setUp();
    server.next = () => ({ error: new Error('token sk-secret') });
    supervisor.start();
    await settle();
    expect(JSON.stringify(supervisor.snapshot())).not.toContain('sk-secret');
    expect(supervisor.snapshot()).toMatchObject({ state: 'backing_off', lastError: { code: 'connect_failed' } });
  });

  test('a close that fails is reported, and the server continues', async () => {
    const { acquire, server, clock, heard } = setUp();
    const closeError = new Error('no such process');
    server.next = () => ({ closeError });
    await acquire();
    server.connection?.die();
    await clock.advanceAsync(200);
    expect(heard('close_failed')).toMatchObject([{ run: 1, error: closeError, server: 'files' }]);
    expect(server.starts).toBe(2);
  });
});

test.each([0, 1, 20])(
  'W20 with `maxRestarts` %i a server that never starts is restarted that many times, then parked',
  async (maxRestarts) => {
    const { clock, supervisor, server } = setUp({ plan: { ...defaultPlan, maxRestarts } });
    server.next = () => failing;
    supervisor.start();
    // Twenty waits of at most 5 s, and no probe of a parked server, which comes after 48 s at the earliest.
    for (let i = 0; i < 200 && supervisor.snapshot().state !== 'parked'; i++) await clock.advanceAsync(1_000);
    expect([supervisor.snapshot().state, server.starts]).toEqual(['parked', maxRestarts + 1]);
  },
);

test('W16 failures after a sleep of the machine are not charged, although the monotonic clock stood still', async () => {
  const { clock, supervisor, server, heard } = setUp();
  supervisor.start();
  await clock.advanceAsync(0);
  expect(supervisor.snapshot().state).toBe('ready');
  clock.sleep(8 * 3_600_000);
  server.next = () => failing;
  server.connection?.die();
  await clock.advanceAsync(20_000);
  expect(heard('freeze')).toMatchObject([{ server: 'files', cause: 'suspended', forMs: 30_000 }]);
  expect(server.starts).toBeGreaterThan(6);
  expect(supervisor.snapshot()).toMatchObject({ state: 'backing_off', restarts: 0 });
  await clock.advanceAsync(20_000);
  expect(supervisor.snapshot().restarts).toBeGreaterThan(0);
});

describe('a process that was suspended', () => {
  /** Time passes while the process is suspended, and no timer fires meanwhile. */
  function sleepy() {
    const awake = new FakeClock();
    let sleptMs = 0;
    const clock: Clock = {
      nowMs: () => awake.nowMs() + sleptMs,
      date: () => new Date(awake.date().getTime() + sleptMs),
      at: (atMs, run) => awake.at(atMs - sleptMs, run),
    };
    return { awake, clock, sleep: (ms: number) => (sleptMs += ms) };
  }

  test('S4 charges no server for failures after a sleep, and reports it once', async () => {
    const { awake, clock, sleep } = sleepy();
    const { supervisor, server, heard } = setUp({
      clock,
      guard: new CorrelatedFailures(clock),
      gate: new StartGate(clock, { concurrent: 4 }),
    });
    server.next = () => failing;
    supervisor.start();
    await awake.advanceAsync(0);
    expect(supervisor.snapshot()).toMatchObject({ state: 'backing_off', restarts: 1 });
    sleep(8 * 3_600_000);
    await awake.advanceAsync(29_000);
    expect(heard('freeze')).toMatchObject([
      {
        server: 'files',
        run: 1,
        cause: 'suspended',
        servers: ['files'],
        forMs: 30_000,
        untilMs: 8 * 3_600_000 + 30_075,
      },
    ]);
    // More than seven failures since the process resumed, and none of them counts.
    expect(server.starts).toBeGreaterThan(7);
    expect([supervisor.snapshot().restarts, heard('parked').length]).toEqual([0, 0]);
    await awake.advanceAsync(60_000);
    expect(supervisor.snapshot().state).toBe('parked');
  });
});

describe('the effect of the outcome of a call on its server', () => {
  test('D-33 only a result proves the server: an error as its answer is only a sign of life', async () => {
    const { acquire, clock, supervisor } = setUp();
    const { run } = await acquire();
    supervisor.answered(run);
    await clock.advanceAsync(6_000);
    expect(supervisor.snapshot()).toMatchObject({ isProven: false, lastSuccessAtMs: undefined });
    supervisor.missed(run);
    supervisor.answered(run);
    expect(supervisor.snapshot()).toMatchObject({ state: 'ready', isProven: false });
    supervisor.succeeded(run, clock.nowMs());
    expect(supervisor.snapshot()).toMatchObject({ isProven: true, lastSuccessAtMs: 6_000 });
  });
});

describe('a suspect server', () => {
  async function suspect(verify: SupervisorOptions<FakeConnection>['verify']) {
    let asked = 0;
    const counting: typeof verify = (...args) => {
      asked++;
      return verify(...args);
    };
    const parts = setUp({ verify: counting });
    const { run } = await parts.acquire();
    parts.supervisor.missed(run);
    expect(parts.state()).toBe('suspect');
    return { ...parts, asked: () => asked };
  }

  test('is checked once before the next call, and acquired if it answers', async () => {
    const { acquire, asked, state } = await suspect(async () => true);
    const runs = (await Promise.all([acquire(), acquire(), acquire()])).map(({ run }) => run);
    expect([runs, asked(), state()]).toEqual([[1, 1, 1], 1, 'ready']);
  });

  test.each([
    ['fails', async () => false],
    ['throws', () => Promise.reject(new Error('gone'))],
    ['gets no answer', () => new Promise<boolean>(() => {})],
  ])('is replaced if its check %s', async (_how, verify) => {
    const { acquire, clock, supervisor, server } = await suspect(verify);
    acquire().catch(() => {});
    await clock.advanceAsync(5_200);
    expect(supervisor.snapshot()).toMatchObject({ state: 'ready', run: 2, lastError: { code: 'transport' } });
    expect([server.liveMax, supervisor.snapshot().waiting]).toEqual([1, 0]);
  });

  test.each([
    ['fails', async () => false],
    ['gets no answer', () => new Promise<boolean>(() => {})],
  ])('W7 is not replaced while it works on a call, even if its check %s', async (_how, verify) => {
    const { acquire, clock, server, supervisor } = await suspect(verify);
    const waiting = acquire();
    // A request that could not be sent for a while reached the server after it became suspect.
    if (server.connection) server.connection.isAtWork = true;
    await clock.advanceAsync(5_200);
    expect((await waiting).run).toBe(1);
    expect(supervisor.snapshot()).toMatchObject({ state: 'ready', run: 1, restarts: 0 });
  });

  test('that answers a call meanwhile is no longer suspect, whatever the later result of the check', async () => {
    let say: (isAlive: boolean) => void = () => {};
    const verify = () => new Promise<boolean>((resolve) => (say = resolve));
    const { acquire, clock, supervisor, settle } = await suspect(verify);
    const waiting = acquire();
    await settle();
    supervisor.succeeded(1, clock.nowMs());
    expect((await waiting).run).toBe(1);
    say(false);
    await clock.advanceAsync(5_200);
    expect(supervisor.snapshot()).toMatchObject({ state: 'ready', run: 1, restarts: 0 });
  });
});

test('a server with waiting callers is not idle', async () => {
  const { acquire, supervisor, state } = setUp();
  const { run } = await acquire();
  supervisor.missed(run);
  const waiting = acquire();
  supervisor.idle();
  expect([(await waiting).run, state()]).toEqual([1, 'ready']);
});

describe('operators', () => {
  test('D-12 a stop closes the connection despite leases, and resolves when it is closed', async () => {
    const { acquire, server, clock, supervisor, state } = setUp();
    server.next = () => ({ closeMs: 2_000 });
    await acquire();
    let isDone = false;
    const stopped = supervisor.stop().then(() => {
      isDone = true;
    });
    expect(await outcome(acquire())).toBe('server_stopped');
    await clock.advanceAsync(1_999);
    expect([isDone, state()]).toEqual([false, 'stopping']);
    await clock.advanceAsync(1);
    await stopped;
    expect([state(), server.live]).toEqual(['stopped', 0]);
  });

  test('D-13 stopped is sticky until a start', async () => {
    const { acquire, server, clock, supervisor, state } = setUp();
    await acquire();
    await supervisor.stop();
    expect(await outcome(acquire())).toBe('server_stopped');
    await clock.advanceAsync(86_400_000);
    expect([state(), server.starts]).toEqual(['stopped', 1]);
    supervisor.start();
    expect((await acquire()).run).toBe(2);
  });

  test.each([
    ['called off', { afterMs: 1_000 }, 0],
    ['closed when it still becomes ready', { afterMs: 1_000, ignoresAbort: true }, 1_000],
    ['forgotten when it fails', { afterMs: 1_000, ignoresAbort: true, error: crashed() }, 1_000],
  ])('a start that is stopped half-way is %s', async (_how, attempt, takesMs) => {
    const { acquire, server, clock, supervisor, state } = setUp();
    server.next = () => attempt;
    const waiting = outcome(acquire());
    const stopped = supervisor.stop().then(() => clock.nowMs());
    await clock.advanceAsync(2_000);
    expect([await stopped, await waiting, state(), server.live]).toEqual([takesMs, 'server_stopped', 'stopped', 0]);
    expect([server.opened, clock.pendingTimers]).toEqual([server.closed, 0]);
  });

  test('a start that waits at the gate is withdrawn by a stop, and costs nothing', async () => {
    const clock = new FakeClock();
    const gate = new StartGate(clock, { concurrent: 1 });
    gate.enter({ isStillNeeded: () => true, begin: () => {} });
    const server = new FakeServer(clock);
    const { supervisor, state } = setUp({ clock, gate, connect: server.connect });
    supervisor.start();
    expect([state(), gate.waiting]).toEqual(['connecting', 1]);
    await supervisor.stop();
    expect([state(), gate.waiting, server.starts]).toEqual(['stopped', 0, 0]);
  });

  test('a reload of a lazy server that is waited for brings it up again', async () => {
    const { acquire, server, clock, supervisor } = setUp();
    server.next = () => ({ closeMs: 1_000 });
    await acquire();
    const reloaded = supervisor.reload();
    const waiting = acquire();
    await clock.advanceAsync(1_000);
    await reloaded;
    expect((await waiting).run).toBe(2);
  });

  test('C-INV an idle stop with waiting callers is followed by a start', async () => {
    const { acquire, server, clock, supervisor, state } = setUp();
    server.next = () => ({ closeMs: 1_000 });
    await acquire();
    supervisor.idle();
    const waiting = acquire();
    await clock.advanceAsync(1_000);
    expect([(await waiting).run, state(), supervisor.snapshot().restarts]).toEqual([2, 'ready', 0]);
    supervisor.idle();
    await clock.advanceAsync(1_000);
    expect([state(), clock.pendingTimers]).toEqual(['registered', 0]);
  });

  test('a new token starts a server that waits for one, even if it came while the old token was being refused', async () => {
    const refused = { afterMs: 100, error: new HostError('needs_reauth', 'it wants a token') };
    const { server, clock, supervisor, state } = setUp();
    server.next = () => refused;
    supervisor.start();
    await clock.advanceAsync(100);
    expect([state(), server.starts]).toEqual(['auth_required', 1]);
    supervisor.tokenChanged();
    supervisor.tokenChanged();
    await clock.advanceAsync(50);
    server.next = (run) => (run === 3 ? {} : refused);
    await clock.advanceAsync(50);
    expect([state(), server.starts]).toEqual(['ready', 3]);
  });

  test('a token that is refused after each renewal does not cause a loop of starts', async () => {
    const { server, clock, supervisor, state } = setUp();
    server.next = () => {
      supervisor.tokenChanged();
      return { afterMs: 10, error: new HostError('needs_reauth', 'it wants a token') };
    };
    supervisor.start();
    await clock.advanceAsync(60_000);
    expect([state(), server.starts]).toEqual(['auth_required', 2]);
  });

  test('disabling stops the server; after enabling, a call starts it again', async () => {
    const { acquire, supervisor, state } = setUp();
    await acquire();
    await supervisor.disable();
    supervisor.start();
    expect([state(), await outcome(acquire())]).toEqual(['disabled', 'server_disabled']);
    supervisor.enable();
    expect((await acquire()).run).toBe(2);
  });
});

describe('events', () => {
  test('arrive in order, after the state of the supervisor has settled', async () => {
    const { acquire, server, clock, events, supervisor, heard } = setUp();
    const seen: string[] = [];
    events.on('supervisor', (event) => {
      if (event.kind === 'state') seen.push(`${event.to}/${supervisor.snapshot().state}`);
    });
    await acquire();
    server.connection?.die();
    await clock.advanceAsync(30_100);
    expect(heard('state').map((event) => event.kind === 'state' && event.to)).toEqual([
      'connecting',
      'ready',
      'closing',
      'backing_off',
      'connecting',
      'ready',
    ]);
    expect(seen[0]).toBe('connecting/connecting');
    expect(heard('restart')).toMatchObject([{ run: 1, restarts: 1, reason: { code: 'transport' }, server: 'files' }]);
    expect(heard('proven')).toMatchObject([{ run: 2 }]);
    expect(supervisor.snapshot().restarts).toBe(0);
  });

  test('D-34 the same reason counts as a repeat until the server was proven in between; each revival is reported once', async () => {
    const { server, clock, park, supervisor, heard } = setUp();
    await park();
    server.next = () => ({});
    await clock.advanceAsync(100_000);
    expect(heard('revived')).toHaveLength(1);
    server.connection?.die();
    await clock.advanceAsync(1_000);
    expect([supervisor.snapshot().state, heard('revived').length]).toEqual(['ready', 1]);
    await supervisor.stop();
    await park();
    expect(heard('parked').map((event) => event.kind === 'parked' && event.repeats)).toEqual([0, 0]);
  });

  test('a listener may act on an event', async () => {
    const { acquire, events, supervisor, state, settle } = setUp();
    events.on('supervisor', (event) => {
      if (event.kind === 'state' && event.to === 'ready') void supervisor.stop();
    });
    await acquire();
    await settle();
    expect(state()).toBe('stopped');
  });
});

describe('disposing', () => {
  test('closes the connection, fails all waiting callers, leaves no timer, and cannot be undone', async () => {
    const { acquire, server, clock, supervisor, state, heard } = setUp();
    server.next = () => ({ afterMs: 1_000, closeMs: 100 });
    const waiting = outcome(acquire());
    const disposed = supervisor.dispose();
    await clock.advanceAsync(1_100);
    await disposed;
    supervisor.start();
    await supervisor.reload();
    expect([await waiting, await outcome(acquire()), state()]).toEqual(['server_stopped', 'server_stopped', 'stopped']);
    expect([server.live, clock.pendingTimers, heard('state').length]).toEqual([0, 0, 3]);
  });
});

test('AC-R5 two callers at once of a server that is not running hold two leases on one run', async () => {
  const { acquire, server, clock, supervisor } = setUp();
  const registry = new Registry<object>({ clock, onIdle: () => supervisor.idle() });
  registry.register({ name: 'files', spec: {}, isLazy: true, keepAliveMs: 50, card: undefined });
  const ensure = async () => {
    const lease = registry.lease('files');
    return { lease, ...(await acquire()) };
  };
  const [a, b] = await Promise.all([ensure(), ensure()]);
  registry.opened('files');
  expect([a.connection === b.connection, server.starts, registry.snapshot()[0]?.refCount]).toEqual([true, 1, 2]);
  a.lease.release();
  b.lease.release();
  await clock.advanceAsync(50);
  expect([supervisor.snapshot().state, server.live]).toEqual(['registered', 0]);
});

test('a listener or history that throws does not stop the supervisor or its other events', async () => {
  let fails = true;
  const remember = () => {
    if (fails) throw new Error('full disk');
  };
  const { supervisor, server, clock, events, heard, state, settle } = setUp({
    isLazy: false,
    history: { ledger: emptyLedger, remember },
  });
  const { emit } = events;
  events.emit = () => {
    throw new Error('nobody listens');
  };
  expect(() => supervisor.begin()).toThrow('nobody listens');
  events.emit = emit;
  await settle();
  expect(state()).toBe('ready');
  expect(heard('state').map((event) => 'to' in event && event.to)).toEqual(['ready']);
  expect(() => server.connection?.die()).toThrow('full disk');
  fails = false;
  await clock.advanceAsync(60_000);
  expect([state(), server.starts]).toEqual(['ready', 2]);
});
