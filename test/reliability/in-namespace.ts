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

/** Whoever is given up goes with its namespace. */
const unshare = ['--pid', '--fork', '--mount-proc', '--kill-child'];

/**
 * The driver gets the count, a seed, a folder and then `more`. The seed is printed, with what the driver counted; `SEED`
 * replays it.
 */
export async function runInNamespace<T = Record<string, number>>(
  id: string,
  driver: string,
  count: number,
  ...more: readonly string[]
): Promise<T> {
  const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 1e9));
  const folder = mkdtempSync(path.join(os.tmpdir(), 'hostler-kills-'));
  const file = fileURLToPath(new URL(driver, import.meta.url));
  try {
    const inside = [process.execPath, file, String(count), String(seed), folder, ...more];
    const { stdout } = await run('unshare', [...unshare, 'sh', '-c', '"$@"; exit $?', 'sh', ...inside]);
    console.log(`${id} seed ${seed}: ${stdout.trim()}`);
    return JSON.parse(stdout) as T;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
