/**
 * The failures of servers between two hosts, as a table: one row per server and definition that has failed and was not
 * proven since. A server without fault has no row.
 * Not here: what a history means (supervisor/history.ts), when it is written (history-keeper.ts).
 *
 * Invariant: at most `rowsMax` rows. A parked server writes with every probe, so the row that was written longest ago is
 * that of a server nobody defines any more.
 */
import type Database from 'libsql';
import { type HistoryRecord, parseRecord } from '../../supervisor/history.js';
import { RowNames } from './row-names.js';

export const rowsMax = 1_024;

export interface HistoryRow {
  readonly server: string;
  readonly fingerprint: string;
  /** Undefined: forgiven. */
  readonly record: HistoryRecord | undefined;
}

export interface Histories {
  /** What was left about a server of this very definition. Throws when it cannot be read. */
  load(server: string, fingerprint: string): HistoryRecord | undefined;
  /** All of them or, when it throws, none. */
  save(rows: readonly HistoryRow[]): void;
}

/** Rows are replaced, never updated: so the order of `rowid` is the order of writing. */
export const historiesSchema = `
  CREATE TABLE IF NOT EXISTS histories (
    server TEXT NOT NULL, fingerprint TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (server, fingerprint)
  );`;

export function historiesTable(database: Database.Database): Histories {
  const read = database.prepare('SELECT record FROM histories WHERE server = ? AND fingerprint = ?');
  const readNames = database.prepare('SELECT DISTINCT server FROM histories');
  const names = new RowNames(() => (readNames.all() as { server: string }[]).map(({ server }) => server));
  // Any number of servers in one statement: they may all have failed at once.
  const write = database.prepare(
    'INSERT OR REPLACE INTO histories SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?)',
  );
  const forget = database.prepare(
    'DELETE FROM histories WHERE (server, fingerprint) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))',
  );
  const trim = database.prepare(
    `DELETE FROM histories WHERE rowid IN (
      SELECT rowid FROM histories ORDER BY rowid LIMIT max(0, (SELECT count(*) FROM histories) - ${rowsMax})
    )`,
  );
  const saveAll = database.transaction((rows: readonly HistoryRow[]) => {
    const kept = rows.filter(({ record }) => record);
    const forgiven = rows.filter(({ record }) => !record);
    if (forgiven.length > 0) forget.run(JSON.stringify(forgiven.map((row) => [row.server, row.fingerprint])));
    if (kept.length === 0) return;
    write.run(JSON.stringify(kept.map((row) => [row.server, row.fingerprint, JSON.stringify(row.record)])));
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
      // A history must outlive the process, not the machine: nobody waits for the disk each time a server dies.
      database.pragma('synchronous = NORMAL');
      try {
        saveAll(rows);
      } finally {
        database.pragma('synchronous = FULL');
      }
    },
  };
}
