/**
 * What a confirmation covers: the parts of a configuration that start a program, reach an address or admit a client, each with a
 * digest of everything that decides what it does.
 * Not here: storing confirmations (trust-store.ts), unconfirmed parts (unconfirmed-changes.ts).
 *
 * Invariants: equal digests mean equal parts. A key that a later version adds is covered unless it is listed here.
 */
import { hash } from 'node:crypto';
import type { PlaceholderFiles } from '../../config/placeholders.js';
import { filesNamedIn } from '../../config/placeholders.js';

export interface ConfigPart {
  /** `['mcpServers', name]`, `['keys', name]`, or a key of the top level. */
  readonly at: readonly string[];
  /** As written, without the keys that are not covered. */
  readonly value: unknown;
  readonly digest: string;
}

/** Settings of a server that need no confirmation. `card` is not one: its URL is fetched and may contain `${env:...}`. */
const uncoveredKeys: ReadonlySet<string> = new Set([
  ...['enabled', 'lazy', 'keepAlive', 'restart', 'breaker', 'timeouts', 'concurrency', 'queueLength', 'cache'],
  ...['pins', 'trustAnnotations', 'isolation', 'tools'],
]);

/** Top-level settings that start nothing and admit no client. */
const settingsThatStartNothing: ReadonlySet<string> = new Set([
  ...['$schema', 'roles', 'unlistedRole', 'budgets', 'groups', 'log', 'telemetry'],
]);

type Table = Readonly<Record<string, unknown>>;

/** `config` before placeholders are filled in. */
export function partsOf(config: unknown, files: PlaceholderFiles): ConfigPart[] {
  const part = (at: readonly string[], value: unknown): ConfigPart => ({ at, value, digest: digest(at, value, files) });
  if (!isTable(config)) return [];
  return Object.entries(config).flatMap(([key, value]) => {
    if (settingsThatStartNothing.has(key)) return [];
    if (key === 'mcpServers' && isTable(value))
      return Object.entries(value).map(([name, entry]) => part([key, name], splitEntry(entry).covered));
    if (key === 'keys' && isTable(value)) return Object.entries(value).map(([name, entry]) => part([key, name], entry));
    return [part([key], value)];
  });
}

/** The digest of a key that a command is about to write, without placeholders. */
export const digestOfKey = (name: string, entry: unknown): string =>
  hash('sha256', canonical(['keys', name, entry, []]));

/** The members that a confirmation covers, and those that need none. */
export function splitEntry(entry: unknown): { readonly covered: unknown; readonly treatment: Table } {
  if (!isTable(entry)) return { covered: entry, treatment: {} };
  const keep = (isTreatment: boolean): Table =>
    Object.fromEntries(Object.entries(entry).filter(([key]) => uncoveredKeys.has(key) === isTreatment));
  return { covered: keep(false), treatment: keep(true) };
}

export const isTable = (value: unknown): value is Table =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Placeholders are covered as written: a variable by its name, a file by path and content. */
function digest(at: readonly string[], value: unknown, files: PlaceholderFiles): string {
  const named = new Set(textsIn(value).flatMap(filesNamedIn));
  if (at[0] === 'mcpServers' && isTable(value) && typeof value.envFile === 'string') named.add(value.envFile);
  const contents = [...named].sort().map((name) => {
    const read = files.read(name);
    return [name, 'text' in read ? hash('sha256', read.text) : null];
  });
  return hash('sha256', canonical([...at, value, contents]));
}

function textsIn(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(textsIn) : [];
}

/** One text for each value; the order of keys does not matter. */
function canonical(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value !== 'object' || value === null) return String(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${canonical(member)}`).join(',')}}`;
}
