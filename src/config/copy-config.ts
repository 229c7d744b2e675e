/**
 * Copies the configuration of an embedder into plain data: own enumerable members only, in objects without a prototype. Getters
 * and proxies run once, here, so the parsers read values that neither throw nor change.
 * Invariants: an entry of a table that cannot be copied becomes an UnusableEntry, and the other entries are copied. Any other
 * value that cannot be copied is an `invalid_spec` error with its path. The work is bounded: an object that occurs twice is
 * copied once, and long lists, deep nesting and cycles are refused.
 */
import { HostError } from '../kernel/errors.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { serverTables } from './client-keys.js';
import { invalidSpec } from './invalid-spec.js';

/** A mistake in one entry of these tables disables only that entry. Any other mistake makes the configuration unusable. */
export const entryTables = [
  ...(['mcpServers', 'groups', 'keys', 'roles'] as const),
  ...(['budgets.principals', 'budgets.roles'] as const),
] as const;

export type EntryTable = (typeof entryTables)[number];

/** Also true for tables of servers that clients write under other names. */
export const isEntryTable = (path: string): boolean =>
  (entryTables as readonly string[]).includes(path) || serverTables.includes(path);

/** Replaces an entry that cannot be used. The name of the entry stays in its table. */
export class UnusableEntry {
  readonly error: HostError;
  /** The entry itself, if it can be read: its other faults are reported too. */
  readonly entry: unknown;
  /** Name as written, if it differs from the name in the table. */
  readonly label: string | undefined;

  constructor(error: HostError, { entry, label }: { readonly entry?: unknown; readonly label?: string } = {}) {
    this.error = error;
    this.entry = entry;
    this.label = label;
  }
}

const depthMax = 64;
/** Maximum of members in one object or list. */
const membersMax = 10_000;
const valuesMax = 1_000_000;
const nameCharsShown = 64;

export const copyConfig = (config: unknown): unknown => new Copy(isEntryTable).of(config, '', 0);

/** Copies a value without entry tables. `at`: its path in errors. */
export const copyEntry = (entry: unknown, at = ''): unknown => new Copy(() => false).of(entry, at, 0);

class Copy {
  readonly #isTable: (path: string) => boolean;
  /** Original → copy; undefined while the original is being copied. */
  readonly #copies = new Map<object, unknown>();
  #values = 0;

  constructor(isTable: (path: string) => boolean) {
    this.#isTable = isTable;
  }

  of(value: unknown, at: string, depth: number): unknown {
    if (typeof value !== 'object' || value === null) return value;
    if (depth > depthMax) throw unreadable(at, `is nested more than ${depthMax} deep`);
    if (this.#copies.has(value)) {
      const copy = this.#copies.get(value);
      if (copy === undefined) throw unreadable(at, 'contains itself');
      return copy;
    }
    this.#copies.set(value, undefined);
    try {
      const copy = this.#copied(value, at, depth);
      this.#copies.set(value, copy);
      return copy;
    } catch (error) {
      // Another entry may contain the same object, and must get the same error instead of `contains itself`.
      this.#copies.delete(value);
      throw error;
    }
  }

  #copied(value: object, at: string, depth: number): unknown {
    if (read(at, () => value instanceof UnusableEntry)) return value;
    const isList = read(at, () => Array.isArray(value));
    const names = isList ? indexes(value as unknown[], at) : read(at, () => Object.keys(value));
    if (names.length > membersMax) throw unreadable(at, `has more than ${membersMax} entries`);
    this.#values += names.length;
    if (this.#values > valuesMax) throw unreadable(at, `makes the configuration larger than ${valuesMax} values`);
    const copy: Record<string, unknown> = isList ? ([] as never) : Object.create(null);
    const isTable = !isList && this.#isTable(at);
    for (const name of names) {
      const path = joined(at, name);
      const member = () =>
        this.of(
          read(path, () => (value as Record<string, unknown>)[name]),
          path,
          depth + 1,
        );
      copy[name] = isTable ? orUnusable(member) : member();
    }
    return copy;
  }
}

function orUnusable(make: () => unknown): unknown {
  try {
    return make();
  } catch (error) {
    if (error instanceof HostError) return new UnusableEntry(error);
    throw error;
  }
}

/** A sparse list may have billions of indexes, so the length is checked first. */
function indexes(list: readonly unknown[], at: string): string[] {
  const length = read(at, () => list.length);
  if (!(length <= membersMax)) throw unreadable(at, `has more than ${membersMax} entries`);
  return Array.from({ length }, (_, i) => String(i));
}

/** `look` may run code of the embedder: a getter, or a trap of a proxy. */
function read<T>(at: string, look: () => T): T {
  try {
    return look();
  } catch (cause) {
    throw unreadable(at, 'cannot be read: reading it throws', cause);
  }
}

const joined = (at: string, name: string): string => {
  const shown = neutraliseLine(name, nameCharsShown);
  return at === '' ? shown : `${at}.${shown}`;
};

const plainData = 'pass plain data: objects, lists, texts, numbers, true and false';
const unreadable = (at: string, what: string, cause?: unknown): HostError =>
  invalidSpec(at, `${at === '' ? 'the configuration: ' : ''}${what}`, plainData, cause === undefined ? {} : { cause });
