/**
 * What must outlive the host, in one SQLite file: the pins of tools, the last tools each server listed, and how servers
 * have failed. Verdicts are not kept: a server that was parked is not parked for the next host, but its history is there.
 * Not here: what a pin means (policy/pins.ts), what a history means (supervisor/history.ts).
 *
 * Invariant: a file that cannot be used is set aside and told, never overwritten; the host then starts without memory.
 */
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readSync,
  realpathSync,
  renameSync,
  statSync,
} from 'node:fs';
import path from 'node:path';
import Database from 'libsql';
import { HostError } from '../kernel/errors.js';
import { type PinRecord, type PinStore, pinnedServersMax } from '../policy/pin-store.js';
import type { ListedItem } from '../session/lists.js';
import { type Histories, historiesSchema, historiesTable } from './histories-table.js';

const fileName = 'state.db';
/** Raised with every change of the tables; an unknown one is not touched. */
const schemaVersion = 2;
const busyMs = 2_000;
/** The header of an SQLite file: how it begins, and where our version is in it. */
const headerBytes = 100;
const magic = Buffer.from('SQLite format 3\0');
const versionAt = 60;
/** A manifest larger than this is read from the server again. */
const manifestBytesMax = 16 * 1024 * 1024;

export interface Manifests {
  /** What a server of this very definition listed last. */
  load(server: string, fingerprint: string): ListedItem[];
  save(server: string, fingerprint: string, tools: readonly ListedItem[]): void;
}

/**
 * Files that are open, by path and inode. libsql gives a file's descriptors back only when its objects are collected, so a
 * file is opened once per process and kept: hosts that come and go then cost nothing.
 */
const opened = new Map<string, StateFile>();

export class StateFile {
  readonly pins: PinStore;
  readonly manifests: Manifests;
  readonly histories: Histories;

  private constructor(database: Database.Database) {
    this.pins = pinTable(database);
    this.manifests = manifestTable(database);
    this.histories = historiesTable(database);
  }

  /** Throws when the folder cannot be written; a damaged file is moved out of the way and told by `onProblem`. */
  static open(folder: string, onProblem: (error: unknown) => void): StateFile {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const file = path.join(realpathSync(folder), fileName);
    // Looked up before it is touched: to close any descriptor of a file is to lose the locks SQLite holds on it.
    const known = opened.get(keyOf(file));
    if (known) return known;
    const state = new StateFile(prepareOrSetAside(file, onProblem));
    opened.set(keyOf(file), state);
    return state;
  }
}

const keyOf = (file: string): string => `${file} ${statSync(file, { throwIfNoEntry: false })?.ino}`;

/** Without a usable file the host runs, and remembers nothing. */
export function openState(folder: string, onProblem: (error: unknown) => void): StateFile | undefined {
  try {
    return StateFile.open(folder, onProblem);
  } catch (error) {
    onProblem(error);
    return undefined;
  }
}

function prepareOrSetAside(file: string, onProblem: (error: unknown) => void): Database.Database {
  try {
    return prepare(file);
  } catch (error) {
    const aside = `${file}.unusable`;
    renameSync(file, aside);
    // What was not yet in the file itself goes with it.
    if (existsSync(`${file}-wal`)) renameSync(`${file}-wal`, `${aside}-wal`);
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

function prepare(file: string): Database.Database {
  // Made by us before SQLite makes it, so that it is never readable by others, not even for a moment.
  const descriptor = openSync(file, 'a+', 0o600);
  try {
    checkHeader(descriptor);
  } finally {
    closeSync(descriptor);
  }
  chmodSync(file, 0o600);
  const database = new Database(file);
  database.pragma(`busy_timeout = ${busyMs}`);
  const [{ user_version: found }] = database.prepare('PRAGMA user_version').all() as [{ user_version: number }];
  if (found > schemaVersion) {
    database.close();
    throw unknownVersion(found);
  }
  database.pragma('journal_mode = WAL');
  database.pragma('synchronous = FULL');
  // Every version so far only added tables: one way up for all of them.
  database.exec(`
    CREATE TABLE IF NOT EXISTS pins (server TEXT PRIMARY KEY, records TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS manifests (server TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, tools TEXT NOT NULL);
    ${historiesSchema}
    PRAGMA user_version = ${schemaVersion};
  `);
  return database;
}

/**
 * What can be told without SQLite is: libsql does not let go of a file it has opened, and a new one of the same name would
 * then share its log with the old one, which is to stay as it is.
 */
function checkHeader(descriptor: number): void {
  const header = Buffer.alloc(headerBytes);
  const found = readSync(descriptor, header, 0, headerBytes, 0);
  if (found === 0) return;
  if (found < headerBytes || !header.subarray(0, magic.length).equals(magic)) throw new Error('not an SQLite file');
  const version = header.readUInt32BE(versionAt);
  if (version > schemaVersion) throw unknownVersion(version);
}

const unknownVersion = (found: number) => new Error(`state of version ${found}, this Hostler knows ${schemaVersion}`);

function pinTable(database: Database.Database): PinStore {
  const read = database.prepare('SELECT records FROM pins WHERE server = ?');
  const write = database.prepare('INSERT INTO pins VALUES (?, ?) ON CONFLICT DO UPDATE SET records = excluded.records');
  const trim = database.prepare(
    'DELETE FROM pins WHERE rowid IN (SELECT rowid FROM pins ORDER BY rowid DESC LIMIT -1 OFFSET ?)',
  );
  return {
    load(server) {
      const row = read.get(server) as { records: string } | undefined;
      return row && (JSON.parse(row.records) as PinRecord[]);
    },
    save(server, records) {
      const isNew = read.get(server) === undefined;
      write.run(server, JSON.stringify(records));
      if (isNew) trim.run(pinnedServersMax);
    },
  };
}

function manifestTable(database: Database.Database): Manifests {
  const read = database.prepare('SELECT tools FROM manifests WHERE server = ? AND fingerprint = ?');
  const write = database.prepare(
    'INSERT INTO manifests VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET fingerprint = excluded.fingerprint, tools = excluded.tools',
  );
  return {
    load(server, fingerprint) {
      const row = read.get(server, fingerprint) as { tools: string } | undefined;
      const tools = row ? (JSON.parse(row.tools) as [key: string, raw: string][]) : [];
      return tools.map(([key, raw]) => ({ key, raw: Buffer.from(raw) }));
    },
    save(server, fingerprint, tools) {
      // Texts of texts: the definition itself must come back to the byte, 64-bit integers and all.
      const text = JSON.stringify(tools.map(({ key, raw }) => [key, raw.toString('utf8')]));
      if (text.length <= manifestBytesMax) write.run(server, fingerprint, text);
    },
  };
}
