/**
 * Without /proc, as on macOS: twelve hosts killed while they start a server, and once all tests of transports and processes in a
 * mount namespace whose /proc is empty and whose `ps` works. Tests of what only /proc can tell say so (`hasProc`).
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

process.env.NO_PROC_HOSTS ??= '12';
await import('../process/no-proc.test.js');

const root = fileURLToPath(new URL('../..', import.meta.url));

test('E19 the tests of src/transports and test/process pass without /proc', async () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'hostler-no-proc-lane-'));
  try {
    const script = path.join(root, 'test', 'fakes', 'no-proc.sh');
    const vitest = path.join(root, 'node_modules', 'vitest', 'vitest.mjs');
    // Without /proc Node knows its own path only if it is started with that path. The limits of time are those of `npm test`, because
    // each look at the process table starts a program.
    // The sandbox needs Linux with /proc, so its tests stay out.
    const tests = ['src/transports', 'test/process', '--exclude', '**/sandbox.test.ts', '--exclude', '**/sandbox/**'];
    const args = ['--mount', 'sh', script, folder, process.execPath, vitest, 'run', ...tests];
    const { TEST_TIER: _tier, ...env } = process.env;
    const run = spawn('unshare', args, { cwd: root, env, stdio: ['ignore', 'inherit', 'inherit'] });
    expect((await once(run, 'exit'))[0]).toBe(0);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
