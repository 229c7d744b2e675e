/**
 * What must outlive the host, in one SQLite file: the pins of tools, what each server said and listed last, and how
 * servers have failed. Verdicts are not kept: a server that was parked is not parked for the next host, but its history is there.
 * Not here: the tables (pins-table.ts, listings-table.ts, histories-table.ts), and what is in them means elsewhere.
 *
 * Invariants: a file that is damaged, or of a version to come, is set aside and told, never overwritten. Nothing else makes
 * the host go on without what it knew: a file that is only busy, or a folder that others may write to, is an error.
 */
import { mkdirSync, realpathSync, statSync } from 'node:fs';
import path from 'node:path';
import type Database from 'libsql';
import { HostError } from '../../kernel/errors.js';
import { compositeKey } from '../../policy/composite-key.js';
import type { PinStore } from '../../policy/pin-store.js';
import { requireTrusted } from '../../transports/stdio/state-dir.js';
import { type Histories, historiesSchema, historiesTable } from './histories-table.js';
import { libsql } from './libsql.js';
import { type ListingStore, listingsSchema, listingsTable } from './listings-table.js';
import { checkVersion, claimDatabase, isDamage, type OwnFormat, sqliteCode } from './own-database.js';
import { pinsSchema, pinsTable } from './pins-table.js';
import { setAside } from './set-aside.js';
import { LaterWrites } from './write-behind.js';

const fileName = 'state.db';
const schemaVersion = 4;
const format: OwnFormat = { noun: 'state', version: schemaVersion };
/** Waiting for another process stops everything here. */
const busyMs = 250;

/**
 * Files that are open, by path and inode. libsql gives a file's descriptors back only when its objects are collected, so a
 * file is opened once per process and kept: hosts that come and go then cost nothing.
 */
const opened = new Map<string, StateFile>();

export class StateFile {
  readonly pins: PinStore;
  readonly listings: ListingStore;
  readonly histories: Histories;
  readonly #later = new LaterWrites();

  private constructor(database: Database.Database) {
    this.pins = pinsTable(database, this.#later);
    this.listings = listingsTable(database, this.#later);
    this.histories = historiesTable(database);
  }

  /** Writes what waits for a turn of its own. */
  flush(): void {
    this.#later.flush();
  }

  /** Throws when it cannot be used; a damaged file is moved out of the way and told by `onProblem`. */
  static open(folder: string, onProblem: (error: unknown) => void): StateFile {
    makeFolder(folder);
    const file = path.join(realpathSync(folder), fileName);
    // Looked up before it is touched: to close any descriptor of a file is to lose the locks SQLite holds on it.
    const known = opened.get(keyOf(file));
    if (known) return known;
    const state = new StateFile(prepareOrSetAside(file, onProblem));
    opened.set(keyOf(file), state);
    return state;
  }
}

const keyOf = (file: string): string => compositeKey(file, String(statSync(file, { throwIfNoEntry: false })?.ino));

/** Pins that others could change would approve what they please. */
function makeFolder(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw unusable('cannot be made', 'state_unusable', 'give a folder that Hostler may write to', cause);
  }
  requireTrusted(folder);
}

function prepareOrSetAside(file: string, onProblem: (error: unknown) => void): Database.Database {
  try {
    return prepare(file);
  } catch (error) {
    if (!isDamage(error)) throw unusable(...whyNot(error), error);
    const aside = setAside(file);
    onProblem(
      new HostError('invalid_spec', `the state in ${fileName} could not be read and was set aside`, {
        field: 'stateDir',
        reason: 'unusable_state',
        hint: `tools count as seen for the first time; ${path.basename(aside)} holds what was there`,
        cause: error,
      }),
    );
    return prepare(file);
  }
}

function whyNot(error: unknown): [what: string, reason: string, hint: string] {
  return sqliteCode(error).startsWith('SQLITE_BUSY')
    ? ['is in use', 'state_busy', 'end the other process that writes to it, or give this host a folder of its own']
    : ['cannot be used', 'state_unusable', 'see that Hostler may read and write it, and that the disk is not full'];
}

const unusable = (what: string, reason: string, hint: string, cause: unknown): HostError =>
  new HostError('invalid_spec', `the state in ${fileName} ${what}`, { field: 'stateDir', reason, hint, cause });

function prepare(file: string): Database.Database {
  claimDatabase(file, format);
  const database = new (libsql())(file);
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
  // The tables are read when a host starts and written from then on: more than 256 KiB of pages in memory help no query.
  database.pragma('cache_size = -256');
  // The version is written last: a file that has it has the tables, and to write it again would wait for the disk.
  if (found === schemaVersion) return database;
  // Versions so far added tables, or another form of a row beside which the older one is still read: one way up for all, and
  // for one process at a time.
  database.exec(`BEGIN IMMEDIATE; ${pinsSchema} ${listingsSchema} ${historiesSchema}`);
  // The only column that was ever added. Whatever the version says: a file may have tables and none yet.
  if (!hasColumn(database, 'pins', 'statuses')) database.exec('ALTER TABLE pins ADD COLUMN statuses TEXT');
  database.exec(`PRAGMA user_version = ${schemaVersion}; COMMIT`);
  return database;
}

const hasColumn = (database: Database.Database, table: string, column: string): boolean =>
  database.prepare(`SELECT 1 FROM pragma_table_info('${table}') WHERE name = ?`).get(column) !== undefined;
