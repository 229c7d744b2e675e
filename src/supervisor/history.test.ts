import { describe, expect, test } from 'vitest';
import { crashed, type FakeConnection, FakeServer } from '../../test/fakes/supervised-server.js';
import { Emitter } from '../kernel/emitter.js';
import { HostError } from '../kernel/errors.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { CorrelatedFailures } from './correlated-failures.js';
import { type HistoryRecord, ledgerOf, parseRecord, recordOf } from './history.js';
import type { SupervisorOptions } from './ports.js';
import { defaultPlan, emptyLedger, type Ledger, restartsInWindow } from './restart-plan.js';
import { StartGate } from './start-gate.js';
import { Supervisor } from './supervisor.js';
import type { SupervisorEvents } from './supervisor-events.js';

const minute = 60_000;
const wallStart = new Date('2026-03-01T12:00:00Z');
const wall = (afterMs: number) => new Date(wallStart.getTime() + afterMs);
const reason = { code: 'transport', message: 'it exited with code 1' };

const failed: Ledger = {
  restartsAtMs: [1_000, 61_000],
  unprovenStarts: 2,
  failedProbes: 3,
  unchargedFailures: 4,
  parked: { reason, atMs: 61_500 },
};

describe('a ledger in wall clock times', () => {
  const clock = new FakeClock(0, wallStart);
  clock.advance(2 * minute);
  const record = recordOf(failed, clock) as HistoryRecord;

  test('its times are those of the wall clock, and faults of the host are left out', () => {
    expect(record).toEqual({
      restartsAt: [wall(1_000).getTime(), wall(61_000).getTime()],
      unprovenStarts: 2,
      failedProbes: 3,
      parked: { ...reason, at: wall(61_500).getTime() },
    });
  });

  test('survives as text, with its present age, on a clock that was restarted', () => {
    const next = new FakeClock(7, wall(3 * minute));
    expect(ledgerOf(parseRecord(JSON.stringify(record)), next, defaultPlan)).toEqual({
      restartsAtMs: [7 + 1_000 - 3 * minute, 7 + 61_000 - 3 * minute],
      unprovenStarts: 2,
      failedProbes: 3,
      unchargedFailures: 0,
      parked: { reason, atMs: 7 + 61_500 - 3 * minute },
    });
  });

  test('the ages stay correct if the wall clock was set meanwhile', () => {
    const set = new FakeClock(0, wallStart);
    set.advance(2 * minute);
    set.jumpWall(-86_400_000);
    const kept = recordOf(failed, set) as HistoryRecord;
    const next = new FakeClock(0, set.date());
    expect(ledgerOf(kept, next, defaultPlan).restartsAtMs).toEqual([-119_000, -59_000]);
  });

  test('D-16 restarts older than the window no longer count; signs of a failing server do', () => {
    const late = new FakeClock(0, wall(5 * minute + 1_001));
    expect(ledgerOf(record, late, defaultPlan).restartsAtMs).toHaveLength(1);
    const nextDay = new FakeClock(0, wall(86_400_000));
    expect(ledgerOf(record, nextDay, defaultPlan)).toMatchObject({
      restartsAtMs: [],
      unprovenStarts: 2,
      failedProbes: 3,
    });
  });

  test('D-16 future times count as now, so a clock that was set back neither resets nor blocks a server for ever', () => {
    const back = new FakeClock(50, wall(-10 * 365 * 86_400_000));
    const ledger = ledgerOf(record, back, defaultPlan);
    expect(ledger).toMatchObject({ restartsAtMs: [50, 50], parked: { atMs: 50 } });
    back.advance(defaultPlan.windowMs);
    expect(restartsInWindow(ledger, back.nowMs(), defaultPlan)).toBe(2);
    back.advance(1);
    expect(restartsInWindow(ledger, back.nowMs(), defaultPlan)).toBe(0);
  });

  test('an empty ledger is not stored', () => {
    expect(recordOf(emptyLedger, clock)).toBeUndefined();
    expect(recordOf({ ...emptyLedger, unchargedFailures: 9 }, clock)).toBeUndefined();
    expect(ledgerOf(undefined, clock, defaultPlan)).toBe(emptyLedger);
  });

  test('a long reason is cut, and the stored text can be read again', () => {
    const long = { ...emptyLedger, parked: { reason: { code: 'transport', message: 'x'.repeat(5_000) }, atMs: 0 } };
    const kept = parseRecord(JSON.stringify(recordOf(long, clock)));
    expect(kept.parked?.message).toHaveLength(2_000);
  });

  test('the number of restored restarts is bounded by the plan', () => {
    const many = { ...record, restartsAt: Array.from({ length: 1_001 }, (_, i) => wall(i).getTime()) };
    const next = new FakeClock(0, wall(2_000));
    expect(ledgerOf(many, next, defaultPlan).restartsAtMs).toEqual([-1_005, -1_004, -1_003, -1_002, -1_001, -1_000]);
  });

  test.each([
    ['no JSON', '{'],
    ['another shape', '[]'],
    ['a count below zero', JSON.stringify({ ...record, unprovenStarts: -1 })],
    ['half a probe', JSON.stringify({ ...record, failedProbes: 0.5 })],
    ['times that are no numbers', JSON.stringify({ ...record, restartsAt: ['today'] })],
    ['more times than a ledger holds', JSON.stringify({ ...record, restartsAt: Array(1_002).fill(0) })],
  ])('a text with %s is refused', (_what, text) => {
    expect(() => parseRecord(text)).toThrow();
  });
});

