/**
 * One writer for a folder. The lock is one of the operating system, through SQLite: it ends with the process, however that ends.
 * The lock of the log file itself would come too late: damaged files are moved before they are opened.
 */
import { chmodSync, closeSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'libsql';
import { sqliteCode } from '../../../catalog/store/database-file.js';
import { inUse } from './log-errors.js';

/** Of several processes that start at once, each may block the others for a moment. */
const busyMs = 250;

/** Returns the function that releases the lock. Throws if another log has the folder. */
export function lockFolder(folder: string, startedAt: string): () => void {
  const file = path.join(folder, 'calls.lock');
  const holderFile = path.join(folder, 'calls.owner');
  makePrivate(file);
  const database = new Database(file);
  try {
    database.pragma(`busy_timeout = ${busyMs}`);
    // Nothing is written: the lock is on the empty file.
    database.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    database.close();
    throw sqliteCode(error).startsWith('SQLITE_BUSY') ? inUse(pidIn(holderFile)) : error;
  }
  try {
    // For error messages and people.
    writeFileSync(holderFile, `${JSON.stringify({ pid: process.pid, startedAt })}\n`, { mode: 0o600 });
  } catch {
    // The disk may be full; the lock does not need it.
  }
  return () => {
    database.exec('ROLLBACK');
    database.close();
  };
}

/** An existing file is not opened: closing any descriptor of it would release SQLite's locks. */
function makePrivate(file: string): void {
  try {
    closeSync(openSync(file, 'wx', 0o600));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    chmodSync(file, 0o600);
  }
}

function pidIn(file: string): number | undefined {
  try {
    const { pid } = JSON.parse(readFileSync(file, 'utf8')) as { pid?: number };
    return Number.isInteger(pid) ? pid : undefined;
  } catch {
    return undefined;
  }
}
