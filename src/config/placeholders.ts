/**
 * Replaces `${env:NAME}` and `${file:PATH}` in the values of a configuration, not in keys.
 * Not here: reading the configuration (config-file.ts), validation of entries (host-config.ts).
 * Invariants: a placeholder that cannot be replaced disables only its own entry, and never grants more than that entry would.
 * Errors quote no value. Replaced values are reported as secrets, except harmless variables.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { HostError } from '../kernel/errors.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { type EntryTable, isEntryTable, UnusableEntry } from './copy-config.js';
import { invalidSpec } from './schema-issues.js';

interface PlaceholderSources {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Base of relative paths. */
  readonly folder: string;
  /** Files that were already read for the same configuration. */
  readonly files?: PlaceholderFiles;
}

export interface Filled {
  readonly config: unknown;
  /** Values that must be redacted. */
  readonly secrets: readonly string[];
  /** Problems outside of `mcpServers`. The parser of `mcpServers` reports the others. */
  readonly problems: readonly HostError[];
}

const depthMax = 32;
const shownChars = 200;
const placeholder = /\$\{(env|file):([^}]*)\}/g;
/** Redacting these variables would garble every path. */
const harmless = /^(?:HOME|USER|LOGNAME|HOSTNAME|PWD|PATH|SHELL|TMPDIR|TEMP|TMP|LANG|TZ|TERM|LC_\w+|XDG_\w+)$/;

/** Entries that allow nothing. They replace an unusable role or budget; unusable keys and groups are left out. */
const closed: ReadonlyMap<string, unknown> = new Map(
  Object.entries({
    roles: { allow: [] },
    'budgets.principals': { calls: 0, window: '1m' },
    'budgets.roles': { calls: 0, window: '1m' },
  } satisfies Partial<Record<EntryTable, unknown>>),
);

type Table = Record<string, unknown>;

/** Throws if a placeholder outside of the entry tables (copy-config.ts) cannot be replaced. */
export function fillPlaceholders(config: unknown, given: PlaceholderSources): Filled {
  const sources = { ...given, files: given.files ?? new PlaceholderFiles(given.folder) };
  const secrets = new Set<string>();
  const problems: HostError[] = [];

  const fill = (value: unknown, at: readonly string[]): unknown => {
    if (typeof value === 'string')
      return value.includes('${') ? fillText(value, at.join('.'), sources, secrets) : value;
    if (at.length > depthMax || typeof value !== 'object' || value === null) return value;
    if (value instanceof UnusableEntry) return value;
    if (Array.isArray(value)) return value.map((each, i) => fill(each, [...at, String(i)]));
    const isTable = isEntryTable(at.join('.'));
    const filled: Table = Object.create(null);
    for (const [key, each] of Object.entries(value)) {
      try {
        filled[key] = fill(each, [...at, neutraliseLine(key, shownChars)]);
      } catch (error) {
        if (!isTable || !(error instanceof HostError)) throw error;
        if (at[0] === 'mcpServers') {
          filled[key] = new UnusableEntry(error);
          continue;
        }
        problems.push(error);
        const instead = closed.get(at.join('.'));
        if (instead !== undefined) filled[key] = instead;
      }
    }
    return filled;
  };
  return { config: fill(config, []), secrets: [...secrets], problems };
}

function fillText(text: string, field: string, sources: Required<PlaceholderSources>, secrets: Set<string>): string {
  return text.replace(placeholder, (_all, kind: string, name: string) => {
    const value = kind === 'env' ? variable(name, field, sources) : content(name, field, sources);
    if (kind === 'file' || !harmless.test(name)) secrets.add(value);
    return value;
  });
}

function variable(name: string, field: string, { env }: PlaceholderSources): string {
  // Every object inherits `toString`, so only own members count.
  const value = Object.hasOwn(env, name) ? env[name] : undefined;
  if (value === undefined) {
    const shown = neutraliseLine(name, shownChars);
    throw invalidSpec(
      field,
      `the variable ${shown} is not set`,
      `set ${shown} in the environment of hostler, or remove the entry`,
    );
  }
  return value;
}

function content(name: string, field: string, { files }: Required<PlaceholderSources>): string {
  const read = files.read(name);
  if ('text' in read) return read.text;
  throw invalidSpec(
    field,
    `${neutraliseLine(name, shownChars)} ${read.why}`,
    'check that the file exists and that hostler may read it, or remove the entry',
  );
}

/** Returns the paths of `${file:PATH}` as written. */
export const filesNamedIn = (text: string): string[] =>
  [...text.matchAll(placeholder)].flatMap(([, kind, name = '']) => (kind === 'file' ? [name] : []));

type FileText = { readonly text: string } | { readonly why: string };

const fileBytesMax = 64 * 1024;

/** Reads each file once per configuration, so the confirmed text is the text that is filled in. */
export class PlaceholderFiles {
  readonly #folder: string;
  readonly #texts = new Map<string, FileText>();

  constructor(folder: string) {
    this.#folder = folder;
  }

  read(name: string): FileText {
    const file = path.resolve(this.#folder, name);
    const known = this.#texts.get(file);
    if (known) return known;
    const text = readText(file);
    this.#texts.set(file, text);
    return text;
  }
}

function readText(file: string): FileText {
  let descriptor: number | undefined;
  try {
    // O_NONBLOCK, because the path may name a FIFO without a writer.
    descriptor = openSync(file, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
    const facts = fstatSync(descriptor);
    if (!facts.isFile()) return { why: 'is not a file' };
    if (facts.size > fileBytesMax) return { why: 'is larger than 64 KiB' };
    const text = readFileSync(descriptor, 'utf8').slice(0, fileBytesMax);
    // Editors add a newline at the end; it is not part of a secret.
    return { text: text.replace(/\r?\n$/, '') };
  } catch (error) {
    const { code = 'unreadable' } = error as NodeJS.ErrnoException;
    return { why: `cannot be read (${code})` };
  } finally {
    if (descriptor !== undefined) closeSync(descriptor);
  }
}
