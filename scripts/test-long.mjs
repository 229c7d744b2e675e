/** `npm run test:long -- <lane>`: the tests that take too long for `npm test`. A lane is one file in test/long/. */
import process from 'node:process';
import { bin, ensureBuild, ensureConformanceTools, ensureDependencies, ensureSystemPackages } from './bootstrap.mjs';
import { choose } from './choose.mjs';
import { run } from './run.mjs';

const lane = choose({ what: 'lane', usage: 'npm run test:long -- <lane>', folder: 'test/long', suffix: '.long.ts' });
if (lane !== undefined) {
  await ensureDependencies();
  await ensureSystemPackages();
  // The conformance tools contain oidc-provider, the authorization server that lanes of logins start.
  await ensureConformanceTools();
  await ensureBuild();
  const args = ['run', '--config', 'vitest.long.config.ts', lane.file, ...lane.rest];
  process.exitCode = await run(process.execPath, [bin('vitest'), ...args]);
}
