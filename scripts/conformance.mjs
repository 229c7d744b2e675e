/** `npm run conformance`: installs the suite, builds, then runs test/conformance/run.mjs with the remaining arguments. */
import process from 'node:process';
import { ensureBuild, ensureConformanceTools, ensureDependencies } from './bootstrap.mjs';
import { run } from './run.mjs';

try {
  await ensureDependencies();
  await ensureConformanceTools();
  await ensureBuild();
  process.exitCode = await run(process.execPath, ['test/conformance/run.mjs', ...process.argv.slice(2)]);
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
