import { describe, expect, test } from 'vitest';
import { type FakeProcess, FakeProcesses } from '../../../test/fakes/stdio-process-table.js';
import { EscapedProcesses } from './escaped-processes.js';
import type { ProcessFacts } from './process-table.js';

/** Counts the walks through the process table. */
function setUp(...processes: FakeProcess[]) {
  const table = new FakeProcesses(...processes);
  const living = table.living.bind(table);
  const walks = { count: 0 };
  table.living = () => {
    walks.count++;
    return living();
  };
  return { table, walks, escaped: new EscapedProcesses(table) };
}

const run = (pid: number, mark: string, server = 'files') => ({
  ...{ server, leader: { pid, startTicks: 100 }, mark },
  descendants: [],
});

test('simultaneous searches share one walk, and each gets its own processes', async () => {
  const { escaped, walks } = setUp(
    { pid: 50, mark: 'a.1' },
    { pid: 51, mark: 'a.2' },
    { pid: 52, mark: 'a.1' },
    { pid: 53, mark: 'a.1', startTicks: 1 },
    { pid: 54 },
  );
  expect(
    await Promise.all([escaped.find(run(10, 'a.1')), escaped.find(run(11, 'a.2')), escaped.find(run(12, 'a.3'))]),
  ).toEqual([[50, 52], [51], []]);
  expect(walks.count).toBe(1);
});

test('descendants of all generations are found, and simultaneous stops share one walk', async () => {
  const { escaped, walks } = setUp(
    { pid: 10 },
    { pid: 11, ppid: 10 },
    { pid: 12, ppid: 11 },
    { pid: 13, ppid: 12, state: 'Z' },
    { pid: 20 },
    { pid: 21, ppid: 20 },
    { pid: 30, ppid: 1 },
  );
  expect(escaped.descendants(10).map(({ pid }) => pid)).toEqual([11, 12]);
  expect(escaped.descendants(20).map(({ pid }) => pid)).toEqual([21]);
  expect(walks.count).toBe(1);
  await new Promise((resolve) => setImmediate(resolve));
  escaped.descendants(10);
  expect(walks.count).toBe(2);
});

test('a descendant without a mark counts if it still runs, outside the group, as the same process', async () => {
  const { table, escaped } = setUp(
    { pid: 10 },
    { pid: 11, ppid: 10, pgid: 10, stuck: true },
    { pid: 12, ppid: 10 },
    { pid: 13, ppid: 10 },
    { pid: 14, ppid: 10 },
    { pid: 15, ppid: 10, mark: 'a.1' },
  );
  const descendants = escaped.descendants(10);
  table.kill(10, 'SIGKILL');
  table.kill(13, 'SIGKILL');
  table.kill(14, 'SIGKILL');
  table.add({ pid: 14, ppid: 1, startTicks: 200 });
  // Started after the walk, by a process that was found.
  table.add({ pid: 16, ppid: 12, startTicks: 200 });
  expect(await escaped.find({ ...run(10, 'a.1'), descendants })).toEqual([12, 15, 16]);
});

test('with an unreadable process table no escaped process is found, and the stop continues', async () => {
  const { table, escaped } = setUp({ pid: 50, mark: 'a.1' });
  table.isUnreadable = true;
  expect(escaped.descendants(50)).toEqual([]);
  expect(await escaped.find(run(10, 'a.1'))).toEqual([]);
});

describe('the count of escaped processes of a server', () => {
  /** Processes with the mark of their server's run. They can end, and their pids can be reused. */
  function marked(...processes: (readonly [pid: number, server: string])[]) {
    const { table, escaped } = setUp(...processes.map(([pid, server]) => ({ pid, mark: server })));
    const gone = new Set<number>();
    const changed = new Map<number, Partial<ProcessFacts>>();
    const read = table.read.bind(table);
    table.read = (pid) => {
      const facts = gone.has(pid) ? 'gone' : read(pid);
      return typeof facts === 'string' ? facts : { ...facts, ...changed.get(pid) };
    };
    return { table, gone, changed, escaped, found: (server: string) => escaped.find(run(9_000, server, server)) };
  }

  test('includes only processes that still run at the time of the read', async () => {
    const { escaped, found, gone, changed } = marked([1, 'a'], [2, 'a'], [4, 'b']);
    await Promise.all([found('a'), found('b')]);
    expect([escaped.countOf('a'), escaped.countOf('b'), escaped.countOf('c')]).toEqual([2, 1, 0]);
    gone.add(1);
    changed.set(2, { startTicks: 200 });
    expect([escaped.countOf('a'), escaped.countOf('b')]).toEqual([0, 1]);
    changed.set(4, { state: 'Z' });
    expect(escaped.countOf('b')).toBe(0);
  });

  test('adds processes of a later run, and is unchanged by an unreadable table', async () => {
    const { table, escaped, found } = marked([1, 'a']);
    await found('a');
    table.add({ pid: 2, mark: 'a.2' });
    await escaped.find(run(9_000, 'a.2', 'a'));
    expect(escaped.countOf('a')).toBe(2);
    table.read = () => 'unknown';
    expect(escaped.countOf('a')).toBe(2);
  });

  test('is bounded', async () => {
    const { escaped, found } = marked(...Array.from({ length: 300 }, (_, i) => [i + 1, 'a'] as const));
    expect(await found('a')).toHaveLength(300);
    expect(escaped.countOf('a')).toBe(256);
  });
});
