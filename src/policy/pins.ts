/**
 * Which of a server's definitions an operator has agreed to, and which differ from that.
 * Each list a server gives is compared with what is pinned; a difference stays flagged, list after list, until exactly the
 * version that is now listed gets approved. The approved text is kept, so that it can be shown beside the new one.
 * Not here: how one record changes (pin-records.ts), what a flag means for a call (pin-stage.ts), where pins are kept
 * (pin-records.ts).
 *
 * Invariants: only `approve` and first sight make a version approved; what cannot be pinned counts as changed; the report
 * and `statusOf` give every name the same status.
 */
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import type { PinKind } from './pin-hash.js';
import { type Hashed, PinHashes, type PinItem } from './pin-hash.js';
import {
  agreed,
  bodiesOf,
  firstSeen,
  type PinRecord,
  type PinStatus,
  type PinStore,
  pinStatus,
  relisted,
  sameRecords,
  vanished,
} from './pin-records.js';

/** `block` refuses calls, `warn` only reports, `off` does nothing. */
export type PinMode = 'block' | 'warn' | 'off';

export interface PinPolicy {
  /** A server, or a tool of a known server, that was never seen. */
  readonly onFirstSight: PinMode;
  /** A definition that differs from the approved one, or goes by another name. */
  readonly onChange: PinMode;
}

export const defaultPinPolicy: PinPolicy = { onFirstSight: 'warn', onChange: 'block' };

/** `pins: "off"`: the operator trusts the server, whatever it lists. */
export const trustsEverything = ({ onFirstSight, onChange }: PinPolicy): boolean =>
  onFirstSight === 'off' && onChange === 'off';

export interface PinOptions {
  readonly store: PinStore;
  /** Asked each time, so that a change of the configuration counts at once. */
  readonly policyOf?: (server: string) => PinPolicy;
  /** A trusted server is never flagged, counted or reported, and nothing of it is pinned. Asked each time. */
  readonly isTrusted?: (server: string) => boolean;
  readonly kind?: PinKind;
  readonly pinsMax?: number;
  /** A list could not be written down; an approval that cannot be is thrown. */
  readonly onStoreError?: (error: unknown) => void;
}

export type { PinItem };

export interface PinChange {
  readonly tool: string;
  readonly status: PinStatus;
  /** Whether this list brought it; false when the one before had the same to say. */
  readonly isFresh: boolean;
  /** Undefined when the name is beyond the number of pins kept. */
  readonly record: PinRecord | undefined;
}

export interface PinReport {
  readonly isFirstSight: boolean;
  /** Nothing was compared. */
  readonly isTrusted: boolean;
  /** Every name that is listed or pinned. */
  readonly tools: ReadonlyMap<string, PinStatus>;
  /** What an operator should see: all that is not approved, and on first sight what was approved unseen. */
  readonly changes: readonly PinChange[];
}

type Records = Map<string, PinRecord>;

export class Pins {
  readonly #store: PinStore;
  readonly #policyOf: (server: string) => PinPolicy;
  readonly #isTrusted: (server: string) => boolean;
  readonly #hashes: PinHashes;
  readonly #pinsMax: number;
  readonly #byServer = new Map<string, Records>();
  /** Servers whose records were not needed yet. */
  readonly #statuses = new Map<string, ReadonlyMap<string, PinStatus>>();
  /** How many tools differ, by server, until its records change; counted when asked for. */
  readonly #differing = new Map<string, number>();
  /** Servers whose records the store has not taken yet. */
  readonly #unsaved = new Set<string>();
  readonly #onStoreError: (error: unknown) => void;

  constructor({ store, policyOf, isTrusted, kind, pinsMax, onStoreError }: PinOptions) {
    this.#store = store;
    this.#policyOf = policyOf ?? (() => defaultPinPolicy);
    this.#isTrusted = isTrusted ?? (() => false);
    this.#hashes = new PinHashes(kind ?? 'tool');
    this.#pinsMax = pinsMax ?? 10_000;
    this.#onStoreError = onStoreError ?? (() => {});
  }

  /**
   * Does what takes long about a list, a little at a time; undefined when there is little to do. The list is judged by
   * `observe` as before: until then it counts as one that has not come in.
   */
  prepare(server: string, items: readonly PinItem[]): Promise<void> | undefined {
    return this.#isTrusted(server) ? undefined : this.#hashes.ahead(server, items);
  }

  /** `items` is one whole list. Items without a name are passed over: they cannot be called. */
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

    for (const record of before.values()) {
      const item = listed.get(record.name);
      // Only ever seen without one meaning: what it is now, it is for the first time.
      if (item?.hashes && !record.approved && record.firstHash === undefined) records.delete(record.name);
      else {
        const next = item ? relisted(record, item, at) : vanished(record);
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
        records.set(name, firstSeen(name, item, bodies, isApproved, at));
      }
    }

