/**
 * The pins of tools between two hosts, as a table: one row per server.
 * Not here: what a pin means (policy/pins.ts), under which key a server's pins are kept (pin-origin.ts).
 *
 * Invariant: at most `pinnedServersMax` rows; past it those that were first written longest ago go.
 */
import type Database from 'libsql';
import { type PinRecord, type PinStatus, type PinStore, pinnedServersMax, pinStatus } from '../policy/pin-store.js';

/** `statuses`: of the records beside them; NULL in a row that was written before there were any. */
export const pinsSchema =
  'CREATE TABLE IF NOT EXISTS pins (server TEXT PRIMARY KEY, records TEXT NOT NULL, statuses TEXT);';

export function pinsTable(database: Database.Database): PinStore {
  const read = database.prepare('SELECT records FROM pins WHERE server = ?');
  // Records may be megabytes: they are not read to learn that there are some.
  const has = database.prepare('SELECT 1 FROM pins WHERE server = ?');
  const readStatuses = database.prepare('SELECT statuses FROM pins WHERE server = ?');
  const write = database.prepare(
    'INSERT INTO pins VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET records = excluded.records, statuses = excluded.statuses',
  );
  const trim = database.prepare(
    'DELETE FROM pins WHERE rowid IN (SELECT rowid FROM pins ORDER BY rowid DESC LIMIT -1 OFFSET ?)',
  );
  return {
    load(server) {
      const row = read.get(server) as { records: string } | undefined;
      return row && (JSON.parse(row.records) as PinRecord[]);
    },
    loadStatuses(server) {
      const row = readStatuses.get(server) as { statuses: string | null } | undefined;
      return typeof row?.statuses === 'string' ? new Map(JSON.parse(row.statuses) as [string, PinStatus][]) : undefined;
    },
    save(server, records) {
      const isNew = has.get(server) === undefined;
      const statuses = records.map((record) => [record.name, pinStatus(record)]);
      write.run(server, JSON.stringify(records), JSON.stringify(statuses));
      if (isNew) trim.run(pinnedServersMax);
    },
  };
}
