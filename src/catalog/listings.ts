/**
 * The listing of each server as clients may see it (facts and lists, from the current run, the last run or disk).
 * Not here: reading lists from a server (host/list-operations.ts, list-reader.ts), permissions of principals (policy/).
 *
 * Invariants: a new or changed tool without approval is never shown where the policy blocks it. A notified listener finds the
 * new listing. Listeners run in a later tick, once per server for all changes of one tick, and cannot disturb the caller.
 */
import { isStdio } from '../config/server-spec.js';
import { withoutThrowing } from '../kernel/problems.js';
import { showsApproved } from '../policy/pin-stage.js';
import type { Pins } from '../policy/pins.js';
import type { ListedItem, ListMethod } from '../session/lists.js';
import type { CatalogServer, KnownFacts, KnownList, KnownServer, ShownItem, ShownList } from './catalog-server.js';
import { checkItem, faultsIn, type ItemFault } from './list-repair.js';
import { repairNotes } from './repair-notes.js';
import { inputsHashOf } from './server-origin.js';
import { emptyListing, type Listing, type ListingStore } from './store/listings-table.js';

interface ListingsParts {
  readonly findServer: (name: string) => CatalogServer | undefined;
  readonly pins: Pick<Pins, 'statusesOf' | 'recordOf'>;
  /** Undefined: listings are not stored. */
  readonly store: ListingStore | undefined;
  readonly onProblem: (error: unknown) => void;
  /** Called when the repairs of a server's lists have changed, with a sentence for each kind. */
  readonly onRepaired?: (server: string, notes: readonly string[]) => void;
}

export type ListHints = Pick<KnownList, 'ttlMs' | 'isPublic'>;

type ShownLists = ReadonlyMap<ListMethod, ShownList>;
/** By method, then by name. */
type Faults = ReadonlyMap<ListMethod, ReadonlyMap<string, ItemFault>>;

interface ListingRecord {
  facts: KnownFacts | undefined;
  /** Lists as the server sent them. */
  readonly lists: Map<ListMethod, KnownList>;
  /** Lists in which blocked tools are removed or have their approved text, and faults are repaired; computed on demand. */
  shown: ShownLists | undefined;
  faults?: Faults | undefined;
  notes?: readonly string[] | undefined;
  revision: number;
  session?: number;
  isUnsaved: boolean;
  /** State of the server when `known` was last called: a stopped or disabled server shows no lists. */
  isOff?: boolean;
  /** The lists belong to another account or to other variables, and were not read again yet. */
  isOutdated?: boolean | undefined;
  /** Variables or headers with which the facts were read (server-origin.ts); undefined: unknown. */
  inputs?: string | undefined;
}

export class Listings {
  readonly #parts: ListingsParts;
  readonly #records = new WeakMap<CatalogServer, ListingRecord>();
  readonly #listeners = new Set<(server: string) => void>();
  /** Changed servers, until the listeners are notified. */
  readonly #changed = new Set<string>();
  /** One counter for all servers: a replacement never repeats a revision of the replaced server. */
  #revisions = 0;

  constructor(parts: ListingsParts) {
    this.#parts = parts;
  }

  known(name: string): KnownServer | undefined {
    const server = this.#parts.findServer(name);
    if (!server) return undefined;
    const record = this.#recordOf(server);
    const { state, isOff } = server.supervisor.snapshot();
    if (isOff !== (record.isOff ?? false)) {
      record.isOff = isOff;
      record.revision = ++this.#revisions;
    }
    const lists = isOff ? noLists : this.#show(server, record);
    return {
      definition: server.definition,
      state,
      // A suspect server is still connected; the next call verifies it.
      isReady: state === 'ready' || state === 'suspect',
      facts: record.facts,
      lists,
      revision: record.revision,
      session: record.session ?? 0,
    };
  }

  /** One sentence for each kind of repair of the server's lists. */
  notesOf(name: string): readonly string[] {
    return this.#shownRecord(name)?.notes ?? [];
  }

  /** What was repaired in the tool, or why it is left out; undefined if it has no fault. */
  faultOf(name: string, tool: string): ItemFault | undefined {
    return this.#shownRecord(name)?.faults?.get('tools/list')?.get(tool);
  }

  /** True: the server ran with its present definition, or its tools are known. */
  wasListed(server: CatalogServer): boolean {
    const record = this.#records.get(server);
    if (record?.isOutdated) return false;
    return server.tools.length > 0 || record?.facts !== undefined;
  }

  /** True: the tool list is known, even if it is empty. */
  hasTools(server: CatalogServer): boolean {
    return this.#records.get(server)?.lists.has('tools/list') ?? false;
  }

  onChanged(listener: (server: string) => void): () => void {
    // A new function per call: a listener that was added twice can be removed once.
    const own = (server: string) => listener(server);
    this.#listeners.add(own);
    return () => this.#listeners.delete(own);
  }

