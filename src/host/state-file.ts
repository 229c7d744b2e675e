/**
 * What must outlive the host, in one SQLite file: the pins of tools, and the last tools each server listed.
 * Verdicts are not kept: a server that was parked is not parked for the next host, but its history of definitions is.
 * Not here: what a pin means (policy/pins.ts).
 *
 * Invariant: a file that cannot be used is set aside and told, never overwritten; the host then starts without memory.
 */
import { chmodSync, closeSync, mkdirSync, openSync, realpathSync, renameSync, statSync } from 'node:fs';
import path from 'node:path';
import Database from 'libsql';
import { HostError } from '../kernel/errors.js';
import { type PinRecord, type PinStore, pinnedServersMax } from '../policy/pin-store.js';
import type { ListedItem } from '../session/lists.js';

const fileName = 'state.db';
/** Raised with every change of the tables; an unknown one is not touched. */
const schemaVersion = 1;
const busyMs = 2_000;
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

  private constructor(database: Database.Database) {
    this.pins = pinTable(database);
    this.manifests = manifestTable(database);
  }

  /** Throws when the folder cannot be written; a damaged file is moved out of the way and told by `onProblem`. */
  static open(folder: string, onProblem: (error: unknown) => void): StateFile {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const file = path.join(realpathSync(folder), fileName);
    // Made by us before SQLite makes it, so that it is never readable by others, not even for a moment.
    closeSync(openSync(file, 'a', 0o600));
    const key = `${file} ${statSync(file).ino}`;
    const known = opened.get(key);
    if (known) return known;
    const state = new StateFile(prepareOrSetAside(file, onProblem));
    opened.set(`${file} ${statSync(file).ino}`, state);
    return state;
  }
}

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
    onProblem(
      new HostError('invalid_spec', `the state in ${fileName} could not be read and was set aside`, {
        field: 'stateDir',
        reason: 'unusable_state',
        hint: `tools count as seen for the first time; ${path.basename(aside)} holds what was there`,
        cause: error,
      }),
    );
    closeSync(openSync(file, 'a', 0o600));
    return prepare(file);
  }
}

function prepare(file: string): Database.Database {
  chmodSync(file, 0o600);
  const database = new Database(file);
  database.pragma(`busy_timeout = ${busyMs}`);
  database.pragma('journal_mode = WAL');
  database.pragma('synchronous = FULL');
  const [{ user_version: found }] = database.prepare('PRAGMA user_version').all() as [{ user_version: number }];
  if (found > schemaVersion) {
    database.close();
    throw new Error(`state of version ${found}, this Hostler knows ${schemaVersion}`);
  }
  database.exec(`
    CREATE TABLE IF NOT EXISTS pins (server TEXT PRIMARY KEY, records TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS manifests (server TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, tools TEXT NOT NULL);
    PRAGMA user_version = ${schemaVersion};
  `);
  return database;
}

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
