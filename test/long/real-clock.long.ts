/**
 * Runs the test files that read the real clock again and again, as `npm test` runs them, and prints the failed tests of each file
 * by round. A file that passes most of the time fails here. CLOCK_ROUNDS sets the rounds; CLOCK_FILES runs only the files
 * whose path contains one of its comma-separated words.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { realClockFiles } from '../architecture/clock-rules.js';
import { filesBelow, readText, root } from '../architecture/tree.js';

const rounds = Number(process.env.CLOCK_ROUNDS ?? 10);
const words = (process.env.CLOCK_FILES ?? '').split(',');
const roundMsMax = 30 * 60_000;

const tests = filesBelow('test').filter((file) => file.endsWith('.test.ts'));
const files = realClockFiles(Object.fromEntries(tests.map((file) => [file, readText(file)])))
  .filter((file) => words.some((word) => file.includes(word)))
  .sort();

const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-clock-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Report {
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly assertionResults: readonly { readonly status: string }[];
  }[];
}

/** Failed tests by file. A file that could not be loaded, or has no result, counts as one. */
async function runRound(round: number): Promise<ReadonlyMap<string, number>> {
  const outputFile = path.join(folder, `${round}.json`);
  const args = ['run', ...files, '--reporter=json', `--outputFile=${outputFile}`];
  // `npm test` runs these files in the short tier.
  const { TEST_TIER, ...env } = process.env;
  await new Promise<void>((resolve) => {
    const vitest = path.join(root, 'node_modules/vitest/vitest.mjs');
    // The report tells the outcome; without one, every file has failed.
    execFile(process.execPath, [vitest, ...args], { cwd: root, env, timeout: roundMsMax, maxBuffer: 2 ** 28 }, () =>
      resolve(),
    );
  });
  const { testResults } = read(outputFile);
  return new Map(
    files.map((file) => {
      const result = testResults.find(({ name }) => path.relative(root, name).split(path.sep).join('/') === file);
      const failed = result?.assertionResults.filter(({ status }) => status === 'failed').length ?? 0;
      return [file, failed > 0 || result?.status === 'passed' ? failed : 1];
    }),
  );
}

function read(file: string): Report {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as Report;
  } catch {
    return { testResults: [] };
  }
}

function tableOf(results: readonly ReadonlyMap<string, number>[]): string {
  const width = Math.max(...files.map(({ length }) => length));
  const line = (name: string, cells: readonly unknown[]) =>
    `${name.padEnd(width)} ${cells.map((cell) => String(cell).padStart(4)).join('')}`;
  const rows = files.map((file) =>
    line(
      file,
      results.map((result) => result.get(file)),
    ),
  );
  return [
    line(
      'failed tests by round',
      results.map((_, i) => i + 1),
    ),
    ...rows,
  ].join('\n');
}

test(
  'files that read the real clock pass in every round',
  async () => {
    expect(rounds).toBeGreaterThan(0);
    expect(files).not.toEqual([]);
    const results: ReadonlyMap<string, number>[] = [];
    for (let round = 1; round <= rounds; round++) results.push(await runRound(round));
    process.stdout.write(`${tableOf(results)}\n`);
    const failed = files.filter((file) => results.some((result) => result.get(file) !== 0));
    expect(failed).toEqual([]);
  },
  rounds * roundMsMax,
);
