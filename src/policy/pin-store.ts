/**
 * What is remembered of a server's definitions between lists and between runs of the host, and the port it is kept behind.
 * Not here: how a record comes to change (pin-records.ts, pins.ts).
 *
 * Invariant: the status is a function of the record alone, so listing and calling cannot be told two things.
 */
import { setBounded } from '../kernel/bounded-map.js';

export type PinStatus = 'approved' | 'new' | 'changed' | 'renamed' | 'removed';

/** One definition as it was seen. */
export interface PinVersion {
  readonly hash: string;
  readonly bodyHash: string;
  /** The server's own text; undefined once a version that nobody approved is no longer listed. */
  readonly raw: string | undefined;
  /** ISO 8601: when it was approved, or first seen while it waits for that. */
  readonly at: string;
}

export interface PinRecord {
  readonly name: string;
  readonly approved: PinVersion | undefined;
  /** What the server lists instead of the approved version. */
  readonly pending: PinVersion | undefined;
  /** The hash it had when it was new; a name that never was approved counts as changed once it differs. */
  readonly firstHash: string | undefined;
  /** The name under which its body was known before. */
  readonly renamedFrom: string | undefined;
  /** Listed twice at once, or in a text without one meaning: there is nothing to approve. */
  readonly isAmbiguous: boolean;
  readonly isListed: boolean;
}

export interface PinStore {
  /** Undefined for a server that was never seen, which is not the same as one that had nothing to list. */
  load(server: string): readonly PinRecord[] | undefined;
  /** The status of each record, where that is kept apart: what was agreed to is long, and seldom asked for. */
  loadStatuses?(server: string): ReadonlyMap<string, PinStatus> | undefined;
  save(server: string, records: readonly PinRecord[]): void;
  /** As `save`, but many may be written some turns later; they count at once. `onFailed`: they could not be, after all. */
  saveSoon?(server: string, records: readonly PinRecord[], onFailed: (error: unknown) => void): void;
}

/** Servers that pins are kept for. Past it the one that was first seen longest ago is seen for the first time again. */
export const pinnedServersMax = 20_000;

export function memoryPinStore(): PinStore {
  const byServer = new Map<string, readonly PinRecord[]>();
  return {
    load: (server) => byServer.get(server),
    save(server, records) {
      // One that is there already keeps its place.
      if (byServer.has(server)) byServer.set(server, records);
      else setBounded(byServer, server, records, pinnedServersMax);
    },
  };
}

/** A version that waits for approval still waits when the server stops listing it: vanishing is no way out. */
export function pinStatus(record: PinRecord): PinStatus {
  const { approved, pending, firstHash, renamedFrom } = record;
  if (record.isAmbiguous) return 'changed';
  if (!pending) return record.isListed ? 'approved' : 'removed';
  if (approved || pending.hash !== firstHash) return 'changed';
  return renamedFrom === undefined ? 'new' : 'renamed';
}
