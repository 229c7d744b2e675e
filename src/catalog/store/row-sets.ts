/**
 * A table of row sets: each owner has a set of named rows, and a write touches only the changed rows.
 * Not here: the content of rows (pins-table.ts, listings-table.ts), the time of a write (write-behind.ts).
 *
 * Invariants: readers see only complete sets. An existing set changes in one transaction; a new set may take several, in
 * batches of at most `batchBytes`. A set that another process has written is replaced as a whole,
 * also when that process wrote it during this write.
 */
import type Database from 'libsql';
import { setBounded } from '../../kernel/bounded-map.js';

const batchBytes = 256 * 1024;
/** Position step for a row at the end of a set, and for a row that is inserted before others. */
const appendStep = 1;
const insertStep = 1 / 1024;

export interface SetRow<Content> {
  /** Unique in its set. */
  readonly name: string;
  /** A short text that can be read without the content. */
  readonly tag: string;
  readonly content: Content;
}

export interface StoredRow {
  readonly name: string;
  readonly tag: string;
  readonly text: string;
}

interface StoredSet {
  readonly id: number;
  /** Increases with each write of any set in the table. */
  readonly written: number;
  readonly isComplete: number;
  readonly head: string;
}

/** Value of a set after the last read or write of this process. */
interface KnownSet<Value> {
  readonly id: number;
  readonly written: number;
  readonly value: Value;
  readonly positions: readonly number[];
}

interface SetTable<Value, Content> {
  /** Prefix of the table names. */
  readonly name: string;
  /** Beyond `setsMax`, the set with the lowest value in this column is deleted. */
  readonly oldestBy: 'id' | 'written';
  readonly setsMax: number;
  rowsOf(value: Value): readonly SetRow<Content>[];
  textOf(content: Content): string;
  /** Approximate size of the text. */
  bytesOf(content: Content): number;
  isSame(a: Content, b: Content): boolean;
}

/** The index contains the tags, so that tags are read without the texts. */
export const rowSetSchema = (name: string): string => `
  CREATE TABLE IF NOT EXISTS ${name}_sets (
    id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL UNIQUE, written INTEGER NOT NULL,
    isComplete INTEGER NOT NULL, head TEXT NOT NULL
  );
  CREATE TABLE IF NOT EXISTS ${name}_rows (
    setId INTEGER NOT NULL, name TEXT NOT NULL, tag TEXT NOT NULL, position REAL NOT NULL, text TEXT NOT NULL
  );
  CREATE INDEX IF NOT EXISTS ${name}_tags ON ${name}_rows (setId, name, tag);`;

export class RowSets<Value, Content> {
  readonly #database: Database.Database;
  readonly #table: SetTable<Value, Content>;
  readonly #known = new Map<string, KnownSet<Value>>();
  readonly #owners: RowNames;
  readonly #sql;

