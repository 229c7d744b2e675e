/**
 * The listing of each server as clients may see it (facts and lists, from the current run, the last run or disk).
 * Not here: reading lists from a server (host/list-operations.ts, server-runs.ts), permissions of principals (policy/).
 *
 * Invariants: a new or changed tool without approval is never shown where the policy blocks it. A notified listener finds the
 * new listing. Listeners run in a later tick, once per server for all changes of one tick, and cannot disturb the caller.
 */
import { isStdio } from '../config/server-spec.js';
import { withoutThrowing } from '../kernel/problems.js';
import { pinRefusal } from '../policy/pin-stage.js';
import type { Pins } from '../policy/pins.js';
import type { ListedItem, ListMethod } from '../session/lists.js';
import type { CatalogServer, KnownFacts, KnownList, KnownServer } from './catalog-server.js';
import { hasSameInputs } from './server-origin.js';
import { emptyListing, type Listing, type ListingStore } from './store/listings-table.js';

interface ListingsParts {
  readonly findServer: (name: string) => CatalogServer | undefined;
  readonly pins: Pick<Pins, 'statusesOf' | 'recordOf'>;
  /** Undefined: listings are not stored. */
  readonly store: ListingStore | undefined;
  readonly onProblem: (error: unknown) => void;
}

export type ListHints = Pick<KnownList, 'ttlMs' | 'isPublic'>;

type Lists = ReadonlyMap<ListMethod, KnownList>;

interface ListingRecord {
  facts: KnownFacts | undefined;
  /** Lists as the server sent them. */
  readonly lists: Map<ListMethod, KnownList>;
  /** Lists in which blocked tools are removed or have their approved text; computed on demand. */
  shown: Lists | undefined;
  revision: number;
  isUnsaved: boolean;
  /** The lists belong to another account or to other variables, and were not read again yet. */
  isOutdated?: boolean | undefined;
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
    record.shown ??= this.#shown(server, record.lists);
    const { state } = server.supervisor.snapshot();
    return {
      definition: server.definition,
      state,
      // A suspect server is still connected; the next call verifies it.
      isReady: state === 'ready' || state === 'suspect',
      facts: record.facts,
      lists: record.shown,
      revision: record.revision,
    };
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
   * server. If variables or headers differ, the old listing is shown until the new server is listed. Other headers may belong
   * to another account: resources and prompts may be private, so only the tools are taken over.
   */
  restore(server: CatalogServer, before?: CatalogServer): readonly ListedItem[] {
    const { name, spec } = server.definition;
    const takeOver = this.#carried(server, before);
    const isOther = takeOver && before && !hasSameInputs(before.definition.spec, spec);
    const isOutdated = isOther || takeOver?.isOutdated;
    const { facts, lists: all } = takeOver ?? this.#load(server);
    const lists = isOther && !isStdio(spec) ? new Map([...all].filter(([method]) => method === 'tools/list')) : all;
    const revision = ++this.#revisions;
    const isUnsaved = takeOver?.isUnsaved ?? false;
    // Most idle servers have no listing: no record for them.
    if (facts || lists.size > 0)
      this.#records.set(server, { facts, lists: new Map(lists), shown: undefined, revision, isUnsaved, isOutdated });
    this.changed(name);
    return lists.get('tools/list')?.items ?? [];
  }

  /** Call it when an idle server has another account: its lists must be read again. */
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
    record.shown = this.#shown(server, record.lists);
    const is = record.shown.get('tools/list');
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
    const gone = [...record.lists.keys()].filter((method) => method !== 'tools/list' && !offered.includes(method));
    if (gone.length === 0 && record.facts && sameFacts(record.facts, facts)) return;
    record.facts = facts;
    for (const method of gone) record.lists.delete(method);
    if (gone.length > 0) record.shown = undefined;
    record.isUnsaved = true;
    this.#revise(server, record);
  }

  /** Stores a changed listing: one write for all lists of a run. After a failure the next list tries again. */
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

  #shown(server: CatalogServer, lists: Lists): Lists {
    const tools = lists.get('tools/list');
    if (!tools) return new Map(lists);
    return new Map(lists).set('tools/list', { ...tools, items: this.#shownTools(server, tools.items) });
  }

  #shownTools({ definition }: CatalogServer, items: readonly ListedItem[]): readonly ListedItem[] {
    const { pins } = this.#parts;
    const statusOf = pins.statusesOf(definition.name);
    /** Tools replaced by their approved text: a server may list a name twice. */
    const replaced = new Set<string>();
    const shown: ListedItem[] = [];
    for (const item of items) {
      const { key } = item;
      // A tool without a name cannot be called.
      if (key === '') continue;
      if (pinRefusal(statusOf(key), definition.pins) === undefined) shown.push(item);
      else if (!replaced.has(key)) {
        replaced.add(key);
        const text = pins.recordOf(definition.name, key)?.approved?.raw;
        if (text !== undefined) shown.push({ key, raw: Buffer.from(text) });
      }
    }
    return shown;
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

export const sameItems = (a: readonly ListedItem[], b: readonly ListedItem[]): boolean =>
  a === b || (a.length === b.length && a.every(({ key, raw }, i) => key === b[i]?.key && raw.equals(b[i].raw)));

const sameList = (a: KnownList, b: KnownList): boolean =>
  a.ttlMs === b.ttlMs && a.isPublic === b.isPublic && sameItems(a.items, b.items);

function sameFacts(a: KnownFacts, b: KnownFacts): boolean {
  const sameInfo = a.serverInfo === b.serverInfo || (a.serverInfo && b.serverInfo?.equals(a.serverInfo)) === true;
  const sameTexts = a.era === b.era && a.version === b.version && a.instructions === b.instructions;
  return sameInfo && sameTexts && a.capabilities.equals(b.capabilities);
}