  /** Notifies the listeners in a later tick. */
  changed(server: string): void {
    if (this.#listeners.size === 0) return;
    this.#changed.add(server);
    if (this.#changed.size === 1) queueMicrotask(() => this.#notify());
  }

  /**
   * Takes over the listing of the same program or address under this name, and returns its tools. `before`: the replaced
   * server; without it, the stored listing is taken over. If variables or headers differ, the old listing is shown until the new server
   * is listed. Other headers may belong to another account: resources and prompts may be private, so only the tools are taken over.
   */
  restore(server: CatalogServer, before?: CatalogServer): readonly ListedItem[] {
    const { name, spec } = server.definition;
    const takeOver = this.#carried(server, before);
    const { facts, lists: all, inputs } = takeOver ?? this.#load(server);
    const isOther = inputs !== undefined && inputs !== inputsHashOf(spec);
    const isOutdated = isOther || takeOver?.isOutdated;
    const lists = isOther && !isStdio(spec) ? new Map([...all].filter(([method]) => method === 'tools/list')) : all;
    const revision = ++this.#revisions;
    const isUnsaved = takeOver?.isUnsaved ?? false;
    // Most idle servers have no listing, so they get no record.
    if (facts || lists.size > 0)
      this.#records.set(server, {
        facts,
        lists: new Map(lists),
        shown: undefined,
        revision,
        isUnsaved,
        isOutdated,
        inputs,
      });
    this.changed(name);
    return lists.get('tools/list')?.items ?? [];
  }

  /** Call it when Hostler has another account at an idle server: its lists must be read again. */
  markOutdated(server: CatalogServer): void {
    const record = this.#records.get(server);
    if (record) record.isOutdated = true;
  }

  /** `hints` undefined: the list is the same, but the pins differ. */
  learnTools(server: CatalogServer, items: readonly ListedItem[], hints: ListHints | undefined): void {
    const record = this.#recordOf(server);
    const before = record.lists.get('tools/list');
    const { ttlMs = 0, isPublic = false } = hints ?? before ?? {};
    const list = { items, ttlMs, isPublic };
    const was = record.shown?.get('tools/list');
    const isNews = !before || !sameList(before, list);
    if (isNews) record.lists.set('tools/list', list);
    record.shown = undefined;
    const is = this.#show(server, record).get('tools/list');
    if (!was || !is || !sameList(was, is)) this.#revise(server, record);
    // A change of the pins invalidates the stored listing, even if the list is the same.
    if (isNews || !this.#isStored(server)) record.isUnsaved = true;
    this.save(server);
  }

  /** Sets a list other than tools in memory; `save` stores it. */
  learnList(server: CatalogServer, method: ListMethod, list: KnownList): void {
    const record = this.#recordOf(server);
    const before = record.lists.get(method);
    if (before && sameList(before, list)) return;
    record.lists.set(method, list);
    record.shown = undefined;
    record.isUnsaved = true;
    this.#revise(server, record);
  }

  /** `offered`: lists that the server offers beside tools; other known lists are dropped. `save` stores the change. */
  learnFacts(server: CatalogServer, facts: KnownFacts, offered: readonly ListMethod[]): void {
    const record = this.#recordOf(server);
    record.isOutdated = false;
    record.session = ++this.#revisions;
    const inputs = inputsHashOf(server.definition.spec);
    if (record.inputs !== inputs) record.isUnsaved = true;
    record.inputs = inputs;
    const gone = [...record.lists.keys()].filter((method) => method !== 'tools/list' && !offered.includes(method));
    if (gone.length === 0 && record.facts && sameFacts(record.facts, facts)) return;
    record.facts = facts;
    for (const method of gone) record.lists.delete(method);
    if (gone.length > 0) record.shown = undefined;
    record.isUnsaved = true;
    this.#revise(server, record);
  }

  /**
   * Stores a changed listing: one write for all lists of a run. If the write fails, the listing is written again with the next change of a
   * list.
   */
  save(server: CatalogServer): void {
    const { findServer, store, onProblem } = this.#parts;
    const { name } = server.definition;
    const { listsOrigin } = server;
    const record = this.#records.get(server);
    // A replaced server must not write under the name of its successor.
    if (!record?.isUnsaved || findServer(name) !== server) return;
    record.isUnsaved = false;
    store?.save(name, listsOrigin, record, (why) => {
      // A replacement of this server may have taken over the listing.
      const now = findServer(name);
      const heir = now?.listsOrigin === listsOrigin ? this.#records.get(now) : undefined;
      if (heir) heir.isUnsaved = true;
      if (why !== 'pins') onProblem(why.error);
    });
  }

  #isStored({ definition, listsOrigin }: CatalogServer): boolean {
    try {
      return this.#parts.store?.isStored(definition.name, listsOrigin) ?? true;
    } catch (error) {
      this.#parts.onProblem(error);
      return true;
    }
  }

