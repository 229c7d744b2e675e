import { expect, test } from 'vitest';
import { FakeProcesses } from '../../../test/fakes/stdio-process-table.js';
import { EscapedProcesses } from './escaped-processes.js';
import type { ProcessFacts } from './process-table.js';

/** A table whose processes can end, and whose numbers can be given to others. */
function setUp(...pids: number[]) {
  const table = new FakeProcesses(...pids.map((pid) => ({ pid, startTicks: 100 })));
  const gone = new Set<number>();
  const changed = new Map<number, Partial<ProcessFacts>>();
  const read = table.read.bind(table);
  table.read = (pid) => {
    const facts = gone.has(pid) ? 'gone' : read(pid);
    return typeof facts === 'string' ? facts : { ...facts, ...changed.get(pid) };
  };
  return { table, gone, changed, escaped: new EscapedProcesses(table) };
}

test('counts those of a server that still run, and is exact at each look', () => {
  const { escaped, gone, changed } = setUp(1, 2, 3, 4);
  escaped.add('a', [1, 2]);
  escaped.add('a', [3]);
  escaped.add('b', [4]);
  expect([escaped.countOf('a'), escaped.countOf('b'), escaped.countOf('c')]).toEqual([3, 1, 0]);
  gone.add(1);
  changed.set(2, { startTicks: 200 });
  changed.set(3, { state: 'Z' });
  expect([escaped.countOf('a'), escaped.countOf('b')]).toEqual([0, 1]);
});

test('what has ended before it could be noted is not counted, and a table that cannot be read changes nothing', () => {
  const { escaped, table } = setUp(1);
  escaped.add('a', [1, 9]);
  expect(escaped.countOf('a')).toBe(1);
  table.read = () => 'unknown';
  expect(escaped.countOf('a')).toBe(1);
});

test('keeps a bounded number for each server', () => {
  const pids = Array.from({ length: 300 }, (_, i) => i + 1);
  const { escaped } = setUp(...pids);
  escaped.add('a', pids);
  expect(escaped.countOf('a')).toBe(256);
});
