/**
 * Record of a definition between lists and restarts, its transitions, and the port of the store.
 * Not here: comparing whole lists (pins.ts).
 *
 * Invariant: the status depends only on the record, so lists and calls always see the same status.
 */
import { setBounded } from '../kernel/bounded-map.js';
import type { Hashed, PinHash } from './pin-hash.js';

/** `reworded`: the listed version differs in wording only (wording.ts). */
export type PinStatus = 'approved' | 'new' | 'changed' | 'renamed' | 'reworded' | 'removed';

export interface PinVersion {
  readonly hash: string;
  readonly bodyHash: string;
  /** Text of the server; undefined if an unapproved version is no longer listed. */
  readonly raw: string | undefined;
  /** ISO 8601: time of the approval, or of the first sight if not approved. */
  readonly at: string;
}

export interface PinRecord {
  readonly name: string;
  readonly approved: PinVersion | undefined;
  /** The listed version, if it is not the approved one. */
  readonly pending: PinVersion | undefined;
  /** Hash at first sight. A name that was never approved counts as changed if its hash differs. */
  readonly firstHash: string | undefined;
  /** Earlier name of the same body. */
  readonly renamedFrom: string | undefined;
  /** True if the name is listed twice or its text is ambiguous: there is nothing to approve. */
  readonly isAmbiguous: boolean;
  readonly isListed: boolean;
  /** The pending version differs from the approved one in wording only. Undefined: not compared yet. */
  readonly isReworded?: boolean | undefined;
}

/** Undefined: there was too much to compare at once. */
export type ComparesWording = (approved: string, listed: Buffer | string) => boolean | undefined;

export interface PinStore {
  /** Undefined for a server that was never seen; empty for a server without tools. */
  load(server: string): readonly PinRecord[] | undefined;
  /** Only the status of each record, if the store has it separately: approved texts are long and rarely needed. */
  loadStatuses?(server: string): ReadonlyMap<string, PinStatus> | undefined;
  save(server: string, records: readonly PinRecord[]): void;
  /** Like `save`, but may write some turns later; the records apply immediately. `onFailed`: the write failed. */
  saveSoon?(server: string, records: readonly PinRecord[], onFailed: (error: unknown) => void): void;
}

/** Bound of servers with pins. Beyond it, the server with the oldest entry is dropped, and its next list counts as its first. */
export const pinnedServersMax = 20_000;

export function memoryPinStore(): PinStore {
  const byServer = new Map<string, readonly PinRecord[]>();
  return {
    load: (server) => byServer.get(server),
    save(server, records) {
      // A known server retains its position in the map.
      if (byServer.has(server)) byServer.set(server, records);
      else setBounded(byServer, server, records, pinnedServersMax);
    },
  };
}

/** An unapproved version stays unapproved when the server stops listing it. */
export function pinStatus(record: PinRecord): PinStatus {
  const { approved, pending, firstHash, renamedFrom } = record;
  if (record.isAmbiguous) return 'changed';
  if (!pending) return record.isListed ? 'approved' : 'removed';
  if (approved || pending.hash !== firstHash) return approved && record.isReworded ? 'reworded' : 'changed';
  return renamedFrom === undefined ? 'new' : 'renamed';
}

/** The record after a list that contains its name. Returns the same object if nothing changed. */
export function afterListed(
  record: PinRecord,
  { hashes, raw }: Hashed,
  at: string,
  compareWording: ComparesWording,
): PinRecord {
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
  const isCompared = same !== undefined && record.isReworded !== undefined;
  const isReworded = isCompared ? record.isReworded : compareWording(approved?.raw ?? '', raw);
  if (isSettled && same && (isCompared || isReworded === undefined)) return record;
  return changed(record, {
    pending: version(hashes, raw, same?.at ?? at),
    isAmbiguous: false,
    isListed: true,
    isReworded,
  });
}

/** The record after a list that does not contain its name. Drops unapproved text, with which a server could fill the store. */
export function afterUnlisted(record: PinRecord): PinRecord {
  if (!record.isListed) return record;
  const { pending, isAmbiguous, isReworded } = record;
  return changed(record, {
    pending: pending && { ...pending, raw: undefined },
    isAmbiguous,
    isListed: false,
    isReworded,
  });
}

/** Lists every member: there may be 10,000 records, and a spread of parsed JSON takes ten times as long. */
const changed = (
  { name, approved, firstHash, renamedFrom }: PinRecord,
  {
    pending,
    isAmbiguous,
    isListed,
    isReworded,
  }: Pick<PinRecord, 'pending' | 'isAmbiguous' | 'isListed' | 'isReworded'>,
): PinRecord => ({ name, approved, pending, firstHash, renamedFrom, isAmbiguous, isListed, isReworded });

export function newRecord(
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
  return record.pending && isApproved && renamedFrom === undefined ? withApproval(record, record.pending) : record;
}

export const withApproval = (record: PinRecord, approved: PinVersion): PinRecord => ({
  ...record,
  approved,
  pending: undefined,
  firstHash: undefined,
  renamedFrom: undefined,
  isReworded: undefined,
});

/**
 * Returns the record without its newest approval. `before`: the record before that approval. The version that was approved, or a
 * newer one that is listed now, is pending again.
 */
export function withoutApproval(record: PinRecord, before: PinRecord, compareWording: ComparesWording): PinRecord {
  const { approved, firstHash, renamedFrom } = before;
  const pending = record.pending ?? record.approved;
  const isReworded = approved && pending?.raw ? compareWording(approved.raw ?? '', pending.raw) : undefined;
  return { ...record, approved, pending, firstHash, renamedFrom, isReworded };
}

/** Converts to text, because the bytes are a view that would retain a whole page. */
const version = ({ hash, bodyHash }: PinHash, raw: Buffer, at: string): PinVersion => ({
  hash,
  bodyHash,
  raw: raw.toString('utf8'),
  at,
});

/** Names by body hash, approved and pending, so that a changed tool cannot pass under a new name. */
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