  #recordOf(server: CatalogServer): ListingRecord {
    let record = this.#records.get(server);
    if (!record) {
      const revision = ++this.#revisions;
      record = { facts: undefined, lists: new Map(), shown: undefined, revision, isUnsaved: false };
      this.#records.set(server, record);
    }
    return record;
  }

  #shownRecord(name: string): ListingRecord | undefined {
    const server = this.#parts.findServer(name);
    const record = server && this.#records.get(server);
    if (record) this.#show(server, record);
    return record;
  }

  #show(server: CatalogServer, record: ListingRecord): ShownLists {
    if (record.shown) return record.shown;
    const shown = new Map<ListMethod, ShownList>();
    const faults = new Map<ListMethod, Map<string, ItemFault>>();
    for (const [method, list] of record.lists) {
      const found = new Map<string, ItemFault>();
      const items = this.#shownItems(server, method, list.items, (key, fault) => found.set(key, fault));
      shown.set(method, items === list.items ? list : { ...list, items });
      if (found.size > 0) faults.set(method, found);
    }
    record.shown = shown;
    this.#noteFaults(server, record, faults);
    return shown;
  }

  #shownItems(
    { definition: { name, pins: policy, repair } }: CatalogServer,
    method: ListMethod,
    items: readonly ListedItem[],
    onFault: (key: string, fault: ItemFault) => void,
  ): readonly ShownItem[] {
    const { pins } = this.#parts;
    const isTools = method === 'tools/list';
    const statusOf = isTools ? pins.statusesOf(name) : undefined;
    const faults = repair ? faultsIn(method, items) : undefined;
    // Nearly all lists have no fault and no blocked tool.
    const isBlocked = ({ key }: ListedItem) => statusOf !== undefined && showsApproved(statusOf(key), policy);
    if ((faults?.size ?? 0) === 0 && !items.some((item) => item.key === '' || isBlocked(item))) return items;
    /** Tools replaced by their approved text: a server may list a name twice. */
    const replaced = new Set<string>();
    return items.flatMap((item): readonly ShownItem[] => {
      const { key } = item;
      let shown: ListedItem = item;
      let fault = faults?.get(item);
      if (isTools && key !== '' && isBlocked(item)) {
        const text = replaced.has(key) ? undefined : pins.recordOf(name, key)?.approved?.raw;
        replaced.add(key);
        if (text === undefined) return [];
        shown = { key, raw: Buffer.from(text) };
        fault = repair ? checkItem(method, shown) : undefined;
      }
      if (fault && fault.fields.length > 0) onFault(key, fault);
      if (fault) return fault.item ? [fault.item] : [];
      // An item without a name cannot be requested.
      return isTools && key === '' ? [] : [shown];
    });
  }

  #noteFaults({ definition: { name } }: CatalogServer, record: ListingRecord, faults: Faults): void {
    record.faults = faults.size > 0 ? faults : undefined;
    const notes = repairNotes(faults);
    const isNews = notes.join() !== (record.notes ?? []).join();
    record.notes = notes.length > 0 ? notes : undefined;
    if (isNews && notes.length > 0) this.#parts.onRepaired?.(name, notes);
  }

  #revise({ definition }: CatalogServer, record: ListingRecord): void {
    record.revision = ++this.#revisions;
    this.changed(definition.name);
  }

  #notify(): void {
    const servers = [...this.#changed];
    this.#changed.clear();
    const report = withoutThrowing(this.#parts.onProblem);
    for (const server of servers)
      for (const listener of [...this.#listeners]) {
        try {
          // The listener may be an async function.
          void Promise.resolve(listener(server) as unknown).catch(report);
        } catch (error) {
          report(error);
        }
      }
  }

  #carried(server: CatalogServer, before: CatalogServer | undefined): ListingRecord | undefined {
    if (before?.origin !== server.origin) return undefined;
    // Lists that were read with pins off were never compared with pins: with pins on, they are read again.
    const isCompared = before.listsOrigin === before.origin || server.listsOrigin !== server.origin;
    return isCompared ? this.#records.get(before) : undefined;
  }

  #load({ definition: { name }, origin, listsOrigin }: CatalogServer): Listing {
    const { store } = this.#parts;
    try {
      const own = store?.load(name, listsOrigin) ?? emptyListing;
      const isEmpty = own.facts === undefined && own.lists.size === 0;
      // A server without pins may use a list that was compared with pins.
      return isEmpty && listsOrigin !== origin ? (store?.load(name, origin) ?? emptyListing) : own;
    } catch (error) {
      this.#parts.onProblem(error);
      return emptyListing;
    }
  }
}

const noLists: ShownLists = new Map();

export const sameItems = (a: readonly ListedItem[], b: readonly ListedItem[]): boolean =>
  a === b || (a.length === b.length && a.every(({ key, raw }, i) => key === b[i]?.key && raw.equals(b[i].raw)));

const sameList = (a: KnownList, b: KnownList): boolean =>
  a.ttlMs === b.ttlMs && a.isPublic === b.isPublic && sameItems(a.items, b.items);

function sameFacts(a: KnownFacts, b: KnownFacts): boolean {
  const sameInfo = a.serverInfo === b.serverInfo || (a.serverInfo && b.serverInfo?.equals(a.serverInfo)) === true;
  const sameTexts = a.era === b.era && a.version === b.version && a.instructions === b.instructions;
  return sameInfo && sameTexts && a.capabilities.equals(b.capabilities);
}
