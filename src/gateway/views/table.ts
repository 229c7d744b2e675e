/**
 * One list as some view shows it. Views that show the same share one: a thousand principals of one role cost as much as one.
 * Not here: what is in it (view.ts), its bytes (prepared-list.ts).
 * Invariant: two tables with the same digest hold the same items of the same servers under the same names.
 */
import { createHash, hash } from 'node:crypto';
import { setBounded } from '../../kernel/bounded-map.js';
import type { ListedItem } from '../../session/lists.js';

/** One item of a list, as it is shown. */
export interface Entry {
  readonly server: string;
  /** What its server calls it: a name, a URI or a template. */
  readonly key: string;
  /** What it is called here. For resources the same, unless another server has it too. */
  readonly name: string;
  readonly item: ListedItem;
}

export class Table {
  readonly entries: readonly Entry[];
  readonly byName: ReadonlyMap<string, Entry>;
  /** As many of the entries as may stand in one page begin here; the first is 0. */
  readonly pageStarts: readonly number[];
  readonly ttlMs: number;
  readonly isPublic: boolean;
  /** Whether servers run makes no difference. */
  readonly digest: string;

  constructor(entries: readonly Entry[], ttlMs: number, isPublic: boolean, digest: string) {
    this.entries = entries;
    this.byName = new Map(entries.map((entry) => [entry.name, entry]));
    this.pageStarts = pagesOf(entries);
    this.ttlMs = ttlMs;
    this.isPublic = isPublic;
    this.digest = digest;
  }
}

const pageItemsMax = 2_000;
const pageBytesMax = 2 * 1024 * 1024;

function pagesOf(entries: readonly Entry[]): number[] {
  const starts = [0];
  let first = 0;
  let bytes = 0;
  for (const [i, { item }] of entries.entries()) {
    bytes += item.raw.length;
    if (i === first || (i - first < pageItemsMax && bytes <= pageBytesMax)) continue;
    starts.push(i);
    first = i;
    bytes = item.raw.length;
  }
  return starts;
}

/** Entries of tables that may be gone already. */
const internedMax = 1_024;
const digestChars = 22;

export class Tables {
  readonly #kept = new Map<string, WeakRef<Table>>();
  /** What an item holds is hashed once, however many views show it. */
  readonly #itemDigests = new WeakMap<ListedItem, Buffer>();

  /** The table with these entries, which may be one that others have already. */
  intern(entries: readonly Entry[], ttlMs: number, isPublic: boolean): Table {
    const digest = this.#digestOf(entries);
    const key = `${digest} ${ttlMs} ${isPublic}`;
    const kept = this.#kept.get(key)?.deref();
    if (kept) return kept;
    const table = new Table(entries, ttlMs, isPublic, digest);
    setBounded(this.#kept, key, new WeakRef(table), internedMax);
    return table;
  }

  #digestOf(entries: readonly Entry[]): string {
    const whole = createHash('sha256');
    for (const { server, key, name, item } of entries) {
      let own = this.#itemDigests.get(item);
      if (!own) {
        own = hash('sha256', item.raw, 'buffer');
        this.#itemDigests.set(item, own);
      }
      whole.update(JSON.stringify([server, key, name])).update(own);
    }
    return whole.digest('base64url').slice(0, digestChars);
  }
}
