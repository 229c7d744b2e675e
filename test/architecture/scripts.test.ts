import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { lockFile } from '../../scripts/lock.mjs';
import { countsOf, verdict } from '../../scripts/test.mjs';
import { root } from './tree.js';

describe('the last line of npm test', () => {
  const report = {
    numPassedTests: 3,
    numFailedTests: 1,
    numPendingTests: 0,
    numTodoTests: 0,
    testResults: [
      { status: 'failed', assertionResults: [{}] },
      { status: 'passed', assertionResults: [{}] },
    ],
  };
  test('counts tests', () => {
    expect(verdict(countsOf(report))).toBe('3 passed, 1 failed');
  });
  test('counts a file that could not be loaded as one failure', () => {
    const testResults = [...report.testResults, { status: 'failed', assertionResults: [] }];
    expect(verdict(countsOf({ ...report, testResults }))).toBe('3 passed, 2 failed');
  });
  test('mentions tests that were left out, if any', () => {
    expect(verdict(countsOf({ ...report, numPendingTests: 1, numTodoTests: 1 }))).toBe('3 passed, 1 failed, 2 skipped');
  });
});

describe('the lock of bootstrap', () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-lock-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const name = `test ${folder}`;

  /** Runs a process that takes the lock, writes `in`, yields for a while, writes `out`. */
  function holder(): Promise<number | null> {
    const program = `
      import { appendFileSync } from 'node:fs';
      import { withLock } from ${JSON.stringify(path.join(root, 'scripts/lock.mjs'))};
      const note = (word) => appendFileSync(${JSON.stringify(path.join(folder, 'log'))}, word + '\\n');
      await withLock(${JSON.stringify(name)}, async () => {
        note('in');
        await new Promise((resolve) => setTimeout(resolve, 20));
        note('out');
      });
    `;
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: 'ignore' });
    return new Promise((resolve) => child.once('exit', resolve));
  }

  test('admits one process at a time, and replaces a process that has died', async () => {
    // No process has the id 2^31 - 1 on the systems that Hostler supports.
    writeFileSync(lockFile(name), JSON.stringify({ pid: 2 ** 31 - 1 }));
    expect(await Promise.all([holder(), holder(), holder()])).toEqual([0, 0, 0]);
    expect(readFileSync(path.join(folder, 'log'), 'utf8')).toBe('in\nout\n'.repeat(3));
    expect(existsSync(lockFile(name))).toBe(false);
  });
});
