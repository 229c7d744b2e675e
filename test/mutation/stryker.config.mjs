/** How StrykerJS runs for test/long/mutants.long.ts, which sets the MUTANTS_ variables. */
import process from 'node:process';
import { sourceFiles } from './list-mutants.mjs';

const at = (relative) => new URL(relative, import.meta.url).href;

export default {
  testRunner: 'vitest',
  plugins: [at('./tools/node_modules/@stryker-mutator/vitest-runner/dist/src/index.js'), at('./chosen-only.mjs')],
  checkers: ['chosen-only'],
  vitest: { configFile: 'test/mutation/vitest.config.ts', related: false },
  mutate: sourceFiles(process.cwd()),
  // A file that does not exist: StrykerJS rewrites tsconfig.json through an API that TypeScript 7 no longer has.
  tsconfigFile: 'none.json',
  disableTypeChecks: false,
  reporters: ['json', 'progress-append-only'],
  jsonReporter: { fileName: process.env.MUTANTS_REPORT },
  tempDirName: process.env.MUTANTS_DIR,
  concurrency: 2,
  coverageAnalysis: 'perTest',
  // A mutant in code that runs once at import would need every test file in a process of its own, a minute each.
  ignoreStatic: true,
  // A mutant may loop for ever. Generous: a mutant that is only slow on a busy machine must not count as noticed.
  timeoutMS: 10_000,
  timeoutFactor: 2,
  dryRunTimeoutMinutes: 20,
  ignorePatterns: ['dist', 'docs', 'bench', 'test/conformance/tools', 'test/mutation/tools'],
};
