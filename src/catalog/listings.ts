/**
 * What can be said of each server at once, whether it runs or not: its facts and its lists as they may be shown, from the last
 * run or from disk; and who is told when any of it changed.
 * Not here: reading any of it from a server (catalogue.ts, server-runs.ts), who may see what of it (catalogue.ts, policy/).
 *
 * Invariants: what a tool was changed to without approval is never shown, nor one that nobody approved, where the policy is
 * to block them; whoever is told of a change finds what it changed to; listeners are told in a tick of their own, once for
 * all that changed of a server in this one, and cannot disturb whoever changed it.
 */
import { isStdio } from '../config/server-spec.js';
import { quietly } from '../kernel/problems.js';
import { type PinRefusal, pinRefusal } from '../policy/pin-stage.js';
import type { Pins } from '../policy/pins.js';
import type { ListedItem, ListMethod } from '../session/lists.js';
import type { CatalogServer, KnownFacts, KnownList, KnownServer } from './catalog-server.js';
import { isGivenSame } from './server-origin.js';
import { emptyListing, type Listing, type ListingStore } from './store/listings-table.js';

export interface ListingsParts {
  readonly findServer: (name: string) => CatalogServer | undefined;
  readonly pins: Pick<Pins, 'statusesOf' | 'recordOf'>;
  /** Undefined: nothing outlives the host. */
  readonly store: ListingStore | undefined;
  readonly onProblem: (error: unknown) => void;
}

/** How long a list may be kept, as its server said. */
export type ListHints = Pick<KnownList, 'ttlMs' | 'isPublic'>;

/** What is known of one server. */
interface KnownRecord {
  facts: KnownFacts | undefined;
  /** As the server wrote them. */
  readonly lists: Map<ListMethod, KnownList>;
  /** With the tools as they may be shown; made when it is asked for. */
  shown: ReadonlyMap<ListMethod, KnownList> | undefined;
  revision: number;
  /** Not written down yet. */
  isUnsaved: boolean;
  /** Read for another account, or with other variables, and not read again yet. */
  isOutdated?: boolean | undefined;
}

export class Listings {
  readonly #parts: ListingsParts;
  readonly #records = new WeakMap<CatalogServer, KnownRecord>();
  readonly #listeners = new Set<(server: string) => void>();
  /** Changed, and not told yet. */
  readonly #untold = new Set<string>();
  /** One count for all: a server that takes the name of another is never taken for it. */
  #revisions = 0;

  constructor(parts: ListingsParts) {
    this.#parts = parts;
  }

  /** Undefined when there is no such server. */
  known(server: string): KnownServer | undefined {
    const managed = this.#parts.findServer(server);
    if (!managed) return undefined;
    const record = this.#recordOf(managed);
    record.shown ??= this.#shown(server, managed, record.lists);
    const { state } = managed.supervisor.snapshot();
    return {
      definition: managed.definition,
      state,
      // A suspect still has its connection, and is spoken to as soon as anybody wants to.
      isReady: state === 'ready' || state === 'suspect',
      facts: record.facts,
      lists: record.shown,
      revision: record.revision,
    };
  }

  /** Whether it ever ran as it is defined now, or said what its tools are. */
  isSeen(managed: CatalogServer): boolean {
    const record = this.#records.get(managed);
    if (record?.isOutdated) return false;
    return managed.tools.length > 0 || record?.facts !== undefined;
  }

  /** Whether it has said, now or before, which tools it has, if only that it has none. */
  hasTools(managed: CatalogServer): boolean {
    return this.#records.get(managed)?.lists.has('tools/list') ?? false;
  }

  /** Returns what ends it. */
  onChanged(listener: (server: string) => void): () => void {
    // A function of its own: the same listener may be put on twice, and each time be taken off alone.
    const own = (server: string) => listener(server);
    this.#listeners.add(own);
    return () => this.#listeners.delete(own);
  }

