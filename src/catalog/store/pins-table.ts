/**
 * The pins of tools in state.db: one row set per server, one row per tool.
 * Not here: the meaning of a pin (policy/pins.ts), the key of a server's pins (server-origin.ts).
 *
 * Invariant: each write that a list has caused gives the set a new generation. A stored listing is valid only with the
 * generation of pins that it was compared with (listings-table.ts).
 */
import { randomUUID } from 'node:crypto';
import type Database from 'libsql';
import { compositeKey } from '../../policy/composite-key.js';
import {
  type PinRecord,
  type PinStatus,
  type PinStore,
  type PinVersion,
  pinnedServersMax,
  pinStatus,
} from '../../policy/pin-records.js';
import { RowSets } from './row-sets.js';
import { largeBytes, type WriteBehind } from './write-behind.js';

export interface PinsTable extends Required<PinStore> {
  /** Generation of the stored pins. Undefined: no pins are stored. */
  generation(key: string): string | undefined;
  /** Stores pins of an older file inside a transaction of the caller. Pins that are stored already are newer and stay. */
  adopt(key: string, records: readonly PinRecord[]): void;
  /** Drops the pins from memory. Queued pins are written first. */
  release(key: string): void;
}

export const pinsEntry = (key: string): string => compositeKey('pins', key);

export function pinsTable(database: Database.Database, pending: WriteBehind): PinsTable {
  const sets = new RowSets<readonly PinRecord[], PinRecord>(database, {
    name: 'pin',
    oldestBy: 'id',
    setsMax: pinnedServersMax,
    rowsOf: (records) => records.map((record) => ({ name: record.name, tag: pinStatus(record), content: record })),
    textOf: (record) => JSON.stringify(record),
    bytesOf: recordBytes,
    // An unchanged record is the same object (policy/pin-records.ts).
    isSame: (a, b) => a === b,
  });
  const write = (key: string, records: readonly PinRecord[]) => sets.write(key, randomUUID(), records, false);
  return {
    generation: (key) => sets.head(key),
    load(key) {
      const waiting = pending.get(pinsEntry(key)) as readonly PinRecord[] | undefined;
      return waiting ?? sets.load(key, (rows) => rows.map(({ text }) => JSON.parse(text) as PinRecord));
    },
    loadStatuses(key) {
      if (pending.get(pinsEntry(key)) !== undefined) return undefined;
      return sets.tags(key) as ReadonlyMap<string, PinStatus> | undefined;
    },
    adopt(key, records) {
      if (sets.head(key) === undefined) sets.insert(key, randomUUID(), records);
    },
    release(key) {
      // Written first, because a write leaves its value in memory.
      pending.settle(pinsEntry(key));
      sets.release(key);
    },
    save(key, records) {
      const entry = pinsEntry(key);
      // An approval keeps the generation, so the stored listing stays valid, unless newer pins were not written yet.
      const generation = pending.isBehind(entry) ? undefined : sets.head(key);
      pending.writeOrThrow(entry, () => sets.write(key, generation ?? randomUUID(), records, true));
    },
    saveSoon(key, records, onFailed) {
      const bytes = records.reduce((sum, record) => sum + recordBytes(record), 0);
      // Without pins the next host would treat every tool as new, so older pins are better than none.
      const row = { value: records, write: () => write(key, records), onFailed, fallsBackToOlder: true };
      pending.put(pinsEntry(key), row, bytes > largeBytes);
    },
  };
}

const textBytes = (version: PinVersion | undefined): number => version?.raw?.length ?? 0;
const recordBytes = ({ approved, pending }: PinRecord): number => 256 + textBytes(approved) + textBytes(pending);
