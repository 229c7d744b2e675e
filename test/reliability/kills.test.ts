/**
 * Servers die at random moments under load. What is left, and what every caller was told, is counted from outside.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const run = promisify(execFile);
const driver = fileURLToPath(new URL('./kill-driver.mjs', import.meta.url));
const kills = Number(process.env.KILLS ?? 300);

test(`S1 ${kills} kills of servers under load: 0 processes left, 0 descriptors leaked, 0 calls without an outcome`, {
  timeout: 600_000,
}, async () => {
  const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 1e9));
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-kills-'));
  try {
    // A namespace of its own: whatever the servers do to hide, its process table shows it.
    // The shell is its init, which reaps what loses its parent, as an init must.
    const inside = ['sh', '-c', '"$@"; exit $?', 'sh', process.execPath, driver, String(kills), String(seed), folder];
    const { stdout } = await run('unshare', ['--pid', '--fork', '--mount-proc', ...inside]);
    console.log(`S1 seed ${seed}: ${stdout.trim()}`);
    const result = JSON.parse(stdout) as Record<string, number>;
    expect(result).toMatchObject({
      kills,
      withoutOutcome: 0,
      wrongAnswers: 0,
      duplicateExecutions: 0,
      answeredButNotExecuted: 0,
      promisedNotExecutedButExecuted: 0,
      processesLeft: 0,
      descriptorsLeaked: 0,
    });
    expect(result.calls).toBeGreaterThan(kills * 10);
    expect(result.uncertain).toBeGreaterThan(0);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
