/**
 * Compares each list of a server with its pins. A difference stays flagged until exactly the listed version is approved. The
 * approved text is stored for comparison with the new one.
 * Not here: transitions of one record and the store (pin-records.ts), the effect of a status on a call (pin-stage.ts).
 *
 * Invariants: only `approve` and first sight approve a version. A definition that cannot be pinned counts as changed. The
 * report and `statusOf` agree on every name.
 */
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { PinKind } from './pin-hash.js';
import { type Hashed, PinHashes, type PinItem } from './pin-hash.js';
import {
  afterListed,
  afterUnlisted,
  bodiesOf,
  type ComparesWording,
  newRecord,
  type PinRecord,
  type PinStatus,
  type PinStore,
  pinStatus,
  sameRecords,
  withApproval,
  withoutApproval,
} from './pin-records.js';
import { differInWordingOnly } from './wording.js';

/** Bytes of texts whose wording is compared with one list; the rest counts as changed until the next list. */
const comparedBytesMax = 512 * 1024;

/** `block` refuses calls, `warn` only reports, `off` does nothing. */
export type PinMode = 'block' | 'warn' | 'off';

export interface PinPolicy {
  /** Mode for a new server, or a new tool of a known server. */
  readonly onFirstSight: PinMode;
  /** Mode for a definition that differs from the approved one or has another name. */
  readonly onChange: PinMode;
}

export const defaultPinPolicy: PinPolicy = { onFirstSight: 'warn', onChange: 'block' };

/** `pins: "off"`: the operator trusts everything that the server lists. */
export const trustsEverything = ({ onFirstSight, onChange }: PinPolicy): boolean =>
  onFirstSight === 'off' && onChange === 'off';

export interface PinOptions {
  readonly store: PinStore;
  /** Called each time, so that a change of the configuration applies immediately. */
  readonly policyOf?: (server: string) => PinPolicy;
  /** A trusted server is never flagged or reported, and has no pins. Called each time. */
  readonly isTrusted?: (server: string) => boolean;
  readonly kind?: PinKind;
  readonly pinsMax?: number;
  /** Called when a list could not be stored. An approval that cannot be stored throws instead. */
  readonly onStoreError?: (error: unknown) => void;
}

export type { PinItem };

export interface PinChange {
  readonly tool: string;
  readonly status: PinStatus;
  /** True if this list caused the change; false if the previous list had it too. */
  readonly isFresh: boolean;
  /** Undefined if the name is beyond the bound of pins. */
  readonly record: PinRecord | undefined;
}

export interface PinReport {
  readonly isFirstSight: boolean;
  /** True: nothing was compared. */
  readonly isTrusted: boolean;
  readonly tools: ReadonlyMap<string, PinStatus>;
  /** Changes for the operator: all names that are not approved, and at first sight those approved without review. */
  readonly changes: readonly PinChange[];
}

export type PinCounts = Readonly<Partial<Record<PinStatus, number>>>;
const noCounts: PinCounts = {};

type Records = Map<string, PinRecord>;

export class Pins {
  readonly #store: PinStore;
  readonly #policyOf: (server: string) => PinPolicy;
  readonly #isTrusted: (server: string) => boolean;
  readonly #hashes: PinHashes;
  readonly #compareWording: () => ComparesWording;
  readonly #pinsMax: number;
  readonly #byServer = new Map<string, Records>();
  /** Statuses of servers whose full records were not needed yet. */
  readonly #statuses = new Map<string, ReadonlyMap<string, PinStatus>>();
  /** Number of tools by server and status; computed on demand, dropped when the records change. */
  readonly #counts = new Map<string, PinCounts>();
  /** Servers with records that are not stored yet. */
  readonly #unsaved = new Set<string>();
  readonly #onStoreError: (error: unknown) => void;

