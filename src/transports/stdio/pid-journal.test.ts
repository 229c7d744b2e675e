import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { FakeProcesses } from '../../../test/fakes/stdio-process-table.js';
import { PidJournal, parseJournal } from './pid-journal.js';

const instanceId = 'instance-of-the-living';

let stateDir: string;
beforeEach(() => {
  stateDir = mkdtempSync(path.join(tmpdir(), 'hostler-journal-'));
});
afterEach(() => rmSync(stateDir, { recursive: true, force: true }));

describe('the journal', () => {
  const table = new FakeProcesses({ pid: process.pid, startTicks: 77 });
  let problems: unknown[];
  beforeEach(() => {
    problems = [];
  });
  const journal = () => new PidJournal(path.join(stateDir, 'run'), instanceId, table, (error) => problems.push(error));

  test('names its owner and its children, readable by its user only', () => {
    const file = journal();
    file.started({ pid: 50, startTicks: 100, run: 1 });
    file.started({ pid: 51, startTicks: 101, run: 2 });
    file.ended({ pid: 50, startTicks: 100, run: 1 });
    const read = parseJournal(readFileSync(file.file, 'utf8'));
    expect(read?.header).toEqual({
      instanceId,
      ownerPid: process.pid,
      ownerStartTicks: 77,
      bootId: 'boot-now',
      pidSpace: 'pid:[1]',
    });
    expect(read?.running).toEqual([{ pid: 51, startTicks: 101, run: 2 }]);
    expect(statSync(file.file).mode & 0o777).toBe(0o600);
    expect(statSync(path.dirname(file.file)).mode & 0o777).toBe(0o700);
    file.close();
  });

  test('stays small through ten thousand runs and has the remaining ones', () => {
    const file = journal();
    file.started({ pid: 50, startTicks: 100, run: 0 });
    for (let run = 1; run <= 10_000; run++) {
      file.started({ pid: 60, startTicks: run, run });
      file.ended({ pid: 60, startTicks: run, run });
    }
    expect(statSync(file.file).size).toBeLessThan(66 * 1024);
    expect(parseJournal(readFileSync(file.file, 'utf8'))?.running.map(({ pid }) => pid)).toEqual([50]);
    file.close();
    expect(readdirSync(path.dirname(file.file))).toHaveLength(1);
  });

  test('announces a run before its process has a pid, and withdraws the announcement if no process starts', () => {
    const file = journal();
    const starting = () => parseJournal(readFileSync(file.file, 'utf8'))?.starting;
    for (const run of [1, 2, 3]) file.starting({ run, server: 'docs' });
    expect(starting()).toEqual([1, 2, 3].map((run) => ({ run, server: 'docs' })));
    file.started({ pid: 50, startTicks: 100, run: 1 });
    file.notStarted(3);
    file.notStarted(1);
    expect(starting()).toEqual([{ run: 2, server: 'docs' }]);
    expect(parseJournal(readFileSync(file.file, 'utf8'))?.running.map(({ run }) => run)).toEqual([1]);
    file.close();
  });

  test('still has, after a rewrite, the runs that were recorded before their spawn', () => {
    const file = journal();
    file.starting({ run: 0, server: 'docs' });
    for (let run = 1; run <= 2_000; run++) {
      file.starting({ run, server: 'docs' });
      file.started({ pid: 60, startTicks: run, run });
      file.ended({ pid: 60, startTicks: run, run });
    }
    expect(statSync(file.file).size).toBeLessThan(66 * 1024);
    expect(parseJournal(readFileSync(file.file, 'utf8'))).toMatchObject({
      running: [],
      starting: [{ run: 0, server: 'docs' }],
    });
    file.close();
  });

  test('is removed when nothing runs', () => {
    const file = journal();
    const entry = { pid: 50, startTicks: 100, run: 1 };
    file.started(entry);
    file.ended(entry);
    file.close();
    expect(readdirSync(path.dirname(file.file))).toEqual([]);
  });

  test('that cannot be written is only reported as a problem', () => {
    writeFileSync(path.join(stateDir, 'file'), '');
    const file = new PidJournal(path.join(stateDir, 'file', 'sub'), instanceId, table, (error) => problems.push(error));
    file.started({ pid: 50, startTicks: 100, run: 1 });
    file.ended({ pid: 50, startTicks: 100, run: 1 });
    file.close();
    expect(problems).toHaveLength(1);
  });

  test('is not written where others may write', () => {
    const shared = path.join(stateDir, 'run');
    mkdirSync(shared);
    chmodSync(shared, 0o770);
    const file = journal();
    file.started({ pid: 50, startTicks: 100, run: 1 });
    file.ended({ pid: 50, startTicks: 100, run: 1 });
    file.close();
    expect(readdirSync(shared)).toEqual([]);
    expect(problems).toMatchObject([
      {
        code: 'invalid_spec',
        details: { reason: 'others_may_write', field: 'stateDir' },
        hint: expect.stringContaining('chmod go-w'),
      },
    ]);
  });
});
