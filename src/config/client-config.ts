/**
 * Converts a configuration as MCP clients write it to Hostler's own shape: all servers in `mcpServers`, by slug, with Hostler's keys.
 * Not here: the keys (client-keys.ts), placeholders (placeholders.ts), validation (host-config.ts).
 * Invariants: pure, except for a check whether a command with blanks is a file. Never throws. A configuration in Hostler's shape does
 * not change, so normalising it twice has no further effect. A key that looks like a misspelt key of Hostler stays, and validation
 * refuses it. No entry is lost: every name of the file is a name of the result.
 */
import { statSync } from 'node:fs';
import path from 'node:path';
import type { HostError } from '../kernel/errors.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import {
  type ClientKey,
  clientKeys,
  clientTopKeys,
  descriptiveKeys,
  serverTables,
  toolList,
  transportOf,
  unusedKeys,
} from './client-keys.js';
import { UnusableEntry } from './copy-config.js';
import { invalidSpec } from './invalid-spec.js';
import { hostConfigKeys, nearestKey } from './known-keys.js';
import { serverKeys } from './server-definition.js';
import { slugsOf } from './server-name.js';

export interface Normalised {
  readonly config: unknown;
  /** Remarks; none of them disables an entry. */
  readonly notes: readonly HostError[];
  /** Path as written, by path in `config`, where the two differ. */
  readonly written: ReadonlyMap<string, string>;
}

/** `reason` of a remark that is not a fault of the configuration. */
export const noteReason = 'note';
/** `reason` of a remark that a person should read. */
export const warningReason = 'warning';
export const isRemark = ({ details: { reason } }: HostError): boolean =>
  reason === noteReason || reason === warningReason;

type Table = Record<string, unknown>;

const shownChars = 64;
const namesListed = 20;
const shown = (name: string): string => neutraliseLine(name, shownChars);

/** `config`: plain data, as copy-config.ts and config-file.ts return it. */
export function normaliseConfig(config: unknown): Normalised {
  return isTable(config) ? new Normaliser().of(config) : { config, notes: [], written: new Map() };
}

class Normaliser {
  readonly #notes: HostError[] = [];
  readonly #written = new Map<string, string>();
  /** The first place of each unused key: at the top level, and in entries. */
  readonly #unusedTop = new Map<string, string>();
  readonly #unused = new Map<string, string>();

  of(config: Table): Normalised {
    const normalised: Table = Object.create(null);
    const tables: (readonly [string, Table])[] = [];
    for (const [key, value] of Object.entries(config)) {
      const found = serverTables.includes(key) ? tableIn(key, value) : undefined;
      if (found) {
        tables.push(found);
        normalised.mcpServers ??= {};
      } else if (isOurs(key, value) || isMisspelt(key, hostConfigKeys, clientTopKeys)) normalised[key] = value;
      else this.#unusedTop.set(key, shown(key));
    }
    if (tables.length > 0) normalised.mcpServers = this.#servers(tables);
    return {
      config: normalised,
      notes: [...this.#notes, ...unusedNote(this.#unusedTop), ...unusedNote(this.#unused)],
      written: this.#written,
    };
  }

  #servers(tables: readonly (readonly [string, Table])[]): Table {
    // If two tables have a server of the same name, `mcpServers` has priority.
    const ordered = [...tables].sort(([a], [b]) => Number(b === 'mcpServers') - Number(a === 'mcpServers'));
    const entries = new Map<string, readonly [string, unknown]>();
    for (const [table, members] of ordered)
      for (const [name, entry] of Object.entries(members)) {
        const other = entries.get(name)?.[0];
        if (other === undefined) entries.set(name, [table, entry]);
        else this.#note(`${table}.${shown(name)}`, `is also in ${other}, which has priority`, 'remove one of them');
      }
    const slugs = slugsOf(entries.keys());
    const servers: Table = Object.create(null);
    for (const [name, [table, entry]] of entries) {
      const slug = slugs.get(name) as string;
      const [at, from] = [`mcpServers.${slug}`, `${table}.${shown(name)}`];
      if (at !== from) this.#written.set(at, from);
      servers[slug] = labelled(isTable(entry) ? this.#entry(entry, at, from) : entry, name, slug);
    }
    return servers;
  }

  #entry(given: Table, at: string, from: string): Table {
    const entry: Table = Object.create(null);
    const late: (() => void)[] = [];
    for (const [key, value, place] of membersOf(given)) {
      const client = clientKeys.get(key);
      const source = `${from}.${place}`;
      if (place !== key) this.#written.set(`${at}.${key}`, source);
      if (client) late.push(() => this.#put(entry, client, value, at, source));
      else if (serverKeys.includes(key) || isMisspelt(key, serverKeys, unusedKeys, descriptiveKeys)) entry[key] = value;
      else if (!descriptiveKeys.has(key)) this.#isUnused(key, source);
    }
    // Keys of clients come last, because Hostler's keys have priority.
    for (const put of late) put();
    this.#fitTransport(entry, given.type, from);
    this.#fitCommand(entry, `${from}.command`);
    if (entry.env !== undefined) entry.env = texts(entry.env);
    if (entry.headers !== undefined) entry.headers = texts(withoutNull(entry.headers));
    if (Array.isArray(entry.args)) entry.args = entry.args.map(text);
    return entry;
  }

  #put(entry: Table, { to, convert }: ClientKey, given: unknown, at: string, source: string): void {
    const value = convert ? convert(given) : (given ?? undefined);
    if (value === undefined) return;
    // Only a key written as `command` may contain a nested entry. An object in an alias such as `cmd` is ignored.
    if (to === 'command' && isTable(value)) return;
    const [first = '', member] = to.split('.');
    const inner = member === undefined ? entry : entry[first];
    // A value that is no table stays as it is, and validation refuses it.
    if (inner !== undefined && !isTable(inner)) return;
    const holder = member === undefined ? entry : merged({}, inner ?? {});
    const name = member ?? first;
    if (holder[name] === undefined) this.#written.set(`${at}.${to}`, source);
    holder[name] = joined(name, holder[name], value);
    if (member !== undefined) entry[first] = holder;
  }

