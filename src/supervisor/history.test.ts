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

describe('a ledger on the wall', () => {
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

  test('comes back through text, as old as it is by now, on a clock that began anew', () => {
    const next = new FakeClock(7, wall(3 * minute));
    expect(ledgerOf(parseRecord(JSON.stringify(record)), next, defaultPlan)).toEqual({
      restartsAtMs: [7 + 1_000 - 3 * minute, 7 + 61_000 - 3 * minute],
      unprovenStarts: 2,
      failedProbes: 3,
      unchargedFailures: 0,
      parked: { reason, atMs: 7 + 61_500 - 3 * minute },
    });
  });

  test('the wall clock was set while it ran: the ages stay true', () => {
    const set = new FakeClock(0, wallStart);
    set.advance(2 * minute);
    set.jumpWall(-86_400_000);
    const kept = recordOf(failed, set) as HistoryRecord;
    const next = new FakeClock(0, set.date());
    expect(ledgerOf(kept, next, defaultPlan).restartsAtMs).toEqual([-119_000, -59_000]);
  });

  test('D-16 restarts older than the window no longer count; what shows a server in trouble does', () => {
    const late = new FakeClock(0, wall(5 * minute + 1_001));
    expect(ledgerOf(record, late, defaultPlan).restartsAtMs).toHaveLength(1);
    const nextDay = new FakeClock(0, wall(86_400_000));
    expect(ledgerOf(record, nextDay, defaultPlan)).toMatchObject({
      restartsAtMs: [],
      unprovenStarts: 2,
      failedProbes: 3,
    });
  });

  test('D-16 times of the future count as of now, so a clock set back neither pardons nor punishes for ever', () => {
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

  test('a long reason is cut, and what is kept can be read again', () => {
    const long = { ...emptyLedger, parked: { reason: { code: 'transport', message: 'x'.repeat(5_000) }, atMs: 0 } };
    const kept = parseRecord(JSON.stringify(recordOf(long, clock)));
    expect(kept.parked?.message).toHaveLength(2_000);
  });

  test('no more restarts are taken over than the plan has room for', () => {
    const many = { ...record, restartsAt: Array.from({ length: 1_001 }, (_, i) => wall(i).getTime()) };
    const next = new FakeClock(0, wall(2_000));
    expect(ledgerOf(many, next, defaultPlan).restartsAtMs).toEqual([-1_005, -1_004, -1_003, -1_002, -1_001, -1_000]);
  });

  test.each([
    ['no JSON', '{'],
    ['another shape', '[]'],
    ['a count below nothing', JSON.stringify({ ...record, unprovenStarts: -1 })],
    ['half a probe', JSON.stringify({ ...record, failedProbes: 0.5 })],
    ['times that are none', JSON.stringify({ ...record, restartsAt: ['today'] })],
    ['more times than a ledger holds', JSON.stringify({ ...record, restartsAt: Array(1_002).fill(0) })],
  ])('a text with %s is refused', (_what, text) => {
    expect(() => parseRecord(text)).toThrow();
  });
});

/** Lives of one server under one host after the other; what is remembered is all that goes over. */
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
        /** From now until it is tried again by itself. */
        probeInMs: () => (supervisor.snapshot().nextProbeAtMs ?? Number.NaN) - clock.nowMs(),
        begin: async (forMs = 0) => {
          supervisor.begin();
          await clock.advanceAsync(forMs);
        },
        /** Killed: nothing more is heard of it. */
        gone: () => {
          wallNow = clock.date();
        },
      };
    },
  };
}

describe('the next host', () => {
  test('D-16 does not find a parked server parked, tries it once, and parks it again', async () => {
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

  test('D-16 one that was parked for a small budget has one try too, long after its window', async () => {
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

  test('D-34 the waits between probes go on growing over hosts', async () => {
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

  test('D-34 what can never start is kept from hammering too, with its reason', async () => {
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

  test('D-16 goes on with the budget where the last one died, so that hosts in a loop add up', async () => {
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

  test('D-16 a server that had spent half of its budget has the other half', async () => {
    const machine = aMachine();
    const first = machine.host();
    await first.begin();
    while (first.server.starts < 3) await first.clock.advanceAsync(10);
    first.gone();
    const second = machine.host();
    await second.begin(20_000);
    expect([second.server.starts, second.snapshot().state]).toEqual([3, 'parked']);
  });

  test('D-16 only a proven server is forgiven; one that merely came up is not', async () => {
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

  test.each(['start', 'reload'] as const)('D-16 a %s by an operator forgives for all hosts to come', async (act) => {
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
  });

  test('D-16 shows why it had been parked until something newer is known', async () => {
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

  test('a package runner that has failed before has had its free start', async () => {
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

test('a server without fault has nothing written about it, however often it is called, stopped and started', async () => {
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
