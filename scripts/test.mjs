/**
 * `npm test`: sets up, checks format, lint and types, runs every test, and ends with one line of totals. Independent steps run
 * concurrently. Arguments are filters for vitest: `npm test -- wire`.
 * Not here: the long lanes (test-long.mjs).
 *
 * Invariant: the last line is always `N passed, N failed`. Exit code 0 means that at least one test ran and nothing failed.
 */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import {
  bin,
  ensureBuild,
  ensureConformanceTools,
  ensureDependencies,
  ensureSystemPackages,
  isMain,
} from './bootstrap.mjs';
import { run } from './run.mjs';

/** Counts of a vitest JSON report. A file that could not be loaded has no tests, so it counts as one failure. */
export function countsOf(report) {
  const broken = report.testResults.filter((file) => file.status === 'failed' && file.assertionResults.length === 0);
  return {
    passed: report.numPassedTests,
    failed: report.numFailedTests + broken.length,
    skipped: report.numPendingTests + report.numTodoTests,
  };
}

/** The last line of the output. */
export function verdict({ passed, failed, skipped }) {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`;
}

async function runTests(filters) {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'hostler-test-'));
  try {
    const file = path.join(folder, 'report.json');
    const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${file}`];
    const code = await run(process.execPath, [bin('vitest'), 'run', ...reporters, ...filters]);
    const counts = await readFile(file, 'utf8').then(
      (text) => countsOf(JSON.parse(text)),
      () => ({ passed: 0, failed: 0, skipped: 0 }),
    );
    // An error outside of all tests (an unhandled rejection, a crash) shows in the exit code only.
    if (code !== 0 && counts.failed === 0) counts.failed = 1;
    return counts;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function main(args) {
  const filters = args[0] === '--' ? args.slice(1) : args;
  const total = { passed: 0, failed: 0, skipped: 0 };
  const attempt = async (name, work) => {
    try {
      if (await work()) return true;
    } catch (error) {
      console.error(error.message);
    }
    console.error(`failed: ${name}`);
    total.failed += 1;
    return false;
  };
  const done = (promise) => promise.then(() => true);

  const check = async (...args) => (await run(process.execPath, args, { stdio: 'pipe' })) === 0;

  const others = [
    attempt('set-up of system packages', () => done(ensureSystemPackages())),
    attempt('set-up of conformance tools', () => done(ensureConformanceTools())),
  ];
  const isInstalled = await attempt('set-up of dependencies', () => done(ensureDependencies()));
  // Without dependencies, none of the following steps can run.
  if (isInstalled)
    await Promise.all([
      attempt('format and lint', () => check(bin('biome'), 'check', '.')),
      // Types are checked after the build: scripts of tests import dist/, and tsc must not read an incomplete declaration file.
      attempt('build', () => done(ensureBuild())).then(() => attempt('types', () => check(bin('tsc'), '--noEmit'))),
    ]);
  await Promise.all(others);
  if (isInstalled) {
    const counts = await runTests(filters);
    for (const key of Object.keys(total)) total[key] += counts[key];
  }
  if (total.passed + total.failed === 0) console.error('no test ran');
  console.log(verdict(total));
  return total.failed === 0 && total.passed > 0 ? 0 : 1;
}

if (isMain(import.meta.url)) process.exitCode = await main(process.argv.slice(2));
