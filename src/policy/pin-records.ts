/**
 * What is remembered of a server's definitions between lists and between runs of the host, and the port it is kept behind.
 * Not here: how a record comes to change (pin-records.ts, pins.ts).
 *
 * Invariant: the status is a function of the record alone, so listing and calling cannot be told two things.
 */
import { setBounded } from '../kernel/bounded-map.js';
import type { Hashed, PinHash } from './pin-hash.js';

export type PinStatus = 'approved' | 'new' | 'changed' | 'renamed' | 'removed';

/** One definition as it was seen. */
export interface PinVersion {
  readonly hash: string;
  readonly bodyHash: string;
  /** The server's own text; undefined once an unapproved version is no longer listed. */
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

/** The record after a list that has the name. The same object when nothing is different. */
export function relisted(record: PinRecord, { hashes, raw }: Hashed, at: string): PinRecord {
  const { approved, pending } = record;
  if (!hashes) {
    if (record.isAmbiguous && record.isListed && !pending) return record;
    return changed(record, { pending: undefined, isAmbiguous: true, isListed: true });
  }
  const isSettled = record.isListed && !record.isAmbiguous;
  if (hashes.hash === approved?.hash) {
    if (isSettled && !pending) return record;
    return changed(record, { pending: undefined, isAmbiguous: false, isListed: true });
  }
  const same = hashes.hash === pending?.hash ? pending : undefined;
  if (isSettled && same) return record;
  return changed(record, {
    pending: version(hashes, raw, same?.at ?? at),
    isAmbiguous: false,
    isListed: true,
  });
}

/** The record after a list without the name. Unapproved text is dropped: a server could fill the store with it. */
export function vanished(record: PinRecord): PinRecord {
  if (!record.isListed) return record;
  const { pending, isAmbiguous } = record;
  return changed(record, { pending: pending && { ...pending, raw: undefined }, isAmbiguous, isListed: false });
}

/** Member by member: there may be ten thousand, and a spread of what was once JSON takes ten times as long. */
const changed = (
  { name, approved, firstHash, renamedFrom }: PinRecord,
  { pending, isAmbiguous, isListed }: Pick<PinRecord, 'pending' | 'isAmbiguous' | 'isListed'>,
): PinRecord => ({ name, approved, pending, firstHash, renamedFrom, isAmbiguous, isListed });

export function firstSeen(
  name: string,
  { hashes, raw }: Hashed,
  bodies: ReadonlyMap<string, string>,
  isApproved: boolean,
  at: string,
): PinRecord {
  const renamedFrom = hashes && bodies.get(hashes.bodyHash);
  const record: PinRecord = {
    name,
    approved: undefined,
    pending: hashes && version(hashes, raw, at),
    firstHash: hashes?.hash,
    renamedFrom,
    isAmbiguous: !hashes,
    isListed: true,
  };
  return record.pending && isApproved && renamedFrom === undefined ? agreed(record, record.pending) : record;
}

/** After an approval, or at a first sight that is one. */
export const agreed = (record: PinRecord, approved: PinVersion): PinRecord => ({
  ...record,
  approved,
  pending: undefined,
  firstHash: undefined,
  renamedFrom: undefined,
});

/** As text of its own: the bytes are a view of a whole page. */
const version = ({ hash, bodyHash }: PinHash, raw: Buffer, at: string): PinVersion => ({
  hash,
  bodyHash,
  raw: raw.toString('utf8'),
  at,
});

/** Names by body: what is approved, and what waits in its place, so that a changed tool cannot pass under a new name. */
export function bodiesOf(records: ReadonlyMap<string, PinRecord>): Map<string, string> {
  const names = new Map<string, string>();
  for (const { name, approved, pending } of records.values()) {
    if (!approved) continue;
    names.set(approved.bodyHash, name);
    if (pending) names.set(pending.bodyHash, name);
  }
  return names;
}

export function sameRecords(a: ReadonlyMap<string, PinRecord>, b: ReadonlyMap<string, PinRecord>): boolean {
  if (a.size !== b.size) return false;
  for (const [name, record] of a) if (b.get(name) !== record) return false;
  return true;
}