/** Runs of one server under successive hosts. Only the stored history passes between hosts. */
function aMachine() {
  let record: string | undefined;
  let writes = 0;
  let wallNow = wallStart;
  return {
    record: () => (record === undefined ? undefined : parseRecord(record)),
    writes: () => writes,
    host: (options: Partial<SupervisorOptions<FakeConnection>> = {}, offMs = 0) => {
      const { plan = defaultPlan } = options;
      const clock = new FakeClock(0, new Date(wallNow.getTime() + offMs));
      const server = new FakeServer(clock);
      server.next = () => ({ error: crashed() });
      const ledger = ledgerOf(record === undefined ? undefined : parseRecord(record), clock, plan);
      const remember = (after: Ledger) => {
        const next = recordOf(after, clock);
        record = next && JSON.stringify(next);
        writes++;
      };
      const supervisor = new Supervisor<FakeConnection>({
        name: 'files',
        connect: server.connect,
        verify: async (connection) => connection.closedBy === undefined,
        clock,
        random: () => 0.5,
        gate: new StartGate(clock, { concurrent: 4 }),
        guard: new CorrelatedFailures(clock),
        events: new Emitter<SupervisorEvents>(),
        isLazy: true,
        history: { ledger, remember },
        ...options,
      });
      return {
        clock,
        server,
        supervisor,
        snapshot: () => supervisor.snapshot(),
        /** The time until the host tries the server again without a caller. */
        probeInMs: () => (supervisor.snapshot().nextProbeAtMs ?? Number.NaN) - clock.nowMs(),
        begin: async (forMs = 0) => {
          supervisor.begin();
          await clock.advanceAsync(forMs);
        },
        /** The host is killed: it writes nothing more. */
        gone: () => {
          wallNow = clock.date();
        },
      };
    },
  };
}

