import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Attempt, crashed, type FakeConnection, FakeServer } from '../../test/fakes/supervised-server.js';
import { Emitter } from '../kernel/emitter.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { seededRandom } from '../kernel/random.js';
import { CorrelatedFailures } from './correlated-failures.js';
import { defaultPlan } from './restart-plan.js';
import { StartGate } from './start-gate.js';
import { Supervisor } from './supervisor.js';
import type { SupervisorEvents } from './supervisor-events.js';

const startTimeout = new HostError('timeout', 'it did not become ready', { reason: 'start_timeout' });
const missing = new HostError('connect_failed', 'no such command', { reason: 'ENOENT' });
const refused = new HostError('needs_reauth', 'it wants a token');

/** Every possible result of an attempt; the start timeout of the connector ends a start that hangs. */
const attempts: Readonly<Record<string, Attempt>> = {
  opens: {},
  'opens slowly': { afterMs: 2_000, closeMs: 500 },
  'opens late, wanted or not': { afterMs: 3_000, ignoresAbort: true, closeMs: 3_000 },
  fails: { error: crashed() },
  'fails slowly': { afterMs: 1_000, error: crashed() },
  'fails late, wanted or not': { afterMs: 1_000, error: crashed(), ignoresAbort: true },
  hangs: { afterMs: 30_000, error: startTimeout },
  'is stillborn': { isStillborn: true, closeMs: 100 },
  'cannot work': { error: missing },
  'is refused': { error: refused },
  'closes badly': { closeError: new Error('no such process'), closeMs: 10 },
};

const acts = [
  ...['acquire', 'acquire', 'acquireAndQuit', 'die', 'die', 'dieSilently', 'loseOld', 'succeed', 'miss', 'answer'],
  ...['start', 'stop', 'reload', 'disable', 'enable', 'token', 'idle', 'wait', 'wait', 'wait'],
] as const;

const history = fc.array(
  fc.record({
    act: fc.constantFrom(...acts),
    attempt: fc.constantFrom(...Object.keys(attempts)),
    byMs: fc.constantFrom(0, 10, 150, 1_000, 6_000, 31_000, 70_000, 400_000),
  }),
  { maxLength: 40 },
);

async function live(
  moves: readonly { act: (typeof acts)[number]; attempt: string; byMs: number }[],
  isLazy: boolean,
  ejects: boolean,
  seed: number,
): Promise<void> {
  const clock = new FakeClock();
  const server = new FakeServer(clock);
  const events = new Emitter<SupervisorEvents>((error) => {
    throw error;
  });
  const plan = { ...defaultPlan, onExhausted: ejects ? 'eject' : 'park' } as const;
  const supervisor = new Supervisor<FakeConnection>({
    name: 'files',
    connect: server.connect,
    verify: async ({ closedBy }) => closedBy === undefined,
    clock,
    random: seededRandom(seed),
    gate: new StartGate(clock, { concurrent: 4 }),
    guard: new CorrelatedFailures(clock),
    events,
    plan,
    isLazy,
  });
  let openings = 0;
  let restarts = 0;
  events.on('supervisor', (event) => {
    if (event.kind === 'state' && event.to === 'connecting') openings++;
    if (event.kind === 'restart') restarts++;
  });
  let waiting = 0;
  let settled = 0;
  const acquire = (signal?: AbortSignal) => {
    waiting++;
    const done = () => void settled++;
    supervisor.acquire(clock.nowMs() + 20_000, signal).then(done, done);
  };
  const stops: Promise<void>[] = [];
  const run = () => supervisor.snapshot().run;
  const perform: Readonly<Record<(typeof acts)[number], () => unknown>> = {
    acquire: () => acquire(),
    acquireAndQuit: () => {
      const abort = new AbortController();
      acquire(abort.signal);
      abort.abort();
    },
    die: () => server.connection?.die(),
    dieSilently: () => server.connection?.dieSilently(),
    loseOld: () => supervisor.lost(run() - 1, crashed()),
    succeed: () => supervisor.succeeded(run(), clock.nowMs()),
    miss: () => supervisor.missed(run()),
    answer: () => supervisor.answered(run()),
    start: () => supervisor.start(),
    stop: () => stops.push(supervisor.stop()),
    reload: () => stops.push(supervisor.reload()),
    disable: () => stops.push(supervisor.disable()),
    enable: () => supervisor.enable(),
    token: () => supervisor.tokenChanged(),
    idle: () => supervisor.idle(),
    wait: () => {},
  };

  for (const { act, attempt, byMs } of moves) {
    server.next = () => attempts[attempt] as Attempt;
    perform[act]();
    await clock.advanceAsync(act === 'wait' ? byMs : 0);
    expect(server.liveMax).toBeLessThanOrEqual(1);
  }

  // The faults are over.
  server.next = () => ({});
  const isOut = () => ['disabled', 'stopped', 'stopping', 'ejected'].includes(supervisor.snapshot().state);
  const wasOut = isOut();
  await clock.advanceAsync(2 * plan.probeMsMax * (1 + plan.probeJitter));
  if (!wasOut && !isOut()) {
    // Dead without a report, or idle: the next caller gets a connection.
    acquire();
    await clock.advanceAsync(6_000);
    expect(supervisor.snapshot().state).toBe('ready');
  }
  await clock.advanceAsync(20_000);
  expect([settled, supervisor.snapshot().waiting]).toEqual([waiting, 0]);

  // Each run begins once, or never if withdrawn at the gate; each announced restart is one of these runs.
  expect(run()).toBe(openings);
  expect(server.starts).toBeLessThanOrEqual(openings);
  expect(restarts).toBeLessThanOrEqual(openings);
  const disposed = supervisor.dispose();
  await clock.advanceAsync(10_000);
  await Promise.all([...stops, disposed]);
  expect({ live: server.live, leftOpen: server.opened - server.closed, timers: clock.pendingTimers }).toEqual({
    live: 0,
    leftOpen: 0,
    timers: 0,
  });
}

test('C-INV after any faults: one run at a time, every caller answered, nothing left over, and ready again at their end', async () => {
  const unhandled: unknown[] = [];
  const onUnhandled = (reason: unknown) => unhandled.push(reason);
  process.on('unhandledRejection', onUnhandled);
  try {
    await fc.assert(fc.asyncProperty(history, fc.boolean(), fc.boolean(), fc.integer(), live), { numRuns: 1_500 });
  } finally {
    process.off('unhandledRejection', onUnhandled);
  }
  expect(unhandled).toEqual([]);
}, 180_000);