  /** Something about the server is not as it was. */
  changed(server: string): void {
    if (this.#listeners.size === 0) return;
    this.#untold.add(server);
    if (this.#untold.size === 1) queueMicrotask(() => this.#tell());
  }

  // --- what is learnt

  /**
   * What was known of the same program or address when it last ran under this name, however it was configured; returns its
   * tools. `before`: the one in whose place it is put. What is shown stays until the new one has said what it offers, which it is
   * asked for soon when it is given other variables or headers. Headers are the token of an account: with others, names of
   * resources and prompts, which may be private to it, are not shown any more.
   */
  recall(managed: CatalogServer, before?: CatalogServer): readonly ListedItem[] {
    const { name } = managed.definition;
    const carried = this.#carried(managed, before);
    const { spec } = managed.definition;
    const isOther = carried && before && !isGivenSame(before.definition.spec, spec);
    const isOutdated = isOther || carried?.isOutdated;
    const { facts, lists: all } = carried ?? this.#load(managed);
    const lists = isOther && !isStdio(spec) ? new Map([...all].filter(([method]) => method === 'tools/list')) : all;
    const revision = ++this.#revisions;
    const isUnsaved = carried?.isUnsaved ?? false;
    // Of many servers at rest nothing is known: they take no room here.
    if (facts || lists.size > 0)
      this.#records.set(managed, { facts, lists: new Map(lists), shown: undefined, revision, isUnsaved, isOutdated });
    this.changed(name);
    return lists.get('tools/list')?.items ?? [];
  }

  /** It has another account by now, and does not run: what it lists is to be read again. */
  outdate(managed: CatalogServer): void {
    const record = this.#records.get(managed);
    if (record) record.isOutdated = true;
  }

  /** `hints` undefined: the same list as before, judged anew. */
  learnTools(managed: CatalogServer, items: readonly ListedItem[], hints: ListHints | undefined): void {
    const record = this.#recordOf(managed);
    const before = record.lists.get('tools/list');
    const list = { items, ...hintsOf(hints ?? before) };
    const shown = record.shown;
    const isNews = !before || !sameList(before, list);
    if (isNews) record.lists.set('tools/list', list);
    record.shown = this.#shown(managed.definition.name, managed, record.lists);
    const [was, is] = [shown, record.shown].map((lists) => lists?.get('tools/list'));
    if (!was || !is || !sameList(was, is)) this.#told(managed, record);
    // What is kept goes with each change of the pins that judge it, also where the list is the same.
    if (isNews || !this.#isKept(managed)) record.isUnsaved = true;
    this.keep(managed);
  }

  /** Any list but that of the tools. Written down with `keep`. */
  learnList(managed: CatalogServer, method: ListMethod, list: KnownList): void {
    const record = this.#recordOf(managed);
    const before = record.lists.get(method);
    if (before && sameList(before, list)) return;
    record.lists.set(method, list);
    record.shown = undefined;
    this.#bump(managed, record);
  }

  /** `offered`: lists beside the tools that it has now; others that it had once are forgotten. Written down with `keep`. */
  learnFacts(managed: CatalogServer, facts: KnownFacts, offered: readonly ListMethod[]): void {
    const record = this.#recordOf(managed);
    record.isOutdated = false;
    const gone = [...record.lists.keys()].filter((method) => method !== 'tools/list' && !offered.includes(method));
    if (gone.length === 0 && record.facts && sameFacts(record.facts, facts)) return;
    record.facts = facts;
    for (const method of gone) record.lists.delete(method);
    if (gone.length > 0) record.shown = undefined;
    this.#bump(managed, record);
  }

  /**
   * Writes down what is new: apart from learning it, so that the lists of a run are one write. That it cannot be written is
   * no fault of the server: it is known here all the same, and written when the tools are listed again.
   */
  keep(managed: CatalogServer): void {
    const { definition, listsOrigin } = managed;
    const record = this.#records.get(managed);
    // Of one that was replaced meanwhile nothing is kept: its name is another's.
    if (!record?.isUnsaved || this.#parts.findServer(definition.name) !== managed) return;
    record.isUnsaved = false;
    this.#parts.store?.save(definition.name, listsOrigin, record, (why) => {
      // It may have been replaced meanwhile, and what it knew is the other's now.
      const now = this.#parts.findServer(definition.name);
      const heir = now?.listsOrigin === listsOrigin ? this.#records.get(now) : undefined;
      if (heir) heir.isUnsaved = true;
      // Of pins their own store has told.
      if (why !== 'pins') this.#parts.onProblem(why.error);
    });
  }

  // --- inside

  #isKept({ definition, listsOrigin }: CatalogServer): boolean {
    try {
      return this.#parts.store?.isKept(definition.name, listsOrigin) ?? true;
    } catch (error) {
      this.#parts.onProblem(error);
      return true;
    }
  }

  #recordOf(managed: CatalogServer): KnownRecord {
    let record = this.#records.get(managed);
    if (!record) {
      const revision = ++this.#revisions;
      record = { facts: undefined, lists: new Map(), shown: undefined, revision, isUnsaved: false };
      this.#records.set(managed, record);
    }
    return record;
  }

