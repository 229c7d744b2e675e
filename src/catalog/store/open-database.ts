/**
 * Opens SQLite files that outlive the process: each change is durable (unless a write uses `withoutSync`), and one process
 * opens a file once.
 * Not here: the treatment of a file that cannot be opened.
 */
import { statSync } from 'node:fs';
import type Database from 'libsql';
import { compositeKey } from '../../policy/composite-key.js';
import { checkVersion, claimDatabase, type OwnFormat } from './database-file.js';
import { loadedLibsql } from './libsql.js';

/** Longest wait for a lock of another process. The wait blocks the event loop. */
const busyMs = 250;

/** Await `loadLibsql` first. `schema`: statements that create the tables of this version. */
export function openDatabase(file: string, format: OwnFormat, schema: string): Database.Database {
  claimDatabase(file, format);
  const database = new (loadedLibsql())(file);
  database.pragma(`busy_timeout = ${busyMs}`);
  const [{ user_version: found }] = database.prepare('PRAGMA user_version').all() as [{ user_version: number }];
  try {
    checkVersion(found, format);
  } catch (error) {
    database.close();
    throw error;
  }
  database.pragma('journal_mode = WAL');
  database.pragma('synchronous = FULL');
  // Tables are read once, when a host starts: a larger page cache helps no query.
  database.pragma('cache_size = -256');
  // The version is written last, so a file with this version has the tables. Writing it again would wait for the disk.
  if (found !== format.version)
    database.exec(`BEGIN IMMEDIATE; ${schema} PRAGMA user_version = ${format.version}; COMMIT`);
  return database;
}

/**
 * Open files, by path and inode. libsql releases descriptors only when its objects are garbage-collected, so a file is opened
 * once per process and stays open.
 */
export class OpenedFiles<Opened> {
  readonly #opened = new Map<string, Opened>();

  /** Checks first whether the file is open: closing a second descriptor of it would release the locks of SQLite. */
  once(file: string, open: () => Opened): Opened {
    const known = this.#opened.get(keyOf(file));
    if (known !== undefined) return known;
    const opened = open();
    this.#opened.set(keyOf(file), opened);
    return opened;
  }
}

const keyOf = (file: string): string => compositeKey(file, String(statSync(file, { throwIfNoEntry: false })?.ino));