    // In memory first: a store that fails must not leave a changed tool looking clean.
    this.#hold(server, records);
    this.#differing.delete(server);
    if (!known || !sameRecords(before, records)) this.#unsaved.add(server);
    const report = this.#report(listed, before, records, !known, onFirstSight);
    this.#save(server, records);
    return report;
  }

  /** Approves the version that is listed now, if that is the one with this hash. */
  approve(server: string, tool: string, hash: string, now: Date): void {
    if (this.#isTrusted(server))
      throw notPinned(server, tool, 'pins are off for this server: its tools need no approval');
    const records = this.#recordsOf(server);
    const record = records?.get(tool);
    if (!records || !record) throw notPinned(server, tool, 'list the tools of the server first');
    const { approved, pending, isAmbiguous, isListed } = record;
    if (!isAmbiguous && !pending && approved?.hash === hash) return;
    if (isAmbiguous || !isListed || pending?.hash !== hash) throw notThatVersion(server, tool, record);
    const next = new Map(records).set(tool, agreed(record, { ...pending, at: now.toISOString() }));
    // To the store first: an approval that is not kept would be gone after a restart.
    this.#store.save(server, [...next.values()]);
    this.#hold(server, next);
    this.#differing.delete(server);
    this.#unsaved.delete(server);
  }

  /** A name that was never listed is new. */
  statusOf(server: string, tool: string): PinStatus {
    if (this.#isTrusted(server)) return 'approved';
    const statuses = this.#statusesOf(server);
    return statuses ? this.#among(statuses, tool) : this.#amongRecords(this.#recordsOf(server), tool);
  }

  /** The same for many tools, which are looked for in one place. */
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

  /** How many of a server's tools differ from what was approved: changed, or known under another name. */
  differingOf(server: string): number {
    if (this.#isTrusted(server)) return 0;
    const known = this.#differing.get(server);
    if (known !== undefined) return known;
    let count = 0;
    for (const record of this.#recordsOf(server)?.values() ?? []) {
      const status = pinStatus(record);
      if (status === 'changed' || status === 'renamed') count++;
    }
    this.#differing.set(server, count);
    return count;
  }

  /**
   * Another server has taken the name: what is known of it comes from the store. `isSame`: it is the same one with other settings,
   * so what is known here counts, which the store may not have yet, or may fail to take.
   */
  forget(server: string, isSame = false): void {
    if (isSame && this.#byServer.has(server)) return;
    this.#byServer.delete(server);
    this.#statuses.delete(server);
    this.#unsaved.delete(server);
    this.#differing.delete(server);
    this.forgetList(server);
  }

  /** Its last list is not needed to compare the next one with. Changes no status. */
  forgetList(server: string): void {
    this.#hashes.forget(server);
  }

  /** Both versions with their texts, to show what changed; undefined for a trusted server. */
  recordOf(server: string, tool: string): PinRecord | undefined {
    return this.#isTrusted(server) ? undefined : this.#recordsOf(server)?.get(tool);
  }

  /** Whether this very text is the approved version of its tool, whatever list it comes from. */
  isApprovedText(server: string, { key, raw }: PinItem): boolean {
    if (this.#isTrusted(server)) return true;
    const approved = this.#recordsOf(server)?.get(key)?.approved;
    return approved !== undefined && this.#hashes.of(raw)?.hash === approved.hash;
  }

  /** Hashes of the approved version and of the one that waits for approval. */
  hashesOf(server: string, tool: string): { readonly oldHash?: string; readonly newHash?: string } {
    const { approved, pending } = this.recordOf(server, tool) ?? {};
    return {
      ...(approved === undefined ? {} : { oldHash: approved.hash }),
      ...(pending === undefined ? {} : { newHash: pending.hash }),
    };
  }

  /** As they are in the store; undefined when the records are here, or the store has them in no other form. */
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

  /** Names that were never approved and are gone make way; they would only come back as new. */
  #makeRoom(records: Records, wanted: number): void {
    let surplus = records.size + wanted - this.#pinsMax;
    for (const { name, approved, isListed } of [...records.values()]) {
      if (surplus <= 0) return;
      if (approved || isListed) continue;
      records.delete(name);
      surplus--;
    }
  }

  /** When there is no room to pin a name, a change of it could not be seen. */
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
    // It holds here, and is tried again with the next list. The listing itself succeeds.
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

const shown = (text: string): string => neutraliseLine(text, LIMITS.quotedChars);

const notPinned = (server: string, tool: string, hint: string): HostError =>
  new HostError('tool_not_found', `server '${shown(server)}': nothing is pinned for '${shown(tool)}'`, {
    server,
    tool,
    hint,
  });

function notThatVersion(server: string, tool: string, { isAmbiguous, isListed, pending }: PinRecord): HostError {
  const why = isAmbiguous
    ? `is listed with more than one meaning, or has more than ${LIMITS.toolValues} values`
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
      ? 'it cannot be approved as it is; ask its author to list it once, and with less in it'
      : 'look at the definition that is listed now, then approve its hash',
  });
}
