/**
 * One writer for a folder. What locks is the operating system, through SQLite: it lets go when the process ends, however it
 * ends, so nothing is ever left over to be judged by its age.
 * Not here: the locks SQLite holds on the store itself, which would come too late: files are moved before it is opened.
 *
 * Invariant: who holds the lock wrote down who it is; that is for people and decides nothing.
 */
import { chmodSync, closeSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'libsql';
import { inUse } from './store-words.js';

const lockName = 'broker.lock';
const ownerName = 'broker.owner';
/** Of several that start at once none may be let in at the first try: each is in the way of the others for a moment. */
const startsTogetherMs = 250;

export interface Owner {
  readonly pid: number;
  readonly startedAt: string;
  /** Of the machine: a pid says nothing after it was started again. */
  readonly bootId: string | undefined;
}

export interface WriterLock {
  release(): void;
}

/** Throws when another store, of this process or another, has the folder. */
export function lockFolder(folder: string, owner: Owner): WriterLock {
  const file = path.join(folder, lockName);
  makePrivate(file);
  const database = new Database(file);
  try {
    database.pragma(`busy_timeout = ${startsTogetherMs}`);
    // Nothing is written: the lock is on the empty file.
    database.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    database.close();
    if (!String((error as { code?: unknown }).code).startsWith('SQLITE_BUSY')) throw error;
    throw inUse(ownerOf(folder));
  }
  const ownerFile = path.join(folder, ownerName);
  writeFileSync(ownerFile, `${JSON.stringify(owner)}\n`, { mode: 0o600 });
  return {
    release() {
      database.exec('ROLLBACK');
      database.close();
    },
  };
}

/** Only ever opened by us when it is new: to close any descriptor of a file is to lose the locks SQLite holds on it. */
function makePrivate(file: string): void {
  try {
    closeSync(openSync(file, 'wx', 0o600));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    chmodSync(file, 0o600);
  }
}

function ownerOf(folder: string): Owner | undefined {
  try {
    const { pid, startedAt, bootId } = JSON.parse(readFileSync(path.join(folder, ownerName), 'utf8')) as Owner;
    return Number.isInteger(pid) ? { pid, startedAt, bootId } : undefined;
  } catch {
    return undefined;
  }
}