  #isUnused(key: string, source: string): void {
    if (!this.#unused.has(key)) this.#unused.set(key, source);
  }

  /** `type` decides between a command and a URL. Keys of the other transport have no effect. */
  #fitTransport(entry: Table, type: unknown, from: string): void {
    if (typeof entry.transport === 'string') entry.transport = transportOf(entry.transport);
    if (entry.transport === undefined) delete entry.transport;
    const isBoth = entry.command !== undefined && entry.url !== undefined;
    const isLocal = isBoth ? type === 'stdio' || type === 'local' : entry.command !== undefined;
    if (isBoth && typeof type !== 'string') return;
    if (!isLocal && entry.url === undefined) return;
    for (const key of isLocal ? ['url', 'headers', 'transport'] : ['command', 'args', 'env', 'cwd', 'envFile']) {
      if (!Object.hasOwn(entry, key)) continue;
      const isEmpty = typeof entry[key] === 'object' && Object.keys(entry[key] ?? {}).length === 0;
      if (!isEmpty) this.#isUnused(key, `${from}.${key}`);
      delete entry[key];
    }
  }

  #fitCommand(entry: Table, from: string): void {
    if (Array.isArray(entry.command) && typeof entry.command[0] === 'string') {
      const [program, ...rest] = entry.command;
      entry.command = program;
      entry.args = Array.isArray(entry.args) ? [...rest, ...entry.args] : rest;
    }
    const { command, args = [] } = entry;
    if (typeof command !== 'string' || !/\s/.test(command) || !Array.isArray(args)) return;
    const [program, ...rest] = wordsOf(command);
    if (program === undefined || !isProgram(program) || isFile(command)) return;
    this.#note(from, `is split: the program is '${shown(program)}', the rest are arguments`, 'write them in args');
    entry.command = program;
    entry.args = [...rest, ...args];
  }

  #note(field: string, what: string, hint: string): void {
    this.#notes.push(invalidSpec(field, what, hint, { reason: warningReason }));
  }
}

/** Merges tables and joins lists. For any other value, Hostler's key has priority. */
function joined(name: string, ours: unknown, theirs: unknown): unknown {
  if (ours === undefined) return theirs;
  if (name === 'enabled') return ours === true ? theirs : ours;
  if (Array.isArray(ours) && Array.isArray(theirs)) return [...ours, ...theirs];
  return isTable(ours) && isTable(theirs) ? merged(theirs, ours) : ours;
}

/** The key of a server table and its servers; undefined if the value is something else. */
function tableIn(key: string, value: unknown): readonly [string, Table] | undefined {
  if (!isTable(value)) return undefined;
  if (key !== 'mcp') return [key, value];
  if (isTable(value.servers)) return ['mcp.servers', value.servers];
  const servers = Object.entries(value).filter(([, each]) => isTable(each) && ('command' in each || 'url' in each));
  return servers.length === 0 ? undefined : [key, Object.fromEntries(servers)];
}

