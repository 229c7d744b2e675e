/**
 * Opens the file of the log: locks its folder, sets a damaged file aside, and recovers one whose disk failed.
 * Not here: its rows (log-store.ts).
 *
 * Invariants: a damaged file, or one of a newer version, is moved and reported, never overwritten. After a failed sync the kernel may
 * report pages as written that are not on disk. So the file is renamed at once, because SQLite would sync it again on close. The next start
 * copies its write-ahead log before it uses the log.
 */
import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  fsyncSync,
  openSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import Database from 'libsql';
import {
  checkVersion,
  claimDatabase,
  isDamage,
  type OwnFormat,
  setAside,
  sqliteCode,
  Unreadable,
} from '../../../catalog/store/database-file.js';
import { HostError } from '../../../kernel/errors.js';
import { diskFull, inUse, logFailed } from './log-errors.js';

/** WITHOUT ROWID measured the same (18 us for a receipt, 70 us for a call); a rowid makes removing expired rows simple. */
const callsSchema = `
  CREATE TABLE calls (
    worker TEXT NOT NULL, epoch TEXT NOT NULL, key TEXT NOT NULL, state INTEGER NOT NULL, owner TEXT NOT NULL,
    expires INTEGER NOT NULL, digest TEXT NOT NULL, class INTEGER NOT NULL, attempts INTEGER NOT NULL,
    version INTEGER NOT NULL, sum INTEGER NOT NULL, reply BLOB, PRIMARY KEY (worker, epoch, key));
`;
const fileName = 'calls.db';
/** Name of the file after a failed sync, until it is opened again. */
const failedName = 'calls.db-failed';
const format: OwnFormat = { noun: 'a log of calls', version: 1 };
/** Longest wait for the file: an earlier log of this process may hold it for a moment after it released its lock. */
const busyMs = 1_000;
/** Larger files are not checked when they are opened, because that would take too long. */
const checkedBytesMax = 128 * 1024 * 1024;

/** Longest wait for the lock: of several processes that start at once, each may block the others for a moment. */
const lockMs = 250;

/**
 * One writer for a folder. SQLite takes the lock from the operating system, so the lock ends with the process, also after a crash. The lock
 * of the log file itself would come too late: damaged files are moved before they are opened. Returns the function that releases it.
 */
export function lockFolder(folder: string, startedAt: string): () => void {
  const file = path.join(folder, 'calls.lock');
  const holderFile = path.join(folder, 'calls.owner');
  makePrivate(file);
  const database = new Database(file);
  try {
    database.pragma(`busy_timeout = ${lockMs}`);
    // Nothing is written: the lock is on the empty file.
    database.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    database.close();
    throw sqliteCode(error).startsWith('SQLITE_BUSY') ? inUse(pidIn(holderFile)) : error;
  }
  try {
    // The content is for error messages and people.
    writeFileSync(holderFile, `${JSON.stringify({ pid: process.pid, startedAt })}\n`, { mode: 0o600 });
  } catch {
    // The disk may be full. The lock does not need this file.
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

export function openInMemory<T>(use: (database: Database.Database) => T): T {
  const database = new Database(':memory:');
  // Then the memory of removed rows can be freed, like the pages of a file.
  database.exec(`PRAGMA auto_vacuum = INCREMENTAL; ${callsSchema}`);
  return use(database);
}

/** `use` reads the file. An error that it throws is treated as damage of the file. */
export function openLogFile<T>(
  folder: string,
  onProblem: (error: HostError) => void,
  use: (database: Database.Database) => T,
): T {
  const file = path.join(folder, fileName);
  const open = (hasFailed: boolean): T => {
    const used = use(prepare(file, hasFailed));
    // SQLite syncs the folder too, but ignores the result.
    sync(folder);
    return used;
  };
  try {
    return open(recoverFailed(folder));
  } catch (error) {
    if (!isDamage(error)) {
      const isFailedSync = (error as NodeJS.ErrnoException).syscall === 'fsync';
      if (!isFailedSync && !sqliteCode(error).startsWith('SQLITE_IOERR')) throw unusable(error);
      moveFailed(folder);
      throw logFailed(sqliteCode(error), 'not_executed');
    }
    const aside = path.basename(setAside(file));
    onProblem(
      new HostError('invalid_spec', `the log of calls in ${fileName} was damaged and is now ${aside}`, {
        ...{ field: 'stateDir', reason: 'unusable_store', cause: error },
        hint: 'calls that were sent before are not run again but answered as uncertain; check the disk of the host',
      }),
    );
    return open(false);
  }
}

export function moveFailed(folder: string): void {
  try {
    renameSync(path.join(folder, fileName), path.join(folder, failedName));
  } catch {
    // If the disk refuses this, it refuses writes too, and the next write reports it.
  }
}

export const isFull = (error: unknown): boolean => sqliteCode(error) === 'SQLITE_FULL';

/** Returns true if the last process had failed. */
function recoverFailed(folder: string): boolean {
  const failed = path.join(folder, failedName);
  if (!existsSync(failed)) return false;
  const wal = path.join(folder, `${fileName}-wal`);
  if (existsSync(wal)) {
    const copy = `${wal}-copy`;
    copyFileSync(wal, copy);
    chmodSync(copy, 0o600);
    sync(copy);
    renameSync(copy, wal);
  }
  renameSync(failed, path.join(folder, fileName));
  sync(folder);
  return true;
}

/** Also syncs folders: the name of a new file is on disk only after its folder is synced. */
function sync(file: string): void {
  const descriptor = openSync(file, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function prepare(file: string, hasFailed: boolean): Database.Database {
  claimDatabase(file, format);
  const database = new Database(file);
  const pragma = (text: string) => database.prepare(`PRAGMA ${text}`).all([]) as Record<string, unknown>[];
  pragma(`busy_timeout = ${busyMs}`);
  // Set before the first read: SQLite then keeps the index of the write-ahead log in memory instead of in a third file.
  pragma('locking_mode = EXCLUSIVE');
  // Only effective while the file is empty.
  pragma('auto_vacuum = INCREMENTAL');
  const [{ user_version: found }] = pragma('user_version') as [{ user_version: number }];
  checkVersion(found, format);
  pragma('journal_mode = WAL');
  pragma('synchronous = FULL');
  // The thread checkpoints: SQLite hides a failure of its own checkpoints, and would sync again.
  pragma('wal_autocheckpoint = 0');
  pragma(`journal_size_limit = ${16 * 1024 * 1024}`);
  pragma('cache_size = -16384');
  if (hasFailed || statSync(file).size <= checkedBytesMax) {
    const [{ integrity_check: result }] = pragma('integrity_check(1)') as [{ integrity_check: string }];
    if (result !== 'ok') throw new Unreadable(result);
  }
  // The version is written last, so a file that has a version has the table too.
  if (found !== format.version) database.exec(`BEGIN; ${callsSchema} PRAGMA user_version = ${format.version}; COMMIT;`);
  return database;
}

const unusable = (cause: unknown): HostError =>
  isFull(cause) || (cause as NodeJS.ErrnoException).code === 'ENOSPC'
    ? diskFull().with({ code: 'insufficient_storage', cause })
    : new HostError('invalid_spec', `the log of calls in ${fileName} cannot be opened`, {
        ...{ field: 'stateDir', reason: 'store_unusable', cause },
        hint: 'check that Hostler may read and write the folder, and that its disk works',
      });
