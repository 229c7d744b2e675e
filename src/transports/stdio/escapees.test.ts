import { expect, test } from 'vitest';
import { type FakeProcess, FakeProcesses } from '../../../test/fakes/stdio-process-table.js';
import { Escapees } from './escapees.js';

/** Counts the walks. */
function setUp(...processes: FakeProcess[]) {
  const table = new FakeProcesses(...processes);
  const living = table.living.bind(table);
  const walks = { count: 0 };
  table.living = () => {
    walks.count++;
    return living();
  };
  return { table, walks, escapees: new Escapees(table) };
}

const run = (pid: number, mark: string) => ({ leader: { pid, startTicks: 100 }, mark, descendants: [] });

test('questions asked together share one walk, and each gets its own', async () => {
  const { escapees, walks } = setUp(
    { pid: 50, mark: 'a.1' },
    { pid: 51, mark: 'a.2' },
    { pid: 52, mark: 'a.1' },
    { pid: 53, mark: 'a.1', startTicks: 1 },
    { pid: 54 },
  );
  expect(
    await Promise.all([escapees.find(run(10, 'a.1')), escapees.find(run(11, 'a.2')), escapees.find(run(12, 'a.3'))]),
  ).toEqual([[50, 52], [51], []]);
  expect(walks.count).toBe(1);
});

test('descendants are seen to the last generation, and stops of the same moment share one walk', async () => {
  const { escapees, walks } = setUp(
    { pid: 10 },
    { pid: 11, ppid: 10 },
    { pid: 12, ppid: 11 },
    { pid: 13, ppid: 12, state: 'Z' },
    { pid: 20 },
    { pid: 21, ppid: 20 },
    { pid: 30, ppid: 1 },
  );
  expect(escapees.descendants(10).map(({ pid }) => pid)).toEqual([11, 12]);
  expect(escapees.descendants(20).map(({ pid }) => pid)).toEqual([21]);
  expect(walks.count).toBe(1);
  await new Promise((resolve) => setImmediate(resolve));
  escapees.descendants(10);
  expect(walks.count).toBe(2);
});

test('a descendant without a mark counts when it is still there, outside the group, and the same process', async () => {
  const { table, escapees } = setUp(
    { pid: 10 },
    { pid: 11, ppid: 10, pgid: 10, stuck: true },
    { pid: 12, ppid: 10 },
    { pid: 13, ppid: 10 },
    { pid: 14, ppid: 10 },
    { pid: 15, ppid: 10, mark: 'a.1' },
  );
  const descendants = escapees.descendants(10);
  table.kill(10, 'SIGKILL');
  table.kill(13, 'SIGKILL');
  table.kill(14, 'SIGKILL');
  table.add({ pid: 14, ppid: 1, startTicks: 200 });
  // Born after the look, of one that was seen.
  table.add({ pid: 16, ppid: 12, startTicks: 200 });
  expect(await escapees.find({ ...run(10, 'a.1'), descendants })).toEqual([12, 15, 16]);
});

test('a table that cannot be read hides the escaped, and stops nothing', async () => {
  const { table, escapees } = setUp({ pid: 50, mark: 'a.1' });
  table.isUnreadable = true;
  expect(escapees.descendants(50)).toEqual([]);
  expect(await escapees.find(run(10, 'a.1'))).toEqual([]);
});
