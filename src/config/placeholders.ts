/**
 * Replaces `${env:NAME}` and `${file:PATH}` in the values of a configuration, not in keys. In variables and headers of a server,
 * `${file:PATH}` and `${exec:NAME}` stay as references, which are resolved when the server starts (secrets/).
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
import { isLateField, literal, referenceText } from './secrets/references.js';

interface PlaceholderSources {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Base of relative paths. */
  readonly folder: string;
  /** Files that were already read for the same configuration. */
  readonly files?: PlaceholderFiles;
  /** True: the content of files was confirmed with the configuration, so variables of servers get this content. */
  readonly areFilesConfirmed?: boolean;
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
const placeholder = /\$\{(env|file|exec):([^}]*)\}/g;
/** Redacting these variables would garble every path. */
const harmless = /^(?:HOME|USER|LOGNAME|HOSTNAME|PWD|PATH|SHELL|TMPDIR|TEMP|TMP|LANG|TZ|TERM|LC_\w+|XDG_\w+)$/;

const secretName = /key|token|secret|pass|auth|credential|cookie/i;

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
  const secrets = new Set<string>();
  const problems: HostError[] = [];
  const sources: Sources = {
    ...given,
    files: given.files ?? new PlaceholderFiles(given.folder),
    areFilesConfirmed: given.areFilesConfirmed === true,
    ...secretsSettings(config),
    onSecret: (value) => secrets.add(value),
    onProblem: (problem) => problems.push(problem),
  };

  const fill = (value: unknown, at: readonly string[]): unknown => {
    if (typeof value === 'string') return value.includes('${') ? fillText(value, at, sources) : value;
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

interface Sources extends Required<PlaceholderSources> {
  readonly commands: ReadonlySet<string>;
  readonly isStrict: boolean;
  readonly onSecret: (value: string) => void;
  readonly onProblem: (problem: HostError) => void;
}

/** Read before the configuration is parsed, so any value is possible. */
function secretsSettings(config: unknown): Pick<Sources, 'commands' | 'isStrict'> {
  const table = (value: unknown): Table => (typeof value === 'object' && value !== null ? (value as Table) : {});
  const settings = table(table(config).secrets);
  return { commands: new Set(Object.keys(table(settings.exec))), isStrict: settings.strict === true };
}

function fillText(text: string, at: readonly string[], sources: Sources): string {
  const field = at.join('.');
  const isLate = isLateField(at);
  const mustFill = sources.areFilesConfirmed && at[2] === 'env';
  // Only in a late text, because only there a value is searched for references again.
  const plain = (part: string): string => (isLate ? literal(part) : part);
  let filled = '';
  let end = 0;
  for (const { 0: written, 1: kind, 2: name = '', index } of text.matchAll(placeholder)) {
    filled += plain(text.slice(end, index));
    end = index + written.length;
    if (kind === 'exec') filled += commandReference(name, field, isLate, sources);
    else if (kind === 'file' && isLate && !mustFill)
      filled += referenceText({ kind, name: path.resolve(sources.folder, name) });
    else {
      const isSecret = kind === 'file' || !harmless.test(name);
      const value = kind === 'env' ? variable(name, field, sources) : content(name, field, sources);
      if (isSecret) sources.onSecret(value);
      if (at[2] === 'args' && (kind === 'file' || secretName.test(name))) onCommandLine(field, sources);
      filled += plain(value);
    }
  }
  return filled + plain(text.slice(end));
}

function commandReference(name: string, field: string, isLate: boolean, { commands }: Sources): string {
  const shown = neutraliseLine(name, shownChars);
  if (!isLate)
    throw invalidSpec(field, `the output of the command '${shown}' cannot be used here`, 'use it in env or headers');
  if (!commands.has(name))
    throw invalidSpec(field, `the command '${shown}' is not in secrets.exec`, `add secrets.exec.${shown}`);
  return referenceText({ kind: 'exec', name });
}

function onCommandLine(field: string, { isStrict, onProblem }: Sources): void {
  const problem = invalidSpec(
    field,
    'puts a secret on the command line, which every local user can read',
    'pass it in env, if the server can read it there',
  );
  if (isStrict) throw problem;
  onProblem(problem);
}

function variable(name: string, field: string, { env }: Sources): string {
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

function content(name: string, field: string, { files }: Sources): string {
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