  #shown(
    server: string,
    managed: CatalogServer,
    lists: ReadonlyMap<ListMethod, KnownList>,
  ): ReadonlyMap<ListMethod, KnownList> {
    const tools = lists.get('tools/list');
    if (!tools) return new Map(lists);
    return new Map(lists).set('tools/list', { ...tools, items: this.#shownTools(server, managed, tools.items) });
  }

  #shownTools(server: string, { definition }: CatalogServer, items: readonly ListedItem[]): readonly ListedItem[] {
    const { pins } = this.#parts;
    const statusOf = pins.statusesOf(server);
    /** Those that are shown as they were approved. A name may be listed twice. */
    const stoodFor = new Set<string>();
    const shown: ListedItem[] = [];
    for (const item of items) {
      const { key } = item;
      // Nobody can call it.
      if (key === '') continue;
      const refusal: PinRefusal | undefined = pinRefusal(statusOf(key), definition.pins);
      if (refusal === undefined) shown.push(item);
      else if (!stoodFor.has(key)) {
        stoodFor.add(key);
        const text = pins.recordOf(server, key)?.approved?.raw;
        if (text !== undefined) shown.push({ key, raw: Buffer.from(text) });
      }
    }
    return shown;
  }

  /** What is written down is another now. */
  #bump(managed: CatalogServer, record: KnownRecord): void {
    record.isUnsaved = true;
    this.#told(managed, record);
  }

  /** What is shown is another now. */
  #told({ definition }: CatalogServer, record: KnownRecord): void {
    record.revision = ++this.#revisions;
    this.changed(definition.name);
  }

  #tell(): void {
    const servers = [...this.#untold];
    this.#untold.clear();
    for (const server of servers) for (const listener of [...this.#listeners]) this.#tellOne(listener, server);
  }

  #tellOne(listener: (server: string) => void, server: string): void {
    try {
      // It may have been written as an async function.
      void Promise.resolve(listener(server) as unknown).catch(quietly(this.#parts.onProblem));
    } catch (error) {
      quietly(this.#parts.onProblem)(error);
    }
  }

  #carried(managed: CatalogServer, before: CatalogServer | undefined): KnownRecord | undefined {
    if (before?.origin !== managed.origin) return undefined;
    // Pins are on again: what was listed without them was compared with nothing, and is read anew.
    const isCompared = before.listsOrigin === before.origin || managed.listsOrigin !== managed.origin;
    return isCompared ? this.#records.get(before) : undefined;
  }

  #load({ definition: { name }, origin, listsOrigin }: CatalogServer): Listing {
    const { store } = this.#parts;
    try {
      const own = store?.load(name, listsOrigin) ?? emptyListing;
      const isEmpty = own.facts === undefined && own.lists.size === 0;
      // A list that was compared with pins is good enough for a server without them.
      return isEmpty && listsOrigin !== origin ? (store?.load(name, origin) ?? emptyListing) : own;
    } catch (error) {
      // What is not known is read again.
      this.#parts.onProblem(error);
      return emptyListing;
    }
  }
}

const hintsOf = (hints: ListHints | undefined): ListHints => ({
  ttlMs: hints?.ttlMs ?? 0,
  isPublic: hints?.isPublic ?? false,
});

export const sameItems = (a: readonly ListedItem[], b: readonly ListedItem[]): boolean =>
  a === b || (a.length === b.length && a.every(({ key, raw }, i) => key === b[i]?.key && raw.equals(b[i].raw)));

const sameList = (a: KnownList, b: KnownList): boolean =>
  a.ttlMs === b.ttlMs && a.isPublic === b.isPublic && sameItems(a.items, b.items);

function sameFacts(a: KnownFacts, b: KnownFacts): boolean {
  const sameInfo = a.serverInfo === b.serverInfo || (a.serverInfo && b.serverInfo?.equals(a.serverInfo)) === true;
  const sameWords = a.era === b.era && a.version === b.version && a.instructions === b.instructions;
  return sameInfo && sameWords && a.capabilities.equals(b.capabilities);
}
