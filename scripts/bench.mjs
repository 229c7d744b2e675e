/** `npm run bench -- <name>`: builds, then runs bench/<name>.bench.mjs with the remaining arguments. */
import process from 'node:process';
import { ensureBuild, ensureDependencies, ensureSystemPackages } from './bootstrap.mjs';
import { choose } from './choose.mjs';
import { run } from './run.mjs';

const bench = choose({ what: 'benchmark', usage: 'npm run bench -- <name>', folder: 'bench', suffix: '.bench.mjs' });
if (bench !== undefined) {
  await ensureDependencies();
  await ensureSystemPackages();
  await ensureBuild();
  process.exitCode = await run(process.execPath, [bench.file, ...bench.rest]);
}
