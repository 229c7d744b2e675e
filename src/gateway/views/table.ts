/**
 * One list as some view shows it. Views that show the same share one: a thousand principals of one role cost as much as one.
 * Not here: what is in it (view.ts), its bytes (prepared-list.ts).
 * Invariant: two tables with the same digest hold the same items of the same servers under the same names. It is made when it is
 * first asked for, by a cursor or by somebody who listens: a start does not wait for the hashes of all items.
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
  readonly #digestOf: (entries: readonly Entry[]) => string;
  #digest: string | undefined;

  constructor(
    entries: readonly Entry[],
    ttlMs: number,
    isPublic: boolean,
    digestOf: (entries: readonly Entry[]) => string,
  ) {
    const byName = new Map<string, Entry>();
    for (const entry of entries) byName.set(entry.name, entry);
    this.entries = entries;
    this.byName = byName;
    this.pageStarts = pagesOf(entries);
    this.ttlMs = ttlMs;
    this.isPublic = isPublic;
    this.#digestOf = digestOf;
  }

  /** Whether servers run makes no difference. */
  get digest(): string {
    this.#digest ??= this.#digestOf(this.entries);
    return this.#digest;
  }
}

const pageItemsMax = 2_000;
const pageBytesMax = 2 * 1024 * 1024;

function pagesOf(entries: readonly Entry[]): number[] {
  const starts = [0];
  let first = 0;
  let bytes = 0;
  for (let i = 0; i < entries.length; i++) {
    const { length } = (entries[i] as Entry).item.raw;
    bytes += length;
    if (i === first || (i - first < pageItemsMax && bytes <= pageBytesMax)) continue;
    starts.push(i);
    first = i;
    bytes = length;
  }
  return starts;
}

/** Entries of tables that may be gone already. */
const internedMax = 1_024;
const digestChars = 22;
const keyCharsMax = 256;

export class Tables {
  readonly #kept = new Map<string, WeakRef<Table>>();
  /** What an item holds is hashed once, however many views show it. */
  readonly #itemDigests = new WeakMap<ListedItem, Buffer>();
  /** Items are told apart by what they are, not by what they hold: nothing is hashed to find a table that others have. */
  readonly #itemNumbers = new WeakMap<ListedItem, number>();
  #lastNumber = 0;

  /** The table with these entries, which may be one that others have already. */
  intern(entries: readonly Entry[], ttlMs: number, isPublic: boolean): Table {
    const key = this.#keyOf(entries, ttlMs, isPublic);
    const kept = this.#kept.get(key)?.deref();
    if (kept) return kept;
    const table = new Table(entries, ttlMs, isPublic, this.#digestOf);
    setBounded(this.#kept, key, new WeakRef(table), internedMax);
    return table;
  }

  /** Every item is a server's own; its shown name is what a view may add. */
  #keyOf(entries: readonly Entry[], ttlMs: number, isPublic: boolean): string {
    let text = `${ttlMs} ${isPublic}`;
    for (const { server, name, item } of entries) {
      let number = this.#itemNumbers.get(item);
      if (number === undefined) {
        number = ++this.#lastNumber;
        this.#itemNumbers.set(item, number);
      }
      // Names of resources are any text: with its length one cannot be read as several.
      text += `\n${number} ${server} ${name.length} ${name}`;
    }
    // Keys outlive their tables: a long one would be kept for nothing.
    return text.length <= keyCharsMax ? text : hash('sha256', text, 'base64url');
  }

  readonly #digestOf = (entries: readonly Entry[]): string => {
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
  };
}
