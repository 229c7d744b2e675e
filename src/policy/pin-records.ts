/**
 * How the record of one name changes: with a list that has the name, with one that has not, with the first that ever had it, and
 * with an approval. And what is asked of all records together.
 * Not here: which of these happens when (pins.ts), what a record is and which status it has (pin-store.ts).
 *
 * Invariant: what has not changed is the same object, so that whoever compares sees at once what has.
 */
import type { PinHash } from './pin-hash.js';
import type { Hashed } from './pin-hashes.js';
import type { PinRecord, PinVersion } from './pin-store.js';

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

/** The record after a list without the name. The text nobody approved goes, or a server could fill the store with them. */
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
