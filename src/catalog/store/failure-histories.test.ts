import { describe, expect, test } from 'vitest';
import { HostError } from '../../kernel/errors.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import type { HistoryRecord } from '../../supervisor/history.js';
import { defaultPlan, emptyLedger, type Ledger } from '../../supervisor/restart-plan.js';
import type { HistoryRow } from './failure-histories.js';
import { FailureHistories } from './failure-histories.js';

const failed = (unprovenStarts: number): Ledger => ({ ...emptyLedger, unprovenStarts });

function setUp() {
  const clock = new FakeClock();
  const rows = new Map<string, HistoryRecord>();
  const writes: { readonly atMs: number; readonly rows: readonly HistoryRow[] }[] = [];
  const problems: unknown[] = [];
  const disk = { isFull: false, isDamaged: false };
  const histories = {
    load: (server: string, fingerprint: string) => {
      if (disk.isDamaged) throw new Error('no such column');
      return rows.get(`${server} ${fingerprint}`);
    },
    save: (all: readonly HistoryRow[]) => {
      if (disk.isFull) throw new Error('database or disk is full');
      writes.push({ atMs: clock.nowMs(), rows: all });
      for (const { server, fingerprint, record } of all) {
        if (record) rows.set(`${server} ${fingerprint}`, record);
        else rows.delete(`${server} ${fingerprint}`);
      }
    },
  };
  const keeper = new FailureHistories(histories, clock, (error) => problems.push(error));
  const of = (server: string, fingerprint = 'f') => keeper.of(server, fingerprint, defaultPlan);
  return { clock, rows, writes, problems, disk, keeper, of, sizes: () => writes.map((write) => write.rows.length) };
}

describe('keeping', () => {
  test('a change is stored in its own tick, and the next reader gets it', () => {
    const { of, rows } = setUp();
    of('files').remember(failed(3));
    expect(rows.get('files f')?.unprovenStarts).toBe(3);
    expect(of('files').ledger.unprovenStarts).toBe(3);
  });

  test('D-36 another definition with the same name has its own history', () => {
    const { of } = setUp();
    of('files').remember(failed(3));
    const other = of('files', 'g');
    expect(other.ledger).toBe(emptyLedger);
    other.remember(failed(1));
    expect([of('files').ledger.unprovenStarts, of('files', 'g').ledger.unprovenStarts]).toEqual([3, 1]);
  });

  test('a server that is added again gets the history that is not written yet', () => {
    const { of } = setUp();
    const { remember } = of('files');
    for (let i = 1; i <= 20; i++) remember(failed(i));
    expect(of('files').ledger.unprovenStarts).toBe(20);
  });

  test('a thousand servers that fail three times within a moment cost nine writes', () => {
    const { of, clock, sizes, rows } = setUp();
    const all = Array.from({ length: 1_000 }, (_, i) => of(`s${i}`));
    for (const times of [1, 2, 3]) for (const { remember } of all) remember(failed(times));
    clock.advance(100);
    expect(sizes()).toEqual([...Array(8).fill(1), 1_000]);
    expect([...rows.values()].every(({ unprovenStarts }) => unprovenStarts === 3)).toBe(true);
  });

  test('under endless changes it writes a bounded number of times, and afterwards no timer is left', () => {
    const { of, clock, sizes, rows } = setUp();
    const { remember } = of('files');
    for (let i = 1; i <= 1_000; i++) {
      remember(failed(i));
      clock.advance(1);
    }
    expect(sizes().length).toBeLessThanOrEqual(8 * 10 + 1);
    clock.advance(200);
    expect(rows.get('files f')?.unprovenStarts).toBe(1_000);
    expect(clock.pendingTimers).toBe(0);
  });

  test('a flush writes waiting histories at once, and only once', () => {
    const { of, clock, keeper, sizes, rows } = setUp();
    const { remember } = of('files');
    for (let i = 1; i <= 10; i++) remember(failed(i));
    expect(rows.get('files f')?.unprovenStarts).toBe(8);
    keeper.flush();
    expect([rows.get('files f')?.unprovenStarts, clock.pendingTimers]).toEqual([10, 0]);
    clock.advance(1_000);
    keeper.flush();
    expect(sizes()).toHaveLength(9);
  });

  test('a reset history is deleted once; one that never existed is not', () => {
    const { of, clock, rows, sizes } = setUp();
    const { remember } = of('files');
    remember(emptyLedger);
    expect(sizes()).toEqual([]);
    remember(failed(1));
    clock.advance(1_000);
    remember(emptyLedger);
    clock.advance(1_000);
    remember({ ...emptyLedger, unchargedFailures: 1 });
    expect([sizes(), rows.size]).toEqual([[1, 1], 0]);
  });
});

describe('a disk that fails', () => {
  test('is reported, and the next change writes everything', async () => {
    const { of, clock, disk, problems, rows } = setUp();
    disk.isFull = true;
    const servers = Array.from({ length: 15 }, (_, i) => of(`s${i}`));
    for (const { remember } of servers) expect(() => remember(failed(2))).not.toThrow();
    await clock.advanceAsync(100);
    expect(problems).toHaveLength(9);
    expect(problems[0]).toBeInstanceOf(HostError);
    expect(String(problems[0])).toMatch(/the history of server 's0' could not be written$/);
    expect(String(problems[8])).toMatch(/of server 's8', .*server 's12' and 2 more could not be written$/);
    disk.isFull = false;
    await clock.advanceAsync(100);
    servers[0]?.remember(failed(3));
    expect(rows.get('s0 f')?.unprovenStarts).toBe(3);
  });

  test('a listener that throws does so outside of the state change', async () => {
    const heard: unknown[] = [];
    const full = {
      load: () => undefined,
      save: () => {
        throw new Error('full');
      },
    };
    const keeper = new FailureHistories(full, new FakeClock(), (error) => heard.push(error));
    keeper.of('files', 'f', defaultPlan).remember(failed(1));
    expect(heard).toEqual([]);
    await Promise.resolve();
    expect(heard).toHaveLength(1);
  });

  test('an unreadable history is reported with the name of its server and is ignored', async () => {
    const { of, disk, problems } = setUp();
    disk.isDamaged = true;
    expect(of('files').ledger).toBe(emptyLedger);
    await Promise.resolve();
    expect(problems).toMatchObject([{ details: { server: 'files', field: 'stateDir', reason: 'unusable_state' } }]);
  });
});