  constructor(database: Database.Database, table: SetTable<Value, Content>) {
    this.#database = database;
    this.#table = table;
    const { name, oldestBy } = table;
    const [sets, rows] = [`${name}_sets`, `${name}_rows`];
    const surplus = `SELECT id FROM ${sets} ORDER BY ${oldestBy} DESC LIMIT -1 OFFSET ${table.setsMax}`;
    const prepare = (sql: string) => database.prepare(sql);
    this.#sql = {
      find: prepare(`SELECT id, written, isComplete, head FROM ${sets} WHERE owner = ?`),
      owners: prepare(`SELECT owner FROM ${sets}`),
      create: prepare(`INSERT INTO ${sets} (owner, written, isComplete, head) VALUES (?, 0, 0, '')`),
      complete: prepare(
        `UPDATE ${sets} SET written = (SELECT max(written) + 1 FROM ${sets}), isComplete = 1, head = ? WHERE id = ?`,
      ),
      delete: prepare(`DELETE FROM ${sets} WHERE id = ?`),
      deleteRows: prepare(`DELETE FROM ${rows} WHERE setId = ?`),
      // One row for a set: reading a row costs more than parsing its part of the JSON.
      read: prepare(`SELECT id, written, head, (
        SELECT json_group_array(json_array(name, tag, position, text) ORDER BY position) FROM ${rows} WHERE setId = ${sets}.id
      ) AS rows FROM ${sets} WHERE owner = ? AND isComplete = 1`),
      tags: prepare(`SELECT (
        SELECT json_group_array(json_array(name, tag)) FROM ${rows} WHERE setId = ${sets}.id
      ) AS rows FROM ${sets} WHERE owner = ? AND isComplete = 1`),
      insert: prepare(`INSERT INTO ${rows} (tag, position, text, setId, name) VALUES (?, ?, ?, ?, ?)`),
      update: prepare(`UPDATE ${rows} SET tag = ?, position = ?, text = ? WHERE setId = ? AND name = ?`),
      remove: prepare(`DELETE FROM ${rows} WHERE setId = ? AND name = ?`),
      trimRows: prepare(`DELETE FROM ${rows} WHERE setId IN (${surplus})`),
      trim: prepare(`DELETE FROM ${sets} WHERE id IN (${surplus})`),
    };
    this.#owners = new RowNames(() => (this.#sql.owners.all() as { owner: string }[]).map(({ owner }) => owner));
  }

  head(owner: string): string | undefined {
    return this.#find(owner)?.head;
  }

  /** `toValue` converts the rows to a value; the next write is compared with that value. */
  load(owner: string, toValue: (rows: readonly StoredRow[], head: string) => Value | undefined): Value | undefined {
    if (!this.#owners.mayHave(owner)) return undefined;
    const set = this.#sql.read.get(owner) as (Omit<StoredSet, 'isComplete'> & { readonly rows: string }) | undefined;
    if (!set) return undefined;
    const rows = JSON.parse(set.rows) as [name: string, tag: string, position: number, text: string][];
    const value = toValue(
      rows.map(([name, tag, , text]) => ({ name, tag, text })),
      set.head,
    );
    const positions = rows.map(([, , position]) => position);
    if (value !== undefined) this.#remember(owner, { id: set.id, written: set.written, value, positions });
    return value;
  }

  tags(owner: string): ReadonlyMap<string, string> | undefined {
    if (!this.#owners.mayHave(owner)) return undefined;
    const set = this.#sql.tags.get(owner) as { readonly rows: string } | undefined;
    return set && new Map(JSON.parse(set.rows) as [name: string, tag: string][]);
  }

  delete(owner: string): void {
    this.#database.transaction(() => this.#delete(owner)).immediate();
    this.#known.delete(owner);
    this.#owners.changed();
  }

  /** Writes a whole set inside a transaction of the caller. */
  insert(owner: string, head: string, value: Value): void {
    const { rowsOf, textOf } = this.#table;
    this.#delete(owner);
    const id = Number(this.#sql.create.run(owner).lastInsertRowid);
    for (const [i, { name, tag, content }] of rowsOf(value).entries())
      this.#sql.insert.run(tag, (i + 1) * appendStep, textOf(content), id, name);
    this.#complete(id, head, true);
    this.#owners.changed();
  }

  /** Drops the value in memory. The rows stay, and the next write replaces them as a whole. */
  release(owner: string): void {
    this.#known.delete(owner);
  }

  /**
   * Each step writes one batch; only a new and large set takes more than one. `isDurable`: the set must survive a power
   * failure. Data that comes from lists is not durable: waiting for the disk after each of fifty first lists took longer than
   * reading them.
   */
  *write(owner: string, head: string, value: Value, isDurable = true): Generator<undefined, void> {
    const { rowsOf, textOf, bytesOf, isSame } = this.#table;
    const stored = this.#stored(owner);
    const known = this.#known.get(owner);
    const base = known && isSameWrite(known, stored) ? known : undefined;
    const { changed, removed, positions } = difference(
      base && rowsOf(base.value),
      base?.positions,
      rowsOf(value),
      isSame,
    );
    // One batch, because an interrupted write must not change a complete set on disk.
    const batches = stored?.isComplete ? [changed] : batchesOf(changed, bytesOf);
    let id = base?.id ?? 0;
    let written: number | undefined;
    this.#known.delete(owner);
    this.#owners.changed();
    for (const [i, batch] of batches.entries()) {
      if (i > 0) yield;
      const isLast = i === batches.length - 1;
      let isStale = false;
      // Immediate: no other process writes between the comparison and the commit.
      const write = this.#database.transaction(() => {
        const now = this.#stored(owner);
        isStale = i === 0 && !isSameWrite(stored, now);
        if (isStale) return;
        if (i > 0 && now?.id !== id) throw new Error('another process has replaced the rows');
        if (i === 0 && !base) {
          this.#delete(owner);
          id = Number(this.#sql.create.run(owner).lastInsertRowid);
        }
        for (const name of removed) this.#sql.remove.run(id, name);
        for (const { row, position, isNew } of batch)
          this.#sql[isNew ? 'insert' : 'update'].run(row.tag, position, textOf(row.content), id, row.name);
        if (isLast) this.#complete(id, head, base === undefined);
        written = this.#stored(owner)?.written;
      }).immediate;
      // An incomplete set need not survive a power failure.
      if (isLast && isDurable) write();
      else withoutSync(this.#database, write);
      // Another process has written the set. The known value was dropped above, so this call writes the whole set.
      if (isStale) return yield* this.write(owner, head, value, isDurable);
    }
    if (written !== undefined) this.#remember(owner, { id, written, value, positions });
  }

  #remember(owner: string, set: KnownSet<Value>): void {
    setBounded(this.#known, owner, set, this.#table.setsMax);
  }

  #complete(id: number, head: string, isNew: boolean): void {
    this.#sql.complete.run(head, id);
    if (!isNew) return;
    this.#sql.trimRows.run();
    this.#sql.trim.run();
  }

  #delete(owner: string): void {
    const set = this.#stored(owner);
    if (!set) return;
    this.#sql.deleteRows.run(set.id);
    this.#sql.delete.run(set.id);
  }

  #find(owner: string): StoredSet | undefined {
    if (!this.#owners.mayHave(owner)) return undefined;
    const set = this.#stored(owner);
    return set?.isComplete ? set : undefined;
  }

  #stored(owner: string): StoredSet | undefined {
    return this.#sql.find.get(owner) as StoredSet | undefined;
  }
}

