/**
 * The file of the store: opened for one writer, with its tables; set aside when it is damaged; moved when its disk failed.
 * Not here: the tables (mail-table.ts, calls-table.ts), the lock of the folder, which is held before this is called.
 *
 * Invariants: a file that is damaged, or of a version to come, is set aside and told, never overwritten. After a failed sync
 * nothing is synced any more: SQLite would, when it closes a file in its place, so the file is moved from its place first. The log
 * of such a file is copied before it is written to again: the system may believe that parts of it are on disk, and they are not.
 * A file that was made in the place of another says so from its first commit on.
 */
import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  fsyncSync,
  openSync,
  readdirSync,
  renameSync,
  statSync,
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
} from '../../catalog/store/database-file.js';
import { HostError } from '../../kernel/errors.js';
import { failedError } from './store-words.js';

const fileName = 'broker.db';
/** Where the file is after a failed sync, until it is opened again. */
const failedName = 'broker.db-failed';
const schemaVersion = 1;
const format: OwnFormat = { noun: 'a store', version: schemaVersion };
/** Whoever had the folder before us gave back its lock; SQLite gives back the file a moment later, with the thread. */
const leavingMs = 1_000;
/** Files up to this are looked through before they are used; larger ones would take too long, and their rows have sums. */
const checkedBytesMax = 128 * 1024 * 1024;

export interface StoreSchema {
  readonly tables: string;
  /** What else is written to a file that is made in the place of one that is gone. */
  readonly inPlaceOfAnother: string;
}

/**
 * Throws when it cannot be used. A damaged file is moved out of the way and told by `onProblem`; what `use` finds when it reads
 * the tables counts as well.
 */
export function openStoreFile<T>(
  folder: string,
  schema: StoreSchema,
  onProblem: (error: HostError) => void,
  use: (database: Database.Database) => T,
): T {
  const file = path.join(folder, fileName);
  const open = (hasFailed: boolean) => use(prepare(file, schema, hasFailed));
  try {
    return open(bringBack(folder));
  } catch (error) {
    if (!isDamage(error)) {
      if (!sqliteCode(error).startsWith('SQLITE_IOERR')) throw unusable(error);
      moveFailed(folder);
      throw failedError(sqliteCode(error), 'not_executed');
    }
    const aside = path.basename(setAside(file));
    onProblem(
      new HostError('invalid_spec', `the store in ${fileName} could not be read and was set aside`, {
        field: 'stateDir',
        reason: 'unusable_store',
        hint: `messages in it are not served, and calls that were sent before are not run again but answered as uncertain; ${aside} holds what was there`,
        cause: error,
      }),
    );
    return open(false);
  }
}

/** Nothing of it is closed in its place any more. Only the name changes: where even that fails, so does any write. */
export function moveFailed(folder: string): void {
  try {
    renameSync(path.join(folder, fileName), path.join(folder, failedName));
  } catch {
    // The disk takes no change of any kind.
  }
}

export const isFull = (error: unknown): boolean => sqliteCode(error) === 'SQLITE_FULL';

/** True when its last process had failed. */
function bringBack(folder: string): boolean {
  const failed = path.join(folder, failedName);
  if (!existsSync(failed)) return false;
  const log = path.join(folder, `${fileName}-wal`);
  if (existsSync(log)) {
    const copy = `${log}-copy`;
    copyFileSync(log, copy);
    chmodSync(copy, 0o600);
    sync(copy);
    renameSync(copy, log);
  }
  renameSync(failed, path.join(folder, fileName));
  sync(folder);
  return true;
}

/** Also of a folder: the names in it are not on disk before. */
export function sync(file: string): void {
  const descriptor = openSync(file, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function prepare(file: string, schema: StoreSchema, hasFailed: boolean): Database.Database {
  // Its log takes over its rights.
  claimDatabase(file, format);
  const database = new Database(file);
  const pragma = (text: string) => database.prepare(`PRAGMA ${text}`).all([]) as Record<string, unknown>[];
  pragma(`busy_timeout = ${leavingMs}`);
  // Before the first look at it: the index of the log is then in memory, and no third file can run full.
  pragma('locking_mode = EXCLUSIVE');
  const [{ user_version: found }] = pragma('user_version') as [{ user_version: number }];
  checkVersion(found, format);
  pragma('journal_mode = WAL');
  pragma('synchronous = FULL');
  // Done by us: SQLite does not tell when its own writing of the log into the file fails, and would try again.
  pragma('wal_autocheckpoint = 0');
  pragma('cache_size = -16384');
  if (hasFailed || statSync(file).size <= checkedBytesMax) check(database);
  // The version is written last: a file that has it has the tables.
  if (found !== schemaVersion) {
    const made = schema.tables + (isInPlaceOfAnother(file) ? schema.inPlaceOfAnother : '');
    database.exec(`BEGIN; ${made} PRAGMA user_version = ${schemaVersion}; COMMIT;`);
  }
  return database;
}

/** Seen by what was set aside, also by an earlier process that ended before it had made another file. */
const isInPlaceOfAnother = (file: string): boolean =>
  readdirSync(path.dirname(file)).some((name) => name.startsWith(`${path.basename(file)}.unusable`));

/** An index that does not fit its table is made anew: the rows are what counts. */
function check(database: Database.Database): void {
  const verdict = () =>
    String(
      (database.prepare('PRAGMA integrity_check(1)').all([]) as [{ integrity_check: unknown }])[0].integrity_check,
    );
  const found = verdict();
  if (found === 'ok') return;
  if (!/index/.test(found)) throw new Unreadable(found);
  database.exec('REINDEX');
  const left = verdict();
  if (left !== 'ok') throw new Unreadable(left);
}

const unusable = (cause: unknown): HostError =>
  isFull(cause) || (cause as NodeJS.ErrnoException).code === 'ENOSPC'
    ? new HostError('insufficient_storage', `the store in ${fileName} cannot be opened: the disk is full`, {
        field: 'stateDir',
        reason: 'disk_full',
        hint: 'make room on the disk of the broker',
        cause,
      })
    : new HostError('invalid_spec', `the store in ${fileName} cannot be used`, {
        field: 'stateDir',
        reason: 'store_unusable',
        hint: 'see that Hostler may read and write it, and that its disk works',
        cause,
      });