describe('the next host', () => {
  test('D-16 tries a parked server once, and parks it again', async () => {
    const machine = aMachine();
    const first = machine.host();
    await first.begin(20_000);
    expect([first.server.starts, first.snapshot().state]).toEqual([6, 'parked']);
    first.gone();

    const second = machine.host();
    expect(second.snapshot()).toMatchObject({ state: 'registered', ejected: false, run: 0, restarts: 6 });
    await second.begin(50_000);
    expect([second.server.starts, second.snapshot().state]).toEqual([1, 'parked']);
  });

  test('D-16 gives one try to a server that was parked with a small budget too, even long after the window of that budget', async () => {
    const machine = aMachine();
    const plan = { ...defaultPlan, maxRestarts: 1 };
    const first = machine.host({ plan });
    await first.begin(5_000);
    expect([first.server.starts, first.snapshot().state]).toEqual([2, 'parked']);
    first.gone();
    const second = machine.host({ plan }, 86_400_000);
    await second.begin(5_000);
    expect([second.server.starts, second.snapshot().state]).toEqual([1, 'parked']);
  });

  test('D-16 an ejected server is tried once as well, and waits for a reload again', async () => {
    const machine = aMachine();
    const plan = { ...defaultPlan, onExhausted: 'eject' } as const;
    const first = machine.host({ plan });
    await first.begin(20_000);
    expect(first.snapshot().state).toBe('ejected');
    first.gone();
    const second = machine.host({ plan });
    await second.begin(86_400_000);
    expect([second.server.starts, second.snapshot().state]).toEqual([1, 'ejected']);
  });

  test('D-34 continues to increase the waits between probes', async () => {
    const machine = aMachine();
    const waits: number[] = [];
    for (let host = 0; host < 5; host++) {
      const { begin, clock, gone, probeInMs, snapshot } = machine.host();
      await begin();
      while (snapshot().state !== 'parked') await clock.advanceAsync(10);
      waits.push(Math.round(probeInMs() / 1_000));
      gone();
    }
    expect(waits).toEqual([60, 120, 240, 300, 300]);
  });

  test('D-34 limits the starts of a server that can never start too, and keeps its reason', async () => {
    const machine = aMachine();
    const missing = new HostError('connect_failed', "no command 'x'", { reason: 'ENOENT' });
    const waits: number[] = [];
    for (let host = 0; host < 2; host++) {
      const { begin, server, gone, probeInMs } = machine.host();
      server.next = () => ({ error: missing });
      await begin();
      waits.push(Math.round(probeInMs() / 1_000));
      gone();
    }
    expect([waits, machine.record()?.parked?.message]).toEqual([[60, 120], "no command 'x'"]);
  });

  test('D-16 continues with the budget of the host that died, so that hosts in a crash loop share one budget', async () => {
    const machine = aMachine();
    let starts = 0;
    for (let host = 0; host < 20; host++) {
      const { begin, server, gone } = machine.host();
      await begin();
      starts += server.starts;
      gone();
    }
    // One start each: six to be parked, then one try for every host.
    expect([starts, machine.record()]).toMatchObject([20, { unprovenStarts: 6, failedProbes: 14 }]);
    const last = machine.host();
    await last.begin(20_000);
    expect([last.server.starts, last.snapshot().state]).toEqual([1, 'parked']);
  });

  test('D-16 leaves a server that had spent half of its budget the other half', async () => {
    const machine = aMachine();
    const first = machine.host();
    await first.begin();
    while (first.server.starts < 3) await first.clock.advanceAsync(10);
    first.gone();
    const second = machine.host();
    await second.begin(20_000);
    expect([second.server.starts, second.snapshot().state]).toEqual([3, 'parked']);
  });

  test('D-16 resets the history of a proven server only, not of one that was merely ready', async () => {
    const machine = aMachine();
    const parking = machine.host();
    await parking.begin(20_000);
    parking.gone();

    const shortly = machine.host();
    shortly.server.next = () => ({});
    await shortly.begin(29_000);
    expect([shortly.snapshot().state, machine.record()?.unprovenStarts]).toEqual(['ready', 6]);
    shortly.gone();

    const dying = machine.host();
    dying.server.next = () => ({});
    await dying.begin(10);
    dying.server.connection?.die();
    await dying.clock.advanceAsync(20_000);
    expect([dying.server.starts, dying.snapshot().state]).toEqual([1, 'parked']);
    dying.gone();

    const proving = machine.host();
    proving.server.next = () => ({});
    await proving.begin(30_000);
    expect([proving.snapshot().isProven, machine.record()]).toEqual([true, undefined]);
    proving.gone();

    const afresh = machine.host();
    await afresh.begin(20_000);
    expect(afresh.server.starts).toBe(6);
  });

  test.each(['start', 'reload'] as const)(
    'D-16 a %s by an operator empties the history for all later hosts',
    async (act) => {
      const machine = aMachine();
      const first = machine.host();
      await first.begin(20_000);
      first.gone();
      const second = machine.host();
      second.server.next = () => ({ afterMs: 1_000 });
      await second.supervisor[act]();
      expect(machine.record()).toBeUndefined();
      second.gone();
      const third = machine.host();
      await third.begin(20_000);
      expect(third.server.starts).toBe(6);
    },
  );

  test('D-16 shows the old reason for parking until there is a newer one', async () => {
    const machine = aMachine();
    const first = machine.host();
    await first.begin(20_000);
    const parkedAtMs = first.snapshot().sinceMs;
    first.gone();
    const second = machine.host({}, 5_000);
    const { lastError } = second.snapshot();
    expect(lastError).toEqual({ ...reason, atMs: Math.round(parkedAtMs) - 25_000 });
    second.server.next = () => ({ error: new HostError('timeout', 'too slow') });
    await second.begin();
    expect(second.snapshot().lastError).toMatchObject({ code: 'timeout', message: 'too slow', atMs: 0 });
  });

  test('a package runner that has failed before has used its free start', async () => {
    const machine = aMachine();
    const first = machine.host({ isFirstStartFree: true });
    await first.begin();
    while (first.server.starts < 3) await first.clock.advanceAsync(10);
    expect(machine.record()?.unprovenStarts).toBe(2);
    first.gone();
    const second = machine.host({ isFirstStartFree: true });
    await second.begin(20_000);
    expect([second.server.starts, second.snapshot().state]).toEqual([4, 'parked']);
  });
});

test('a server without failures causes no writes, however often it is called, stopped and started', async () => {
  const machine = aMachine();
  const { server, supervisor, begin, clock } = machine.host();
  server.next = () => ({});
  await begin();
  for (let call = 0; call < 100; call++) supervisor.succeeded(1, clock.nowMs());
  await clock.advanceAsync(60_000);
  await supervisor.reload();
  await supervisor.stop();
  supervisor.start();
  await supervisor.dispose();
  expect(machine.writes()).toBe(0);
});

test('one write for each failure, and none for the calls that wait', async () => {
  const machine = aMachine();
  const { server, supervisor, clock } = machine.host();
  for (let call = 0; call < 50; call++) supervisor.acquire(clock.nowMs() + 60_000).catch(() => {});
  await clock.advanceAsync(20_000);
  expect([server.starts, machine.writes()]).toEqual([6, 6]);
});
