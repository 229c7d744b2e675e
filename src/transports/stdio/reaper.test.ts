import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type FakeProcess, FakeProcesses } from '../../../test/fakes/stdio-process-table.js';
import type { HostError } from '../../kernel/errors.js';
import { FakeClock } from '../../kernel/fake-clock.js';
import { type JournalReading, parseJournal, readJournal } from './pid-journal.js';
import { reap } from './reaper.js';

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

interface Scene {
  readonly read?: (file: string) => JournalReading;
  /** The processes in the table. */
  readonly prepare?: (table: FakeProcesses) => void;
  /** What happens half a second after SIGTERM. */
  readonly meanwhile?: (table: FakeProcesses) => void;
}

const run = (...processes: FakeProcess[]) => runIn({}, ...processes);

async function runIn(
  { read = readJournal, prepare = () => {}, meanwhile = () => {} }: Scene,
  ...processes: FakeProcess[]
) {
  const table = new FakeProcesses(...processes);
  prepare(table);
  const clock = new FakeClock();
  const problems: HostError[] = [];
  const onProblem = (error: HostError) => void problems.push(error);
  const reaping = reap(stateDir, { clock, table, kill: table.kill, onProblem, read });
  clock.at(500, () => meanwhile(table));
  await clock.advanceAsync(3_000);
  return { report: await reaping, table, problems, files: readdirSync(stateDir) };
}

const started = (pid: number, startTicks = 100) => ({ started: { pid, startTicks, run: pid } });

