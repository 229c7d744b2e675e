/**
 * `npm start`: sets up and runs Hostler with a starter configuration of real MCP servers, until Ctrl-C. Options after `--` are
 * passed on: `npm start -- --json --port 0`.
 * Not here: what `hostler up` does (src/cli).
 *
 * Invariant: all created files are in one temporary folder, which is removed at the end.
 */
import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { ensureBuild, ensureDependencies, root } from './bootstrap.mjs';

/** Ctrl-C arrives twice: from the terminal and from npm. Two signals within this time count as one key press. */
const sameSignalMs = 500;

/** The file that the command of a package runs. */
async function entryPoint(name) {
  const folder = path.join(root, 'node_modules', name);
  const { bin } = JSON.parse(await readFile(path.join(folder, 'package.json'), 'utf8'));
  return path.join(folder, typeof bin === 'string' ? bin : Object.values(bin)[0]);
}

async function starterConfig(folder) {
  const files = path.join(folder, 'files');
  await mkdir(files);
  await writeFile(path.join(files, 'hello.txt'), 'Hello from Hostler.\n');
  const server = async (name, more = {}) => ({
    command: process.execPath,
    args: [await entryPoint(`@modelcontextprotocol/server-${name}`), ...(more.args ?? [])],
    ...(more.env ? { env: more.env } : {}),
  });
  return {
    $schema: path.join(root, 'hostler.schema.json'),
    mcpServers: {
      everything: await server('everything'),
      filesystem: await server('filesystem', { args: [files] }),
      memory: await server('memory', { env: { MEMORY_FILE_PATH: path.join(folder, 'memory.jsonl') } }),
      thinking: await server('sequential-thinking'),
    },
  };
}

/** Hostler runs in a separate process group, so that each key press reaches it once: through this process. */
function runHostler(args) {
  return new Promise((resolve) => {
    const command = [path.join(root, 'dist/cli/main.js'), 'up', ...args];
    const child = spawn(process.execPath, command, { stdio: ['ignore', 'inherit', 'inherit'], detached: true });
    let lastMs = Number.NEGATIVE_INFINITY;
    const forward = (signal) => {
      const nowMs = performance.now();
      if (nowMs - lastMs >= sameSignalMs) child.kill(signal);
      lastMs = nowMs;
    };
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, forward);
    child.once('error', (error) => {
      console.error(error.message);
      resolve(1);
    });
    child.once('exit', (code) => resolve(code ?? 1));
  });
}

async function main(args) {
  await ensureDependencies();
  await ensureBuild();
  const folder = await mkdtemp(path.join(os.tmpdir(), 'hostler-start-'));
  try {
    const config = path.join(folder, 'hostler.json');
    await writeFile(config, `${JSON.stringify(await starterConfig(folder), null, 2)}\n`);
    // Given first, because later options have priority.
    return await runHostler(['--config', config, '--data-dir', path.join(folder, 'data'), ...args]);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
