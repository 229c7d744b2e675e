/**
 * One list of an endpoint: the parts of its servers, joined under unique names. Views with the same parts share one table.
 * Not here: the content of a part (server-lists.ts), the bytes of a page (list-pages.ts).
 * Invariants: a name belongs to one entry. A list that fits one page has the order of the servers and of their own lists. A
 * longer list is paged by server and key. Changes of a list do not affect this order, so pages skip and repeat no item.
 */
import { hash } from 'node:crypto';
import { setBounded } from '../../kernel/bounded-map.js';
import type { Entry, ListPart } from './server-lists.js';
import { type ResourceTarget, uniqueNames, wrapUri } from './tool-names.js';

/** `names`: tools and prompts. `uris`: resources and templates. */
export type TableKind = 'names' | 'uris';

/** Reports a URI that two servers list. */
export type OnClash = (target: ResourceTarget, first: string) => void;

/** A page begins after this item, which may no longer exist. */
export interface Position {
  readonly server: string;
  readonly key: string;
}

const pageItemsMax = 2_000;
const pageBytesMax = 2 * 1024 * 1024;

let lastTable = 0;

export class Table {
  readonly id = ++lastTable;
  readonly entries: readonly Entry[];
  readonly byName: ReadonlyMap<string, Entry>;
  readonly ttlMs: number;
  readonly isPublic: boolean;
  /** URIs and templates that several servers list, with the names of these servers. */
  readonly shared: ReadonlyMap<string, readonly string[]>;
  readonly #parts: readonly ListPart[];
  #sorted: readonly Entry[] | undefined;
  #isOnePage: boolean | undefined;
  #pageStarts: ReadonlySet<number> | undefined;

  constructor(kind: TableKind, parts: readonly ListPart[], isAlone: boolean, ttlMs: number, isPublic: boolean) {
    const entries = parts.flatMap((part) => part.entries);
    const byName = new Map(entries.map((entry) => [entry.name, entry]));
    this.#parts = parts;
    this.ttlMs = ttlMs;
    this.isPublic = isPublic;
    this.shared = kind === 'uris' && byName.size < entries.length ? sharedUris(entries) : new Map();
    this.entries = entries;
    this.byName = byName;
    if (byName.size === entries.length) return;
    // Name collisions are rare. All other tables reuse the entries of their parts.
    const names = kind === 'names' ? toolNames(entries, isAlone) : entries.map((entry) => this.#uri(entry));
    this.entries = entries.map((entry, i) =>
      entry.name === names[i] ? entry : { ...entry, name: names[i] as string },
    );
    this.byName = new Map(this.entries.map((entry) => [entry.name, entry]));
  }

  get isOnePage(): boolean {
    this.#isOnePage ??= pageEnd(this.entries, 0) === this.entries.length;
    return this.#isOnePage;
  }

  /** Entries in the order of paging. */
  get sorted(): readonly Entry[] {
    this.#sorted ??= this.#sort();
    return this.#sorted;
  }

  /** Index in `sorted` of the first entry after `position`. */
  indexAfter(position: Position): number {
    let low = 0;
    let high = this.sorted.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (compare(this.sorted[middle] as Entry, position) <= 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** True if a reader that begins at the first page reaches this index of `sorted` as the start of a page. */
  isPageStart(index: number): boolean {
    this.#pageStarts ??= pageStarts(this.sorted);
    return this.#pageStarts.has(index);
  }

  /** A URI that two servers list is wrapped as `hostler://` for both. */
  #uri({ server, key: uri, name }: Entry): string {
    return this.shared.has(uri) ? wrapUri({ server, uri }) : name;
  }

  /** Joins the sorted parts, which tables share. Renamed entries are not in a part, so their table sorts again. */
  #sort(): readonly Entry[] {
    const runs = this.#parts.map(({ sorted }) => sorted).filter((run) => run.length > 0);
    const sorted = runs.sort(([a], [b]) => compare(a as Entry, b as Entry)).flat();
    const isRenamed = sorted.some((entry) => this.byName.get(entry.name) !== entry);
    return isRenamed ? [...this.entries].sort(compare) : sorted;
  }
}

/** Compares UTF-16 code units. */
function compare(a: Position, b: Position): number {
  if (a.server !== b.server) return a.server < b.server ? -1 : 1;
  return a.key === b.key ? 0 : a.key < b.key ? -1 : 1;
}

/** Returns the end of the page that begins at `start`. A page has at least one entry. */
export function pageEnd(entries: readonly Entry[], start: number): number {
  let bytes = 0;
  let end = start;
  for (; end < entries.length && end - start < pageItemsMax; end++) {
    bytes += (entries[end] as Entry).item.raw.length;
    if (bytes > pageBytesMax && end > start) break;
  }
  return end;
}

function pageStarts(entries: readonly Entry[]): ReadonlySet<number> {
  const starts = new Set<number>();
  for (let start = 0; start < entries.length; start = pageEnd(entries, start)) starts.add(start);
  return starts;
}

/** Maximum number of shared tables, including those that were garbage-collected. */
const internedMax = 1_024;
const keyCharsMax = 256;

export class Tables {
  readonly #tables = new Map<string, WeakRef<Table>>();
  readonly #onClash: OnClash;

  constructor(onClash: OnClash) {
    this.#onClash = onClash;
  }

  /** Returns the table of these parts, which another view may have built. `isAlone`: the endpoint has one server. */
  of(kind: TableKind, parts: readonly ListPart[], isAlone: boolean, ttlMs: number, isPublic: boolean): Table {
    const text = `${kind} ${isAlone} ${ttlMs} ${isPublic} ${parts.map(({ id }) => id).join(' ')}`;
    // A key outlives its table, so a long key is stored as a hash.
    const key = text.length <= keyCharsMax ? text : hash('sha256', text, 'base64url');
    const known = this.#tables.get(key)?.deref();
    if (known) return known;
    const table = new Table(kind, parts, isAlone, ttlMs, isPublic);
    for (const [uri, [first = '', ...others]] of table.shared)
      for (const server of others) this.#onClash({ server, uri }, first);
    setBounded(this.#tables, key, new WeakRef(table), internedMax);
    return table;
  }
}

function sharedUris(entries: readonly Entry[]): ReadonlyMap<string, readonly string[]> {
  const owners = new Map<string, string[]>();
  for (const { server, key: uri } of entries) owners.set(uri, [...(owners.get(uri) ?? []), server]);
  return new Map([...owners].filter(([, servers]) => servers.length > 1));
}

const toolNames = (entries: readonly Entry[], isAlone: boolean): string[] =>
  uniqueNames(
    entries.map(({ server, key, preferredName: wanted }) => ({ server, tool: key, name: wanted })),
    isAlone,
  );
