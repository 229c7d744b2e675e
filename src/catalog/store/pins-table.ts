/**
 * The pins of tools between two hosts, as a table: one row per server.
 * Not here: what a pin means (policy/pins.ts), under which key a server's pins are kept (server-origin.ts).
 *
 * Invariants: at most `pinnedServersMax` rows; past it those that were first written longest ago go. What a server lists is on disk
 * only with the pins that judged it (listings-table.ts): pins that a list has changed take the list before it along.
 */
import type Database from 'libsql';
import { compositeKey } from '../../policy/composite-key.js';
import {
  type PinRecord,
  type PinStatus,
  type PinStore,
  type PinVersion,
  pinnedServersMax,
  pinStatus,
} from '../../policy/pin-store.js';
import { pinnedServer } from '../server-origin.js';
import { type LaterRow, type LaterWrites, largeBytes } from './write-behind.js';

/** `statuses`: of the records beside them; NULL in a row that was written before there were any. */
export const pinsSchema =
  'CREATE TABLE IF NOT EXISTS pins (server TEXT PRIMARY KEY, records TEXT NOT NULL, statuses TEXT);';

/** Where the pins that are kept under this key wait to be written. */
export const pinsPlace = (key: string): string => compositeKey('pins', key);

export function pinsTable(database: Database.Database, later: LaterWrites): PinStore {
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
  const dropList = database.prepare('DELETE FROM manifests WHERE server = ? AND fingerprint = ?');
  const writeText = (key: string, text: string, records: readonly PinRecord[]) => {
    const isNew = has.get(key) === undefined;
    write.run(key, text, JSON.stringify(records.map((record) => [record.name, pinStatus(record)])));
    if (isNew) trim.run(pinnedServersMax);
  };
  // The list that is kept was judged by the pins before these: one of its texts could pass for what these call approved.
  const writeWithoutList = database.transaction((key: string, text: string, records: readonly PinRecord[]) => {
    const { server, origin } = pinnedServer(key);
    dropList.run(server, origin);
    writeText(key, text, records);
  });
  return {
    load(server) {
      const waiting = later.get(pinsPlace(server)) as readonly PinRecord[] | undefined;
      if (waiting) return waiting;
      const row = read.get(server) as { records: string } | undefined;
      return row && (JSON.parse(row.records) as PinRecord[]);
    },
    // What waits to be written is read whole.
    loadStatuses(server) {
      if (later.get(pinsPlace(server)) !== undefined) return undefined;
      const row = readStatuses.get(server) as { statuses: string | null } | undefined;
      return typeof row?.statuses === 'string' ? new Map(JSON.parse(row.statuses) as [string, PinStatus][]) : undefined;
    },
    save(server, records) {
      const place = pinsPlace(server);
      // The list that is kept is the one of now, unless the pins of now are not there yet.
      const write = later.isBehind(place) ? writeWithoutList : writeText;
      later.writeOrThrow(place, () => write(server, JSON.stringify(records), records));
    },
    saveSoon(server, records, onFailed) {
      const row: LaterRow = {
        row: records,
        text: () => JSON.stringify(records),
        write: (text) => writeWithoutList(server, text, records),
        onFailed,
        // With none at all the next host would see every tool for the first time.
        isOlderGood: true,
      };
      later.put(pinsPlace(server), row, textBytes(records) > largeBytes);
    },
  };
}

const textBytes = (records: readonly PinRecord[]): number => {
  const bytesOf = (version: PinVersion | undefined) => version?.raw?.length ?? 0;
  return records.reduce((sum, { approved, pending }) => sum + recordBytes + bytesOf(approved) + bytesOf(pending), 0);
};
/** What a record takes beside its texts. */
const recordBytes = 256;
