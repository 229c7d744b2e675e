/**
 * Locks a file that several processes change or create. The lock is a file beside it, which contains the pid of the owner of the
 * lock. Waiting blocks the whole process.
 * Invariants: the owner removes its lock. If the owner has exited, exactly one waiter removes the lock. Waiting is bounded and
 * then fails with the name of the lock file.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import { HostError } from './errors.js';

const stepMs = 20;
/** Waits five seconds in total; a change takes a few milliseconds. */
const stepsMax = 250;

/** Errors of the file system are thrown unchanged. */
export function withEditLock<T>(file: string, work: () => T, steps = stepsMax): T {
  const lock = path.join(path.dirname(file), `.${path.basename(file)}.lock`);
  const me = `${process.pid} ${randomBytes(8).toString('hex')} ${hostname()}\n`;
  for (let step = 0; !create(lock, me); step += 1) {
    if (step >= steps) throw busy(file, lock);
    if (!removeStale(lock)) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, stepMs);
  }
  try {
    return work();
  } finally {
    rmSync(lock, { force: true });
  }
}

function create(file: string, text: string): boolean {
  try {
    writeFileSync(file, text, { mode: 0o600, flag: 'wx' });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

/**
 * Removes the lock of a process that has exited. Each waiter first tries to create a second file, named after
 * the token of this lock, and only the one that succeeds removes the lock. So no other waiter removes a newer lock.
 */
function removeStale(lock: string): boolean {
  const seen = read(lock);
  const [, pid, token, machine] = /^(\d{1,10}) ([0-9a-f]{16}) (.*)\n$/.exec(seen) ?? [];
  if (token === undefined || machine !== hostname() || isRunning(Number(pid))) return false;
  const claim = `${lock}.${token}`;
  if (!create(claim, seen)) return false;
  try {
    if (read(lock) !== seen) return false;
    rmSync(lock);
    return true;
  } finally {
    rmSync(claim, { force: true });
  }
}

/** Returns an empty text if the file does not exist or is not written yet. */
function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

const busy = (file: string, lock: string): HostError =>
  new HostError('invalid_spec', `another command is changing ${file} and holds the lock ${lock}`, {
    field: '--config',
    reason: 'config',
    execution: 'not_executed',
    hint: 'try again; if no other command runs, remove the lock file',
  });
