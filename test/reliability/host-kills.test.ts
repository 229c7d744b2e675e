/**
 * Servers of a host die at random moments under load. What is left, and what every caller of the host was told, is counted
 * from outside.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const run = promisify(execFile);
const driver = fileURLToPath(new URL('./host-kill-driver.mjs', import.meta.url));
const kills = Number(process.env.KILLS ?? 200);

test(`S1 ${kills} kills of servers of a host under load: 0 processes left, 0 calls without one outcome, 0 run twice`, {
  timeout: 1_200_000,
}, async () => {
  const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 1e9));
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-host-kills-'));
  try {
    // A namespace of its own, whose init reaps what loses its parent: its process table shows whatever is left.
    const inside = ['sh', '-c', '"$@"; exit $?', 'sh', process.execPath, driver, String(kills), String(seed), folder];
    const { stdout } = await run('unshare', ['--pid', '--fork', '--mount-proc', ...inside]);
    console.log(`S1 seed ${seed}: ${stdout.trim()}`);
    const result = JSON.parse(stdout) as Record<string, number>;
    expect(result).toMatchObject({
      kills,
      withoutOneOutcome: 0,
      wrongAnswers: 0,
      duplicateExecutions: 0,
      answeredButNotExecuted: 0,
      promisedNotExecutedButExecuted: 0,
      problems: 0,
      processesLeft: 0,
      descriptorsLeaked: 0,
    });
    expect(result.answered).toBeGreaterThan(kills * 10);
    expect(result.uncertain).toBeGreaterThan(0);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
