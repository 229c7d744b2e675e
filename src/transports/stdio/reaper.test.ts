import { mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type FakeProcess, FakeProcesses } from '../../../test/fakes/stdio-process-table.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { parseJournal, reap } from './reaper.js';

const instanceId = 'instance-of-the-dead';
const header = { instanceId, ownerPid: 9, ownerStartTicks: 5, bootId: 'boot-now', pidSpace: 'pid:[1]' };

let stateDir: string;
beforeEach(() => {
  stateDir = mkdtempSync(path.join(tmpdir(), 'hostler-reaper-'));
});
afterEach(() => rmSync(stateDir, { recursive: true, force: true }));

const plant = (lines: unknown[], name = `${instanceId}.children`) =>
  writeFileSync(
    path.join(stateDir, name),
    lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line))).join('\n'),
  );

async function run(...processes: FakeProcess[]) {
  const table = new FakeProcesses(...processes);
  const clock = new FakeClock();
  const reaping = reap(stateDir, { clock, table, kill: table.kill });
  await clock.advanceAsync(3_000);
  return { report: await reaping, table, files: readdirSync(stateDir) };
}

const started = (pid: number, startTicks = 100) => ({ started: { pid, startTicks, run: pid } });

describe('who is signalled', () => {
  test('the group of a leader with the same pid and start time', async () => {
    plant([{ header }, started(50)]);
    const { report, table, files } = await run({ pid: 50 }, { pid: 51, pgid: 50, startTicks: 120 });
    expect(table.signals).toEqual([[-50, 'SIGTERM']]);
    expect(report).toEqual({ journals: 1, signalled: [50, 51], stale: 0 });
    expect(files).toEqual([]);
  });

  test('one that ignores SIGTERM is killed after a second', async () => {
    plant([{ header }, started(50)]);
    const { table } = await run({ pid: 50, stubborn: true });
    expect(table.signals.map(([, signal]) => signal)).toEqual(['SIGTERM', 'SIGCONT', 'SIGKILL']);
  });

  test('where the leader has gone, only members that carry the mark of the dead', async () => {
    plant([{ header }, started(50)]);
    const { table } = await run(
      { pid: 51, pgid: 50, mark: `${instanceId}.50` },
      { pid: 52, pgid: 50, mark: 'instance-of-another.50' },
      { pid: 53, pgid: 50 },
      { pid: 54, mark: `${instanceId}.50` },
    );
    expect(table.signals).toEqual([[51, 'SIGTERM']]);
  });

  test.each<[string, unknown[], FakeProcess]>([
    ['a pid given to another process', [{ header }, started(50, 100)], { pid: 50, startTicks: 101 }],
    ['a process that leads no group', [{ header }, started(50)], { pid: 50, pgid: 40 }],
    ['a child that has ended', [{ header }, started(50), { ended: { pid: 50, run: 50 } }], { pid: 50 }],
    ['another boot', [{ header: { ...header, bootId: 'boot-before' } }, started(50)], { pid: 50 }],
    ['init', [{ header }, started(1), started(0), started(-50)], { pid: 1 }],
    ['a journal without a header', [started(50)], { pid: 50 }],
    ['a header without an identity', [{ header: { ...header, instanceId: '' } }, started(50)], { pid: 50 }],
    [
      'hostile numbers',
      [{ header }, { started: { pid: '50', startTicks: 100, run: 1 } }, '{"started":{"pid":1e99}}'],
      { pid: 50 },
    ],
  ])('not %s', async (_name, lines, process) => {
    plant(lines);
    const { table, files } = await run(process);
    expect(table.signals).toEqual([]);
    expect(files).toEqual([]);
  });

  test.each<[string, object, FakeProcess[]]>([
    ['whose owner lives', header, [{ pid: 9, startTicks: 5 }]],
    ['of another container', { ...header, pidSpace: 'pid:[2]' }, []],
  ])('a journal %s is left alone', async (_name, theirs, processes) => {
    plant([{ header: theirs }, started(50)]);
    const { table, files } = await run({ pid: 50 }, ...processes);
    expect(table.signals).toEqual([]);
    expect(files).toHaveLength(1);
  });

  test('a zombie owner, and an owner whose pid was given out again, are dead', async () => {
    plant([{ header }, started(50)]);
    plant([{ header: { ...header, ownerPid: 8 } }, started(60)], 'other.children');
    const { table } = await run(
      { pid: 50 },
      { pid: 60 },
      { pid: 9, startTicks: 5, state: 'Z' },
      { pid: 8, startTicks: 6 },
    );
    expect(table.signals.map(([pid]) => pid).sort()).toEqual([-50, -60]);
  });

  test('a link in the place of a journal is not followed', async () => {
    const elsewhere = mkdtempSync(path.join(tmpdir(), 'hostler-elsewhere-'));
    writeFileSync(path.join(elsewhere, 'j'), [{ header }, started(50)].map((line) => JSON.stringify(line)).join('\n'));
    symlinkSync(path.join(elsewhere, 'j'), path.join(stateDir, 'x.children'));
    const { table } = await run({ pid: 50 });
    expect(table.signals).toEqual([]);
    rmSync(elsewhere, { recursive: true });
  });
});

test('good lines count, whatever stands between them', () => {
  const text = [{ header }, 'junk', started(50), '{"started":', null, [], { started: null }, started(51)]
    .map((line) => (typeof line === 'string' ? line : JSON.stringify(line)))
    .join('\n');
  expect(parseJournal(`${text}\n{"started":{"pid":7`)?.running.map(({ pid }) => pid)).toEqual([50, 51]);
});

test('a directory that is not there has nothing to reap', async () => {
  const table = new FakeProcesses();
  const report = await reap(path.join(stateDir, 'none'), { clock: new FakeClock(), table, kill: table.kill });
  expect(report).toEqual({ journals: 0, signalled: [], stale: 0 });
});
