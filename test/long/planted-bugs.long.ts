/**
 * Do the tests detect bugs? Each planted bug is applied to a copy of the project, and the tests that it names must fail
 * there; without a bug they must pass, otherwise a failure would prove nothing.
 */
import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type PlantedBug, plantedBugs } from '../planted/planted-bugs.js';

const root = new URL('../../', import.meta.url).pathname;
const copied = ['src', 'test', 'scripts', 'docs', 'bench', 'dist', 'package.json', 'tsconfig.json', 'vitest.config.ts'];
let copy = '';

beforeAll(() => {
  copy = mkdtempSync(path.join(os.tmpdir(), 'hostler-planted-'));
  for (const name of copied) cpSync(path.join(root, name), path.join(copy, name), { recursive: true });
  symlinkSync(path.join(root, 'node_modules'), path.join(copy, 'node_modules'));
});

afterAll(() => rmSync(copy, { recursive: true, force: true }));

interface Report {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly testResults: readonly { readonly assertionResults: readonly { status: string; fullName: string }[] }[];
}

function runTests(files: readonly string[]): Promise<Report> {
  const report = path.join(copy, 'report.json');
  rmSync(report, { force: true });
  const vitest = path.join(root, 'node_modules/vitest/vitest.mjs');
  const args = [vitest, 'run', '--reporter=json', `--outputFile=${report}`, ...files];
  return new Promise((resolve, reject) => {
    execFile(process.execPath, args, { cwd: copy, maxBuffer: 64 * 1024 * 1024 }, (_error, _stdout, stderr) => {
      try {
        resolve(JSON.parse(readFileSync(report, 'utf8')) as Report);
      } catch {
        reject(new Error(`the tests did not run: ${stderr.slice(-2_000)}`));
      }
    });
  });
}

/** Returns a function that removes the bug. */
function plant({ edits }: PlantedBug): () => void {
  const originals = new Map(edits.map(({ file }) => [file, readFileSync(path.join(copy, file), 'utf8')]));
  for (const { file, find, replace } of edits) {
    const text = readFileSync(path.join(copy, file), 'utf8');
    expect(text.split(find)).toHaveLength(2);
    writeFileSync(
      path.join(copy, file),
      text.replace(find, () => replace),
    );
  }
  return () => {
    for (const [file, text] of originals) writeFileSync(path.join(copy, file), text);
  };
}

test('without a bug all of these tests pass', async () => {
  const files = [...new Set(plantedBugs.flatMap(({ tests }) => tests))];
  const { numFailedTests, numPassedTests } = await runTests(files);
  expect(numFailedTests).toBe(0);
  expect(numPassedTests).toBeGreaterThan(files.length);
});

test.each(plantedBugs)('planted: $name', async (bug) => {
  const takeOut = plant(bug);
  try {
    const { testResults, numPassedTests } = await runTests(bug.tests);
    const red = testResults.flatMap(({ assertionResults }) =>
      assertionResults.flatMap(({ status, fullName }) => (status === 'failed' ? [fullName] : [])),
    );
    console.log(`${bug.name}: ${red.length} red, ${numPassedTests} green; first: ${red[0]}`);
    // Tests that could not be loaded prove nothing: some must have run.
    expect(red.length).toBeGreaterThan(0);
    expect(numPassedTests).toBeGreaterThan(0);
  } finally {
    takeOut();
  }
});
