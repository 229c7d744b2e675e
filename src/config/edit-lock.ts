/**
 * One at a time who changes a file: a lock file beside it that names its holder.
 * For commands, which end at once: waiting holds up the whole process.
 *
 * Invariants: a lock is made by one and removed by its holder, or by the one who got the right to after its holder was gone; waiting
 * is bounded, and then an error names the file that is in the way.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import { HostError } from '../kernel/errors.js';

const stepMs = 20;
/** Five seconds: a change takes some milliseconds. */
const stepsMax = 250;

/** What the file system refuses is thrown as it is. */
export function withEditLock<T>(file: string, work: () => T, steps = stepsMax): T {
  const lock = path.join(path.dirname(file), `.${path.basename(file)}.lock`);
  const me = `${process.pid} ${randomBytes(8).toString('hex')} ${hostname()}\n`;
  for (let step = 0; !made(lock, me); step += 1) {
    if (step >= steps) throw held(lock);
    if (!takeAway(lock)) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, stepMs);
  }
  try {
    return work();
  } finally {
    rmSync(lock, { force: true });
  }
}

function made(file: string, text: string): boolean {
  try {
    writeFileSync(file, text, { mode: 0o600, flag: 'wx' });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/** Of those who find the same holder gone, one may remove its lock: whoever comes too late would remove that of another. */
function takeAway(lock: string): boolean {
  const seen = read(lock);
  const [, pid, token, machine] = /^(\d{1,10}) ([0-9a-f]{16}) (.*)\n$/.exec(seen) ?? [];
  if (token === undefined || machine !== hostname() || isThere(Number(pid))) return false;
  const right = `${lock}.${token}`;
  if (!made(right, seen)) return false;
  try {
    if (read(lock) !== seen) return false;
    rmSync(lock);
    return true;
  } finally {
    rmSync(right, { force: true });
  }
}

/** Empty for one that is gone, or not written yet. */
function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

function isThere(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

const held = (lock: string): HostError =>
  new HostError('invalid_spec', `the configuration is being changed by another command, which holds ${lock}`, {
    field: '--config',
    reason: 'config',
    execution: 'not_executed',
    hint: 'try again; if no other command runs, remove that file',
  });