  constructor({ store, policyOf, isTrusted, kind, pinsMax, onStoreError }: PinOptions) {
    this.#store = store;
    this.#policyOf = policyOf ?? (() => defaultPinPolicy);
    this.#isTrusted = isTrusted ?? (() => false);
    this.#hashes = new PinHashes(kind ?? 'tool');
    this.#compareWording = kind === undefined || kind === 'tool' ? boundedComparison : () => () => false;
    this.#pinsMax = pinsMax ?? 10_000;
    this.#onStoreError = onStoreError ?? (() => {});
  }

  /**
   * Computes the hashes of a long list in several turns; undefined if there is little to do. Only `observe` compares the list
   * and changes statuses.
   */
  prepare(server: string, items: readonly PinItem[]): Promise<void> | undefined {
    return this.#isTrusted(server) ? undefined : this.#hashes.ahead(server, items);
  }

  /** `items` is one whole list. Items without a name are ignored: they cannot be called. */
  observe(server: string, items: readonly PinItem[], now: Date): PinReport {
    if (this.#isTrusted(server)) {
      const names = items.filter(({ key }) => key !== '').map(({ key }) => [key, 'approved'] as const);
      return { isFirstSight: false, isTrusted: true, tools: new Map(names), changes: [] };
    }
    const known = this.#recordsOf(server);
    const before: ReadonlyMap<string, PinRecord> = new Map(known);
    const records: Records = known ?? new Map();
    const listed = this.#hashes.ofList(server, items);
    const at = now.toISOString();
    const compareWording = this.#compareWording();

    for (const record of before.values()) {
      const item = listed.get(record.name);
      // All earlier versions were ambiguous, so this version counts as the first one.
      if (item?.hashes && !record.approved && record.firstHash === undefined) records.delete(record.name);
      else {
        const next = item ? afterListed(record, item, at, compareWording) : afterUnlisted(record);
        if (next !== record) records.set(record.name, next);
      }
    }
    const { onFirstSight } = this.#policyOf(server);
    const isApproved = onFirstSight === 'off' || (!known && onFirstSight === 'warn');
    const added: [name: string, item: Hashed][] = [];
    for (const [name, item] of listed) if (!records.has(name)) added.push([name, item]);
    if (added.length > 0) {
      const bodies = known ? bodiesOf(records) : new Map<string, string>();
      this.#makeRoom(records, added.length);
      for (const [name, item] of added) {
        if (records.size >= this.#pinsMax) break;
        records.set(name, newRecord(name, item, bodies, isApproved, at));
      }
    }

    // In memory first: if the store fails, a changed tool must still be flagged.
    this.#hold(server, records);
    this.#counts.delete(server);
    if (!known || !sameRecords(before, records)) this.#unsaved.add(server);
    const report = this.#report(listed, before, records, !known, onFirstSight);
    this.#save(server, records);
    return report;
  }

  /** Approves the listed version if it has this hash. */
  approve(server: string, tool: string, hash: string, now: Date): void {
    if (this.#isTrusted(server))
      throw notPinned(server, tool, 'pins are off for this server: its tools need no approval');
    const records = this.#recordsOf(server);
    const record = records?.get(tool);
    if (!records || !record) throw notPinned(server, tool, 'list the tools of the server first');
    const { approved, pending, isAmbiguous, isListed } = record;
    if (!isAmbiguous && !pending && approved?.hash === hash) return;
    if (isAmbiguous || !isListed || pending?.hash !== hash) throw notThatVersion(server, tool, record);
    const next = new Map(records).set(tool, withApproval(record, { ...pending, at: now.toISOString() }));
    // To the store first: otherwise an approval could be lost with a restart.
    this.#store.save(server, [...next.values()]);
    this.#hold(server, next);
    this.#counts.delete(server);
    this.#unsaved.delete(server);
  }

  /** Takes back the approval of this hash. `before`: the record before the approval. */
  undoApproval(server: string, tool: string, hash: string, before: PinRecord): void {
    const records = this.#recordsOf(server);
    const record = records?.get(tool);
    if (!records || !record) throw notPinned(server, tool, 'list the tools of the server first');
    if (record.approved?.hash !== hash) throw notThatVersion(server, tool, record);
    const next = new Map(records).set(tool, withoutApproval(record, before, this.#compareWording()));
    this.#store.save(server, [...next.values()]);
    this.#hold(server, next);
    this.#counts.delete(server);
    this.#unsaved.delete(server);
  }

  /** Listed tools without approval of the listed version. */
  waitingOf(server: string): { readonly record: PinRecord; readonly status: PinStatus }[] {
    if (this.#isTrusted(server)) return [];
    return [...(this.#recordsOf(server)?.values() ?? [])]
      .filter(({ pending, isAmbiguous, isListed }) => isListed && (pending !== undefined || isAmbiguous))
      .map((record) => ({ record, status: pinStatus(record) }));
  }

  /** A name that was never listed is `new`. */
  statusOf(server: string, tool: string): PinStatus {
    if (this.#isTrusted(server)) return 'approved';
    const statuses = this.#statusesOf(server);
    return statuses ? this.#among(statuses, tool) : this.#amongRecords(this.#recordsOf(server), tool);
  }

  /** `statusOf` for many tools of one server, with one lookup of the server. */
  statusesOf(server: string): (tool: string) => PinStatus {
    if (this.#isTrusted(server)) return () => 'approved';
    const statuses = this.#statusesOf(server);
    if (statuses) return (tool) => this.#among(statuses, tool);
    const records = this.#recordsOf(server);
    return (tool) => this.#amongRecords(records, tool);
  }

  #among(statuses: ReadonlyMap<string, PinStatus>, tool: string): PinStatus {
    return statuses.get(tool) ?? this.#unpinned(statuses);
  }

  #amongRecords(records: Records | undefined, tool: string): PinStatus {
    const record = records?.get(tool);
    return record ? pinStatus(record) : this.#unpinned(records);
  }

  /** Number of tools by status. */
  countsOf(server: string): PinCounts {
    if (this.#isTrusted(server)) return noCounts;
    let counts = this.#counts.get(server);
    if (!counts) {
      const count: Partial<Record<PinStatus, number>> = {};
      for (const record of this.#recordsOf(server)?.values() ?? []) {
        const status = pinStatus(record);
        count[status] = (count[status] ?? 0) + 1;
      }
      counts = count;
      this.#counts.set(server, counts);
    }
    return counts;
  }

  /**
   * Called when another server has taken the name: its records come from the store. `isSame`: the server has the same origin,
   * so records in memory remain valid; the store may not have them yet.
   */
  forget(server: string, isSame = false): void {
    if (isSame && this.#byServer.has(server)) return;
    this.#byServer.delete(server);
    this.#statuses.delete(server);
    this.#unsaved.delete(server);
    this.#counts.delete(server);
    this.forgetList(server);
  }

  /** Drops the hashes of the last list. Changes no status. */
  forgetList(server: string): void {
    this.#hashes.forget(server);
  }

  recordOf(server: string, tool: string): PinRecord | undefined {
    return this.#isTrusted(server) ? undefined : this.#recordsOf(server)?.get(tool);
  }

  /** True if this text is the approved version of its tool. The text need not come from a list. */
  isApprovedText(server: string, { key, raw }: PinItem): boolean {
    if (this.#isTrusted(server)) return true;
    const approved = this.#recordsOf(server)?.get(key)?.approved;
    return approved !== undefined && this.#hashes.of(raw)?.hash === approved.hash;
  }

  hashesOf(server: string, tool: string): { readonly oldHash?: string; readonly newHash?: string } {
    const { approved, pending } = this.recordOf(server, tool) ?? {};
    return {
      ...(approved === undefined ? {} : { oldHash: approved.hash }),
      ...(pending === undefined ? {} : { newHash: pending.hash }),
    };
  }

  /** Statuses from the store; undefined if the records are in memory or the store has no separate statuses. */
  #statusesOf(server: string): ReadonlyMap<string, PinStatus> | undefined {
    if (this.#byServer.has(server)) return undefined;
    const held = this.#statuses.get(server);
    if (held) return held;
    const loaded = this.#store.loadStatuses?.(server);
    if (loaded) this.#statuses.set(server, loaded);
    return loaded;
  }

  #recordsOf(server: string): Records | undefined {
    const held = this.#byServer.get(server);
    if (held) return held;
    const loaded = this.#store.load(server);
    if (!loaded) return undefined;
    return this.#hold(server, new Map(loaded.map((record) => [record.name, record])));
  }

  #hold(server: string, records: Records): Records {
    this.#byServer.set(server, records);
    this.#statuses.delete(server);
    return records;
  }

  /** Removes names that were never approved and are no longer listed; they would only return as new. */
  #makeRoom(records: Records, wanted: number): void {
    let surplus = records.size + wanted - this.#pinsMax;
    for (const { name, approved, isListed } of [...records.values()]) {
      if (surplus <= 0) return;
      if (approved || isListed) continue;
      records.delete(name);
      surplus--;
    }
  }

  /** If there is no room for a pin, a change could not be detected, so the name counts as changed. */
  #unpinned(records: ReadonlyMap<string, unknown> | undefined): PinStatus {
    return records && records.size >= this.#pinsMax ? 'changed' : 'new';
  }

  #report(
    listed: ReadonlyMap<string, Hashed>,
    before: ReadonlyMap<string, PinRecord>,
    records: Records,
    isFirstSight: boolean,
    onFirstSight: PinMode,
  ): PinReport {
    const tools = new Map<string, PinStatus>();
    const changes: PinChange[] = [];
    const judge = (tool: string, record: PinRecord | undefined): void => {
      const status = record ? pinStatus(record) : this.#unpinned(records);
      tools.set(tool, status);
      if (status === 'approved' && !(isFirstSight && onFirstSight === 'warn')) return;
      const old = before.get(tool);
      const isFresh = !old || pinStatus(old) !== status || old.pending?.hash !== record?.pending?.hash;
      changes.push({ tool, status, isFresh, record });
    };
    for (const tool of listed.keys()) judge(tool, records.get(tool));
    for (const [tool, record] of records) if (!listed.has(tool)) judge(tool, record);
    return { isFirstSight, isTrusted: false, tools, changes };
  }

  #save(server: string, records: Records): void {
    if (!this.#unsaved.has(server)) return;
    // The records stay valid in memory and are stored with the next list. The listing itself succeeds.
    const failed = (error: unknown) => {
      if (this.#byServer.has(server)) this.#unsaved.add(server);
      this.#onStoreError(error);
    };
    this.#unsaved.delete(server);
    const rows = [...records.values()];
    try {
      if (this.#store.saveSoon) this.#store.saveSoon(server, rows, failed);
      else this.#store.save(server, rows);
    } catch (error) {
      failed(error);
    }
  }
}

/** Comparing a long list at once would block the event loop. */
function boundedComparison(): ComparesWording {
  let bytes = 0;
  return (approved, listed) => {
    if (approved === '') return false;
    bytes += approved.length + listed.length;
    return bytes > comparedBytesMax ? undefined : differInWordingOnly(approved, listed);
  };
}

const shown = (text: string): string => neutraliseLine(text, LIMITS.quotedChars);

const notPinned = (server: string, tool: string, hint: string): HostError =>
  new HostError('tool_not_found', `server '${shown(server)}': tool '${shown(tool)}' has no pin`, {
    server,
    tool,
    hint,
  });

function notThatVersion(server: string, tool: string, { isAmbiguous, isListed, pending }: PinRecord): HostError {
  const why = isAmbiguous
    ? `has an ambiguous definition, or has more than ${LIMITS.toolValues} values`
    : !isListed
      ? 'is not listed now'
      : pending
        ? `is now listed with hash ${pending.hash}`
        : 'has no change to approve';
  return new HostError('schema_changed', `server '${shown(server)}': tool '${shown(tool)}' ${why}`, {
    server,
    tool,
    reason: 'changed',
    hint: isAmbiguous
      ? 'it cannot be approved; ask its author to list it once and to make it smaller'
      : 'look at the definition that is listed now, then approve its hash',
  });
}
