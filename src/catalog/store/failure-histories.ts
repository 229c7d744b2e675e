/**
 * The failure histories of servers in state.db: read when a server is added, written when its ledger changes.
 * Not here: the fields of a history (supervisor/history.ts).
 *
 * Invariants: at most `rowsMax` rows, one per server and definition with failures; the row written longest ago is deleted
 * first. A change is written in the tick in which it happens, so it survives a kill. After `immediateMax` changes within
 * `gatherMs` the rest are written together: a thousand servers that fail at once cost a few writes. A failed write is reported;
 * the next change of that server writes its whole history again.
 */
import type Database from 'libsql';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { compositeKey } from '../../policy/composite-key.js';
import { type HistoryRecord, ledgerOf, parseRecord, recordOf } from '../../supervisor/history.js';
import type { History } from '../../supervisor/ports.js';
import { emptyLedger, type Ledger, type RestartPlan } from '../../supervisor/restart-plan.js';
import { RowNames, withoutSync } from './row-sets.js';

export const rowsMax = 1_024;
const gatherMs = 100;
const immediateMax = 8;
/** Servers named in one error message. */
const namedMax = 5;

export interface HistoryRow {
  readonly server: string;
  readonly fingerprint: string;
  /** Undefined: the ledger is empty again. */
  readonly record: HistoryRecord | undefined;
}

export interface HistoriesTable {
  /** The history of a server with exactly this definition. Throws when it cannot be read. */
  load(server: string, fingerprint: string): HistoryRecord | undefined;
  /** Writes all rows or, when it throws, none. */
  save(rows: readonly HistoryRow[]): void;
}

/** Rows are replaced, never updated: the order of `rowid` is the order of writing. */
export const historiesSchema = `
  CREATE TABLE IF NOT EXISTS histories (
    server TEXT NOT NULL, fingerprint TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (server, fingerprint)
  );`;

export function historiesTable(database: Database.Database): HistoriesTable {
  const read = database.prepare('SELECT record FROM histories WHERE server = ? AND fingerprint = ?');
  const readNames = database.prepare('SELECT DISTINCT server FROM histories');
  const names = new RowNames(() => (readNames.all() as { server: string }[]).map(({ server }) => server));
  // One statement for any number of servers: all may have failed at once.
  const write = database.prepare(
    'INSERT OR REPLACE INTO histories SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?)',
  );
  const remove = database.prepare(
    'DELETE FROM histories WHERE (server, fingerprint) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))',
  );
  const trim = database.prepare(
    `DELETE FROM histories WHERE rowid IN (
      SELECT rowid FROM histories ORDER BY rowid LIMIT max(0, (SELECT count(*) FROM histories) - ${rowsMax})
    )`,
  );
  const saveAll = database.transaction((rows: readonly HistoryRow[]) => {
    const failed = rows.filter(({ record }) => record);
    const empty = rows.filter(({ record }) => !record);
    if (empty.length > 0) remove.run(JSON.stringify(empty.map((row) => [row.server, row.fingerprint])));
    if (failed.length === 0) return;
    write.run(JSON.stringify(failed.map((row) => [row.server, row.fingerprint, JSON.stringify(row.record)])));
    trim.run();
  });
  return {
    load(server, fingerprint) {
      if (!names.mayHave(server)) return undefined;
      const row = read.get(server, fingerprint) as { record: string } | undefined;
      return row && parseRecord(row.record);
    },
    save(rows) {
      names.changed();
      // A history must survive the process, not a power failure: a failing server must not wait for the disk.
      withoutSync(database, () => saveAll(rows));
    },
  };
}

export class FailureHistories {
  readonly #table: HistoriesTable;
  readonly #clock: Clock;
  readonly #onProblem: (error: unknown) => void;
  /** Bounded by the servers of the host. */
  readonly #unwritten = new Map<string, HistoryRow>();
  /** Writes since the timer was set. */
  #writes = 0;
  #cancelTimer: Cancel | undefined;

  constructor(table: HistoriesTable, clock: Clock, onProblem: (error: unknown) => void) {
    this.#table = table;
    this.#clock = clock;
    this.#onProblem = onProblem;
  }

  /** History of one server with one definition: servers that share only a name share no history. */
  of(server: string, fingerprint: string, plan: RestartPlan): History {
    const key = compositeKey(fingerprint, server);
    if (this.#unwritten.has(key)) this.#save();
    const ledger = this.#load(server, fingerprint, plan);
    let isStored = ledger !== emptyLedger;
    return {
      ledger,
      remember: (after) => {
        const record = recordOf(after, this.#clock);
        if (!record && !isStored) return;
        isStored = record !== undefined;
        this.#unwritten.set(key, { server, fingerprint, record });
        if (this.#writes < immediateMax) this.#write();
      },
    };
  }

  flush(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#writes = 0;
    this.#save();
  }

  #write(): void {
    this.#writes++;
    this.#save();
    this.#cancelTimer ??= this.#clock.at(this.#clock.nowMs() + gatherMs, () => {
      this.#cancelTimer = undefined;
      this.#writes = 0;
      if (this.#unwritten.size > 0) this.#write();
    });
  }

  #save(): void {
    const rows = [...this.#unwritten.values()];
    this.#unwritten.clear();
    if (rows.length === 0) return;
    try {
      this.#table.save(rows);
    } catch (cause) {
      const names = rows.slice(0, namedMax).map(({ server }) => `server '${server}'`);
      const more = rows.length > namedMax ? ` and ${rows.length - namedMax} more` : '';
      this.#report(`the history of ${names.join(', ')}${more} could not be written`, {
        hint: 'check the free space of the state folder; until then a new host gives them a new restart budget',
        cause,
      });
    }
  }

  #load(server: string, fingerprint: string, plan: RestartPlan): Ledger {
    try {
      return ledgerOf(this.#table.load(server, fingerprint), this.#clock, plan);
    } catch (cause) {
      this.#report(`the history of server '${server}' could not be read`, {
        server,
        hint: `server '${server}' starts with an empty history`,
        cause,
      });
      return emptyLedger;
    }
  }

  /** Reports in a later tick: a listener may throw, and the caller is in the middle of a state change. */
  #report(message: string, options: { server?: string; hint: string; cause: unknown }): void {
    const error = new HostError('invalid_spec', message, { field: 'stateDir', reason: 'unusable_state', ...options });
    queueMicrotask(() => this.#onProblem(error));
  }
}