type Write = Pick<StoredSet, 'id' | 'written'>;

const isSameWrite = (a: Write | undefined, b: Write | undefined): boolean =>
  a?.id === b?.id && a?.written === b?.written;

interface ChangedRow<Content> {
  readonly row: SetRow<Content>;
  readonly position: number;
  readonly isNew: boolean;
}

/** A row keeps its position if the order allows it, so that an inserted row moves no other row. */
function difference<Content>(
  before: readonly SetRow<Content>[] = [],
  oldPositions: readonly number[] = [],
  after: readonly SetRow<Content>[],
  isSame: (a: Content, b: Content) => boolean,
) {
  const indexOf = new Map(before.map(({ name }, i) => [name, i]));
  const end = oldPositions.at(-1) ?? 0;
  const changed: ChangedRow<Content>[] = [];
  let last = 0;
  const positions = after.map((row) => {
    const i = indexOf.get(row.name);
    const old = i === undefined ? undefined : before[i];
    const oldPosition = i === undefined ? 0 : (oldPositions[i] ?? 0);
    const position = oldPosition > last ? oldPosition : last + (last < end ? insertStep : appendStep);
    if (!old || position !== oldPosition || old.tag !== row.tag || !isSame(old.content, row.content))
      changed.push({ row, position, isNew: old === undefined });
    indexOf.delete(row.name);
    last = position;
    return position;
  });
  return { changed, removed: [...indexOf.keys()], positions };
}

function batchesOf<Content>(rows: readonly ChangedRow<Content>[], bytesOf: (content: Content) => number) {
  const batches: ChangedRow<Content>[][] = [[]];
  let bytes = 0;
  for (const each of rows) {
    const length = bytesOf(each.row.content);
    if (bytes > 0 && bytes + length > batchBytes) {
      batches.push([]);
      bytes = 0;
    }
    batches.at(-1)?.push(each);
    bytes += length;
  }
  return batches;
}

/** Commits without waiting for the disk: the write survives a crash of the process, but maybe not a power failure. */
export function withoutSync(database: Database.Database, write: () => void): void {
  database.pragma('synchronous = NORMAL');
  try {
    write();
  } finally {
    database.pragma('synchronous = FULL');
  }
}

/** The first lookups of a tick are answered one by one; after them, one query answers all. */
const singlyMax = 2;

/**
 * Tells whether a table may have a row of a name. A starting host looks up each of its servers, and most have no row.
 * Invariant: the names are dropped after the tick and after each write, so that rows of another process are found.
 */
export class RowNames {
  readonly #read: () => Iterable<string>;
  #lookups = 0;
  #names: ReadonlySet<string> | undefined;

  constructor(read: () => Iterable<string>) {
    this.#read = read;
  }

  /** False: the table has no such row. True: it may have one. */
  mayHave(name: string): boolean {
    if (this.#lookups++ === 0) queueMicrotask(() => this.#forget());
    if (this.#lookups <= singlyMax) return true;
    this.#names ??= new Set(this.#read());
    return this.#names.has(name);
  }

  changed(): void {
    this.#names = undefined;
  }

  #forget(): void {
    this.#lookups = 0;
    this.#names = undefined;
  }
}
