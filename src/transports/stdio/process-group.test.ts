import { expect, test } from 'vitest';
import { FakeProcesses } from '../../../test/fakes/stdio-process-table.js';
import { ProcessGroup } from './process-group.js';

const group = (processes: FakeProcesses, pid = 50, startTicks = 100) =>
  new ProcessGroup({ pid, startTicks }, processes, processes.kill);

test('members are the live processes of the group, without zombies and foreign processes', () => {
  const processes = new FakeProcesses(
    { pid: 50 },
    { pid: 51, pgid: 50, startTicks: 101 },
    { pid: 52, pgid: 50, state: 'Z' },
    { pid: 60 },
  );
  expect(group(processes).members()).toMatchObject([{ pid: 50 }, { pid: 51 }]);
});

test('a group whose id was reused for another process has no members and gets no signal', () => {
  const processes = new FakeProcesses({ pid: 50, startTicks: 999 }, { pid: 51, pgid: 50, startTicks: 1_000 });
  expect(group(processes).members()).toEqual([]);
  expect(group(processes).signal('SIGKILL')).toBe(false);
  expect(group(processes).signalFollowers('SIGKILL')).toBe(false);
  expect(processes.signals).toEqual([]);
});

test.each([0, 1, -1, -7, 1.5, Number.NaN])('pid %s is never signalled', (pid) => {
  const processes = new FakeProcesses({ pid, pgid: pid });
  expect(group(processes, pid).signal('SIGTERM')).toBe(false);
  expect(group(processes, pid).members()).toEqual([]);
  expect(processes.signals).toEqual([]);
});

test('the group of Hostler is never signalled', () => {
  const processes = new FakeProcesses({ pid: 50 }, { pid: process.pid, pgid: 50, startTicks: 200 });
  expect(group(processes).signal('SIGTERM')).toBe(false);
  expect(group(processes).signalFollowers('SIGTERM')).toBe(false);
  expect(processes.signals).toEqual([]);
});

test('a signal goes to the group as a whole, in order', () => {
  const processes = new FakeProcesses({ pid: 50, stubborn: true });
  expect(group(processes).signal('SIGTERM', 'SIGCONT')).toBe(true);
  expect(processes.signals).toEqual([
    [-50, 'SIGTERM'],
    [-50, 'SIGCONT'],
  ]);
});

test('followers can be signalled without the leader', () => {
  const processes = new FakeProcesses({ pid: 50 }, { pid: 51, pgid: 50 }, { pid: 52, pgid: 50 });
  expect(group(processes).signalFollowers('SIGTERM')).toBe(true);
  expect(processes.signals.map(([pid]) => pid)).toEqual([51, 52]);
});

test('with an unreadable table a group with a member does not count as empty, and is still signalled', () => {
  const processes = new FakeProcesses({ pid: 50, stubborn: true });
  const made = group(processes);
  processes.isUnreadable = true;
  expect(made.members()).toBe('unknown');
  expect(made.count()).toBe(1);
  expect(made.signalFollowers('SIGTERM')).toBe(false);
  expect(made.signal('SIGKILL')).toBe(true);
  expect(made.count()).toBe(0);
});