describe('the reaper signals', () => {
  test('the group of a leader with the same pid and start time', async () => {
    plant([{ header }, started(50)]);
    const { report, table, files } = await run({ pid: 50 }, { pid: 51, pgid: 50, startTicks: 120 });
    expect(table.signals).toEqual([[-50, 'SIGTERM']]);
    expect(report).toEqual({ journals: 1, signalled: [50, 51], stale: 0, left: 0, unknown: 0 });
    expect(files).toEqual([]);
  });

  test('with SIGKILL a group that ignores SIGTERM for a second', async () => {
    plant([{ header }, started(50)]);
    const { table } = await run({ pid: 50, stubborn: true });
    expect(table.signals.map(([, signal]) => signal)).toEqual(['SIGTERM', 'SIGCONT', 'SIGKILL']);
  });

  test('if the leader has ended, only members with the mark of the dead owner', async () => {
    plant([{ header }, started(50)]);
    const { table } = await run(
      { pid: 51, pgid: 50, mark: `${instanceId}.50` },
      { pid: 52, pgid: 50, mark: 'instance-of-another.50' },
      { pid: 55, pgid: 50, mark: `${instanceId}.5` },
      { pid: 53, pgid: 50 },
      { pid: 54, mark: `${instanceId}.50` },
    );
    expect(table.signals).toEqual([[51, 'SIGTERM']]);
  });

  test('processes with the mark of a run that was announced but never recorded', async () => {
    plant([{ header }, { starting: { run: 7 } }, { starting: { run: 8 } }, { ended: { run: 8 } }]);
    const { table, report, files } = await run(
      { pid: 50, mark: `${instanceId}.7` },
      { pid: 51, pgid: 50, mark: `${instanceId}.7`, startTicks: 110 },
      // The process left its group on purpose.
      { pid: 52, mark: `${instanceId}.7`, startTicks: 120 },
      { pid: 53, mark: `${instanceId}.8` },
      { pid: 54, mark: `${instanceId}.70` },
      { pid: 55, mark: 'instance-of-another.7' },
    );
    expect(table.signals).toEqual([[-50, 'SIGTERM']]);
    expect(report).toMatchObject({ journals: 1, signalled: [50, 51] });
    expect(files).toEqual([]);
  });

  test('processes of such a run without a leader, and none in a group with another leader', async () => {
    plant([{ header }, { starting: { run: 7 } }, { starting: { run: 8 } }]);
    const { table } = await run(
      { pid: 51, pgid: 50, mark: `${instanceId}.7` },
      { pid: 52, pgid: 50 },
      { pid: 60 },
      { pid: 61, pgid: 60, mark: `${instanceId}.8` },
    );
    expect(table.signals).toEqual([[51, 'SIGTERM']]);
  });

  test('members that outlive their leader, while one of them was seen together with it', async () => {
    plant([{ header }, started(50)]);
    const { table, report } = await run({ pid: 50 }, { pid: 51, pgid: 50, stubborn: true });
    expect(table.signals).toEqual([
      [-50, 'SIGTERM'],
      [-50, 'SIGCONT'],
      [-50, 'SIGKILL'],
    ]);
    expect(report).toMatchObject({ journals: 1, left: 0 });
  });

  test('not a group that got the id meanwhile and has lost its leader', async () => {
    plant([{ header }, started(50), started(60)]);
    const meanwhile = (table: FakeProcesses) => table.add({ pid: 51, pgid: 50, startTicks: 500 });
    const { table } = await runIn({ meanwhile }, { pid: 50 }, { pid: 60, stubborn: true });
    expect(table.signals).toEqual([
      [-50, 'SIGTERM'],
      [-60, 'SIGTERM'],
      [-60, 'SIGCONT'],
      [-60, 'SIGKILL'],
    ]);
  });

  test.each<[string, unknown[], FakeProcess]>([
    ['a pid given to another process', [{ header }, started(50, 100)], { pid: 50, startTicks: 101 }],
    ['a process that leads no group', [{ header }, started(50)], { pid: 50, pgid: 40 }],
    ['a child that has ended', [{ header }, started(50), { ended: { pid: 50, run: 50 } }], { pid: 50 }],
    ['a process of another boot', [{ header: { ...header, bootId: 'boot-before' } }, started(50)], { pid: 50 }],
    ['init', [{ header }, started(1), started(0), started(-50)], { pid: 1 }],
    [
      'hostile process numbers',
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
  ])('no process of a journal %s, and keeps the journal', async (_name, theirs, processes) => {
    plant([{ header: theirs }, started(50)]);
    const { table, files } = await run({ pid: 50 }, ...processes);
    expect(table.signals).toEqual([]);
    expect(files).toHaveLength(1);
  });

  test('the children of an owner that is a zombie, or whose pid was reused', async () => {
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
});

describe('a journal', () => {
  const own = process.getuid?.() as number;
  const name = `${instanceId}.children`;

  test.each<[string, () => void, string | undefined, Scene['read']?]>([
    ['without a header', () => plant([started(50)]), 'no_header'],
    ['without an identity', () => plant([{ header: { ...header, instanceId: '' } }, started(50)]), 'no_header'],
    ['that is too large', () => plant([{ header }, started(50), ' '.repeat(1024 * 1024)]), 'too_large'],
    ['that is a folder', () => mkdirSync(path.join(stateDir, name)), 'not_a_file'],
    ['that is a link', () => symlinkSync('/dev/null', path.join(stateDir, name)), 'ELOOP'],
    ['of another user', () => plant([{ header }, started(50)]), 'foreign_owner', (file) => readJournal(file, own + 1)],
    [
      'that cannot be opened',
      () => plant([{ header }, started(50)]),
      'EMFILE',
      () => ({ kind: 'unreadable', reason: 'EMFILE' }),
    ],
    ['that is empty', () => plant([]), undefined],
    ['that a neighbour has just begun', () => plant([], `${name}.new`), undefined],
    ['that a neighbour has half written', () => plant(['{"header":{"inst'], `${name}.new`), undefined],
  ])('%s stays, ends no process, and is reported unless its state is normal', async (_name, make, reason, read) => {
    make();
    const { report, table, problems, files } = await runIn(read ? { read } : {}, { pid: 50 });
    expect(files).toHaveLength(1);
    expect(table.signals).toEqual([]);
    expect(report).toEqual({ journals: 0, signalled: [], stale: 0, left: 0, unknown: 0 });
    expect(problems.map(({ details }) => details.reason)).toEqual(reason === undefined ? [] : [reason]);
    for (const { message } of problems) expect(message).toContain(name);
  });

  test('that was being rewritten when its owner died is used, and removed too', async () => {
    plant([{ header }, started(50)], `${name}.new`);
    const { table, files } = await run({ pid: 50 });
    expect(table.signals).toEqual([[-50, 'SIGTERM']]);
    expect(files).toEqual([]);
  });

  test('with a process that outlives SIGKILL stays for the next start', async () => {
    plant([{ header }, started(50)]);
    plant([{ header }, started(60)], 'other.children');
    const { report, files } = await run({ pid: 50, stuck: true }, { pid: 60 });
    expect(report).toEqual({ journals: 1, signalled: [50, 60], stale: 0, left: 1, unknown: 0 });
    expect(files).toEqual([name]);
  });

  test.each(['770', '702'])('in a directory with mode %s is not read', async (octal) => {
    plant([{ header }, started(50)]);
    chmodSync(stateDir, Number.parseInt(octal, 8));
    const table = new FakeProcesses({ pid: 50 });
    await expect(reap(stateDir, { clock: new FakeClock(), table, kill: table.kill })).rejects.toMatchObject({
      code: 'invalid_spec',
      details: { reason: 'others_may_write', field: 'stateDir' },
      hint: expect.stringContaining('chmod go-w'),
    });
    expect(table.signals).toEqual([]);
    expect(readdirSync(stateDir)).toHaveLength(1);
  });
});

describe('E19 where the process table is incomplete', () => {
  const name = `${instanceId}.children`;
  const withoutMarks = (table: FakeProcesses) => {
    table.seesMarks = false;
  };
  const unreadable = (table: FakeProcesses) => {
    table.isUnreadable = true;
  };
  const reasons = (problems: readonly HostError[]) => problems.map(({ details }) => details.reason);

  test('a start whose process is not found leaves its journal and is reported with its server; processes with a pid are ended', async () => {
    plant([{ header }, started(50), { starting: { run: 7, server: 'docs' } }]);
    const { table, report, problems, files } = await runIn({ prepare: withoutMarks }, { pid: 50 }, { pid: 60 });
    expect(table.signals).toEqual([[-50, 'SIGTERM']]);
    expect(report).toEqual({ journals: 0, signalled: [50], stale: 0, left: 0, unknown: 1 });
    expect(files).toEqual([name]);
    expect(reasons(problems)).toEqual(['unknown_process']);
    expect(problems[0]?.message).toContain("killed while it started 'docs'");
  });

  test('members of a group without its leader are neither signalled nor removed from the journal', async () => {
    plant([{ header }, started(50)]);
    const { table, report, problems, files } = await runIn({ prepare: withoutMarks }, { pid: 51, pgid: 50 });
    expect([table.signals, report.unknown, report.stale, files]).toEqual([[], 1, 0, [name]]);
    expect(reasons(problems)).toEqual(['unknown_process']);
  });

  test('a group without members has ended, and its journal is removed', async () => {
    plant([{ header }, started(50)]);
    const { report, files } = await runIn({ prepare: withoutMarks }, { pid: 60 });
    expect([report.journals, report.stale, files]).toEqual([1, 1, []]);
  });

  test('with an unreadable table no journal and no process is touched', async () => {
    plant([{ header }, started(50)]);
    const { table, report, problems, files } = await runIn({ prepare: unreadable }, { pid: 50 });
    expect([table.signals, files]).toEqual([[], [name]]);
    expect(report).toEqual({ journals: 0, signalled: [], stale: 0, left: 0, unknown: 1 });
    expect(reasons(problems)).toEqual(['unknown_process']);
  });

  test('if the table becomes unreadable after SIGTERM, no further signal is sent, and the journal stays', async () => {
    plant([{ header }, started(50)]);
    const { table, report, files } = await runIn({ meanwhile: unreadable }, { pid: 50, stubborn: true });
    expect(table.signals.map(([, signal]) => signal)).toEqual(['SIGTERM', 'SIGCONT']);
    expect([report.left, report.journals, files]).toEqual([1, 0, [name]]);
  });

  test.each<[string, object, string, number]>([
    ['boot of the journal', { ...header, bootId: '' }, 'boot-now', 1],
    ['boot of this system', header, '', 1],
    ['boot of both, which then counts as the same,', { ...header, bootId: '' }, '', 0],
  ])('the %s is not known', async (_name, theirs, bootId, unknown) => {
    plant([{ header: theirs }, started(50)]);
    const prepare = (table: FakeProcesses) => {
      table.bootId = () => bootId;
    };
    const { table, report } = await runIn({ prepare }, { pid: 50 });
    expect([report.unknown, table.signals.length]).toEqual([unknown, unknown === 1 ? 0 : 1]);
  });

  test('an owner that could not read its own start time counts as alive while its pid is in use', async () => {
    plant([{ header: { ...header, ownerStartTicks: 0 } }, started(50)]);
    expect((await run({ pid: 50 }, { pid: 9, startTicks: 5 })).table.signals).toEqual([]);
    expect((await run({ pid: 50 })).table.signals).toEqual([[-50, 'SIGTERM']]);
  });

  test('start times in whole seconds may differ by the slack, and no more', async () => {
    const prepare = (table: FakeProcesses) => {
      table.startSlack = 2;
    };
    plant([{ header }, started(50, 100), started(60, 100)]);
    const { table } = await runIn({ prepare }, { pid: 50, startTicks: 102 }, { pid: 60, startTicks: 103 });
    expect(table.signals).toEqual([[-50, 'SIGTERM']]);
  });
});

test('valid lines count, whatever is between them', () => {
  const text = [{ header }, 'junk', started(50), '{"started":', null, [], { started: null }, started(51)]
    .map((line) => (typeof line === 'string' ? line : JSON.stringify(line)))
    .join('\n');
  expect(parseJournal(`${text}\n{"started":{"pid":7`)?.running.map(({ pid }) => pid)).toEqual([50, 51]);
});

test('a missing directory has nothing to reap', async () => {
  const table = new FakeProcesses();
  const report = await reap(path.join(stateDir, 'none'), { clock: new FakeClock(), table, kill: table.kill });
  expect(report).toEqual({ journals: 0, signalled: [], stale: 0, left: 0, unknown: 0 });
});
