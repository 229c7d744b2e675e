/**
 * Runs a driver alone in a PID namespace, where the process table shows whatever it leaves behind. A shell is the
 * namespace's init, which reaps what loses its parent, as an init must. The driver prints one JSON line.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** The seed is printed, with what the driver counted; `SEED` replays it. */
export async function killInNamespace(driver: string, kills: number): Promise<Record<string, number>> {
  const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 1e9));
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-kills-'));
  const file = fileURLToPath(new URL(driver, import.meta.url));
  try {
    const inside = ['sh', '-c', '"$@"; exit $?', 'sh', process.execPath, file, String(kills), String(seed), folder];
    const { stdout } = await run('unshare', ['--pid', '--fork', '--mount-proc', ...inside]);
    console.log(`S1 seed ${seed}: ${stdout.trim()}`);
    return JSON.parse(stdout) as Record<string, number>;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
