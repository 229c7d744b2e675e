/**
 * Runs a driver alone in a PID namespace, whose process table shows every process that it leaves behind. A shell is the init of the
 * namespace and reaps orphans. The driver prints one JSON line.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** If the driver is given up, its namespace and all processes in it end too. */
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
