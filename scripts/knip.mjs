/** Part of `npm run check`: unused files, exports, types and dependencies (knip.json). `-- --fix` removes unused exports. */
import path from 'node:path';
import process from 'node:process';
import { ensureKnip, knipTools } from './bootstrap.mjs';
import { run } from './run.mjs';

await ensureKnip();
const knip = path.join(knipTools, 'node_modules', 'knip', 'bin', 'knip.js');
process.exitCode = await run(process.execPath, [knip, '--no-progress', ...process.argv.slice(2)]);
