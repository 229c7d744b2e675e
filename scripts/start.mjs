/**
 * `npm start`: sets up and shows Hostler at work on real MCP servers, one after the other.
 * Not here: what a probe does (src/cli).
 */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { ensureBuild, ensureDependencies, root } from './bootstrap.mjs';
import { run } from './run.mjs';

const servers = [
  { package: '@modelcontextprotocol/server-everything' },
  { package: '@modelcontextprotocol/server-memory', env: (folder) => ({ MEMORY_FILE_PATH: `${folder}/memory.jsonl` }) },
  { package: '@modelcontextprotocol/server-sequential-thinking' },
  { package: '@upstash/context7-mcp', env: () => ({ CONTEXT7_API_KEY: 'not-a-key' }) },
];

/** The file that a package's command runs. */
async function entryPoint(name) {
  const folder = path.join(root, 'node_modules', name);
  const { bin } = JSON.parse(await readFile(path.join(folder, 'package.json'), 'utf8'));
  return path.join(folder, typeof bin === 'string' ? bin : Object.values(bin)[0]);
}

async function main() {
  await ensureDependencies();
  await ensureBuild();
  console.log(
    `Hostler: asks ${servers.length} real MCP servers, one after the other, who they are and what they offer.`,
  );
  const folder = await mkdtemp(path.join(os.tmpdir(), 'hostler-start-'));
  const failed = [];
  try {
    for (const server of servers) {
      console.log(`\n${server.package}`);
      const entry = path.relative(root, await entryPoint(server.package));
      const env = Object.entries(server.env?.(folder) ?? {}).map(([name, value]) => `--env=${name}=${value}`);
      const code = await run(process.execPath, ['dist/cli/main.js', 'probe', ...env, '--', process.execPath, entry]);
      if (code !== 0) failed.push(server.package);
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  console.log(failed.length === 0 ? '\nall answered' : `\nfailed: ${failed.join(', ')}`);
  return failed.length === 0 ? 0 : 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
