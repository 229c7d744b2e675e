/**
 * state.db, one SQLite file for all data that outlives the host: pins of tools, the newest listing of each server, failure
 * histories, marks and the newest approvals. Server states are not stored: a parked server is not parked in the next host.
 * Not here: the tables (pins-table.ts, listings-table.ts, failure-histories.ts, server-marks.ts).
 *
 * Invariants: a damaged file, or one of a newer version, is set aside and reported, never overwritten. A busy file, or a folder
 * that others may write to, is an error.
 */
import { realpathSync } from 'node:fs';
import path from 'node:path';
import type Database from 'libsql';
import { HostError } from '../../kernel/errors.js';
import { makeFolders } from '../../kernel/make-folders.js';
import { requireTrusted } from '../../transports/stdio/state-dir.js';
import { pinKey } from '../server-origin.js';
import { type ApprovalLog, approvalsSchema, approvalsTable } from './approvals-table.js';
import { isDamage, type OwnFormat, setAside, sqliteCode } from './database-file.js';
import { type HistoriesTable, historiesSchema, historiesTable } from './failure-histories.js';
import { type ListingsTable, listingsTable } from './listings-table.js';
import { adoptOldPins } from './old-pins.js';
import { OpenedFiles, openDatabase } from './open-database.js';
import { type PinsTable, pinsTable } from './pins-table.js';
import { rowSetSchema } from './row-sets.js';
import { marksSchema, marksTable, type ServerMarks } from './server-marks.js';
import { WriteBehind } from './write-behind.js';

const fileName = 'state.db';
const format: OwnFormat = { noun: 'state', version: 7 };
const opened = new OpenedFiles<StateFile>();

export class StateFile {
  readonly pins: PinsTable;
  readonly listings: ListingsTable;
  readonly histories: HistoriesTable;
  readonly marks: ServerMarks;
  readonly approvals: ApprovalLog;
  readonly #pending = new WriteBehind();

  constructor(database: Database.Database, onProblem: (error: unknown) => void) {
    this.pins = pinsTable(database, this.#pending);
    this.listings = listingsTable(database, this.pins, this.#pending);
    this.histories = historiesTable(database);
    this.marks = marksTable(database, onProblem);
    this.approvals = approvalsTable(database);
    adoptOldPins(database, this.pins, onProblem);
  }

  /** Call it when a server was removed: its pins and its listing stay on disk only. */
  release(server: string, origin: string): void {
    // The listing first: writing it also writes its pins.
    this.listings.release(server);
    this.pins.release(pinKey(server, origin));
  }

  flush(): void {
    this.#pending.flush();
  }

  /** Throws when the file cannot be used. A damaged file is set aside and reported by `onProblem`. */
  static open(folder: string, onProblem: (error: unknown) => void): StateFile {
    makeFolder(folder);
    const file = path.join(realpathSync(folder), fileName);
    return opened.once(file, () => openOrSetAside(file, onProblem));
  }
}

/** A user who can write to the folder could approve any tool. */
function makeFolder(folder: string): void {
  try {
    makeFolders(folder);
  } catch (cause) {
    throw unusable('cannot be created', 'state_unusable', 'choose a folder that Hostler may write to', cause);
  }
  requireTrusted(folder);
}

function openOrSetAside(file: string, onProblem: (error: unknown) => void): StateFile {
  try {
    return new StateFile(prepare(file), onProblem);
  } catch (error) {
    if (!isDamage(error)) throw unusable(...whyNot(error), error);
    const aside = setAside(file);
    onProblem(
      new HostError('invalid_spec', `the state in ${fileName} could not be read and was set aside`, {
        field: 'stateDir',
        reason: 'unusable_state',
        hint: `all tools count as new; the old state is in ${path.basename(aside)}`,
        cause: error,
      }),
    );
    return new StateFile(prepare(file), onProblem);
  }
}

function whyNot(error: unknown): [what: string, reason: string, hint: string] {
  return sqliteCode(error).startsWith('SQLITE_BUSY')
    ? ['is in use', 'state_busy', 'stop the other process that writes to it, or give this host its own folder']
    : ['cannot be used', 'state_unusable', 'check that Hostler may read and write it, and that the disk is not full'];
}

const unusable = (what: string, reason: string, hint: string, cause: unknown): HostError =>
  new HostError('invalid_spec', `the state in ${fileName} ${what}`, { field: 'stateDir', reason, hint, cause });

const prepare = (file: string): Database.Database =>
  openDatabase(
    file,
    format,
    `${rowSetSchema('pin')} ${rowSetSchema('listing')} ${historiesSchema} ${marksSchema} ${approvalsSchema}
     DROP TABLE IF EXISTS manifests;`,
  );