/** Gemini CLI and Zed also write a key `telemetry`, with other members. */
const isOurs = (key: string, value: unknown): boolean =>
  (hostConfigKeys as readonly string[]).includes(key) &&
  !(key === 'telemetry' && isTable(value) && isForeignTelemetry(Object.keys(value)));
const isForeignTelemetry = (keys: readonly string[]): boolean =>
  keys.length > 0 && keys.every((key) => nearestKey(key, ['traces']) === undefined);

const isMisspelt = (key: string, ours: readonly string[], ...others: readonly ReadonlySet<string>[]): boolean =>
  !ours.includes(key) && !others.some((known) => known.has(key)) && nearestKey(key, ours) !== undefined;

type Member = readonly [key: string, value: unknown, place: string];

/** Members of an entry with their place. Cline nests an entry in `transport`, older Zed files in `command`. */
function membersOf(entry: Table): Member[] {
  const inside = (key: string, value: unknown): Member[] =>
    isTable(value) ? Object.entries(value).map(([name, each]) => [name, each, `${key}.${name}`]) : [];
  const flat = Object.entries(entry).flatMap(([key, value]): Member[] => {
    if (key === 'transport' && isTable(value))
      return inside(key, value).filter(([name]) => name !== 'transport' && !Object.hasOwn(entry, name));
    return [[key, value, key]];
  });
  const keys = new Set(flat.map(([key]) => key));
  return flat.flatMap(([key, value, place]): Member[] => {
    if (key === 'tools' && !isTable(value)) return [['enabledTools', toolList(value), place]];
    if (key !== 'command' || !isTable(value) || typeof value.path !== 'string') return [[key, value, place]];
    const others = inside(place, value).filter(([name]) => name !== 'path' && !keys.has(name));
    return [[key, value.path, `${place}.path`], ...others];
  });
}

function labelled(entry: unknown, name: string, slug: string): unknown {
  if (name === slug) return entry;
  if (entry instanceof UnusableEntry) return new UnusableEntry(entry.error, { label: name });
  return isTable(entry) ? merged({ label: name }, entry) : entry;
}

/** Members of the second table have priority. Both may have a member called `__proto__`. */
const merged = (first: Table, second: Table): Table =>
  Object.fromEntries([...Object.entries(first), ...Object.entries(second)]);

const text = (value: unknown): unknown =>
  typeof value === 'number' || typeof value === 'boolean' ? String(value) : value;
const texts = (table: unknown): unknown =>
  isTable(table) ? Object.fromEntries(Object.entries(table).map(([name, value]) => [name, text(value)])) : table;
const withoutNull = (table: unknown): unknown =>
  isTable(table) ? Object.fromEntries(Object.entries(table).filter(([, value]) => value !== null)) : table;

/** Words of a command line with simple quotes; none if a quote is not closed. */
function wordsOf(line: string): string[] {
  const word = /(?:[^\s"']|"[^"]*"|'[^']*')+/g;
  if (line.replace(word, '').trim() !== '') return [];
  return (line.match(word) ?? []).map((each) => each.replace(/"([^"]*)"|'([^']*)'/g, '$1$2'));
}

/** False for the first word of a path with blanks, unless that word names a file. */
const isProgram = (word: string): boolean => !/[\\/\s]/.test(word) || isFile(word);

function isFile(command: string): boolean {
  const folders = /[\\/]/.test(command) ? [''] : ['', ...(process.env.PATH ?? '').split(path.delimiter)];
  return folders.some((folder) => {
    try {
      return statSync(path.resolve(folder, command)).isFile();
    } catch {
      return false;
    }
  });
}

/** One remark for all keys, because a file of a client may have hundreds. */
function unusedNote(unused: ReadonlyMap<string, string>): HostError[] {
  const [first] = unused.values();
  if (first === undefined) return [];
  const keys = [...unused.keys()].map(shown);
  const more = keys.length - namesListed;
  const list = `${keys.slice(0, namesListed).join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
  const hint = 'leave them for other programs, or remove them';
  return [invalidSpec(first, `these keys have no effect in Hostler: ${list}`, hint, { reason: noteReason })];
}

const isTable = (value: unknown): value is Table =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof UnusableEntry);
