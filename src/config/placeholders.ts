/**
 * Replaces the placeholders (placeholder-syntax.ts) in the values of a configuration, not in keys, and reads the `envFile` of
 * servers. In variables and headers of a server, `${file:PATH}` and `${exec:NAME}` stay as references, which are resolved when
 * the server starts (secrets/).
 * Not here: reading the configuration (config-file.ts), validation of entries (host-config.ts).
 * Invariants: a placeholder that cannot be replaced disables only its own entry, and never grants more than that entry would.
 * Errors quote no value. Replaced values are reported as secrets, except harmless variables and defaults.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import { parseEnv } from 'node:util';
import { type HostError, isHostError, joinFaults, thrownText } from '../kernel/errors.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { type EntryTable, isEntryTable, UnusableEntry } from './copy-config.js';
import { configFolder } from './folders.js';
import { invalidSpec } from './invalid-spec.js';
import { type Reference, replacePlaceholders } from './placeholder-syntax.js';
import { secretName } from './plain-secrets.js';
import { isLateField, literal, referenceText } from './secrets/references.js';

export interface PlaceholderSources {
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
  const secrets = new Set<string>();
  const problems: HostError[] = [];
  const sources: Sources = {
    ...given,
    files: given.files ?? new PlaceholderFiles(given.folder, given.env),
    areFilesConfirmed: given.areFilesConfirmed === true,
    ...secretsSettings(config),
    onSecret: (value) => secrets.add(value),
    onProblem: (problem) => problems.push(problem),
  };

  /** Adds a fault for each text that cannot be filled, and leaves the text as it is. */
  const fill = (value: unknown, at: readonly string[], faults: HostError[]): unknown => {
    if (typeof value === 'string') return fillText(value, at, sources, faults);
    if (at.length > depthMax || typeof value !== 'object' || value === null) return value;
    if (value instanceof UnusableEntry) return value;
    if (Array.isArray(value)) return value.map((each, i) => fill(each, [...at, String(i)], faults));
    const table = at.join('.');
    const filled: Table = Object.create(null);
    for (const [key, each] of Object.entries(value)) {
      const place = [...at, neutraliseLine(key, shownChars)];
      if (!isEntryTable(table)) {
        filled[key] = fill(each, place, faults);
        continue;
      }
      const ofEntry: HostError[] = [];
      const entry = fill(each, place, ofEntry);
      const whole = table === 'mcpServers' ? withEnvFile(each, entry, place, sources, ofEntry) : entry;
      if (ofEntry.length === 0) filled[key] = whole;
      else if (table === 'mcpServers') filled[key] = new UnusableEntry(joinFaults(ofEntry), { entry: whole });
      else {
        problems.push(...ofEntry);
        const instead = closed.get(table);
        if (instead !== undefined) filled[key] = instead;
      }
    }
    return filled;
  };
  const faults: HostError[] = [];
  const filled = fill(config, [], faults);
  if (faults.length > 0) throw joinFaults(faults);
  return { config: filled, secrets: [...secrets], problems };
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

/** Adds a fault and returns the text as it is, if a placeholder cannot be replaced. */
function fillText(text: string, at: readonly string[], sources: Sources, faults: HostError[]): string {
  const isLate = isLateField(at);
  try {
    // Only late texts (secrets/references.ts) are searched for references again, so only they need escapes.
    const plain = isLate ? literal : undefined;
    return replacePlaceholders(text, { isValue: isLate, plain, replace: (found) => replaced(found, at, sources) });
  } catch (error) {
    if (!isHostError(error)) throw error;
    faults.push(error);
    return text;
  }
}

function replaced(found: Reference, at: readonly string[], sources: Sources): string {
  const field = at.join('.');
  const isLate = isLateField(at);
  const plain = (part: string): string => (isLate ? literal(part) : part);
  const secret = (value: string, name: string): string => {
    sources.onSecret(value);
    if (at[2] === 'args' && (found.kind === 'file' || secretName.test(name))) onCommandLine(field, sources);
    return plain(value);
  };
  switch (found.kind) {
    case 'text':
      return plain(found.text);
    case 'folder':
      return plain(folderOf(found.name, field, sources));
    case 'refused':
      throw invalidSpec(field, found.what, found.hint);
    case 'exec':
      return commandReference(found.name, field, isLate, sources);
    case 'file':
      return isLate && !(sources.areFilesConfirmed && at[2] === 'env')
        ? referenceText({ kind: 'file', name: sources.files.pathOf(found.name) })
        : secret(content(found.name, field, sources), found.name);
    case 'env': {
      const { name, otherwise } = found;
      // Every object inherits `toString`, so only own members count.
      const value = Object.hasOwn(sources.env, name) ? sources.env[name] : undefined;
      if (value !== undefined) return harmless.test(name) ? plain(value) : secret(value, name);
      if (otherwise !== undefined) return plain(otherwise);
      throw notSet(name, field);
    }
    default:
      return found satisfies never;
  }
}

function notSet(name: string, field: string): HostError {
  const shown = neutraliseLine(name, shownChars);
  const hint = `set ${shown} in the environment of hostler, or remove the entry`;
  return invalidSpec(field, `the variable ${shown} is not set`, hint);
}

function commandReference(name: string, field: string, isLate: boolean, { commands }: Sources): string {
  const shown = neutraliseLine(name, shownChars);
  if (!isLate)
    throw invalidSpec(
      field,
      `the output of the command '${shown}' cannot be used here`,
      'use it in env, headers, auth.clientSecret or auth.clientKey.pem',
    );
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

function folderOf(name: string, field: string, { env, folder }: PlaceholderSources): string {
  if (name === 'userHome') return env.HOME ?? homedir();
  const project = projectFolder(env, folder);
  if (project !== undefined) return name === 'workspaceFolderBasename' ? path.basename(project) : project;
  const what = `\${${name}} needs the folder of a project, but this is a file of the user`;
  throw invalidSpec(field, what, 'write the path instead');
}

/**
 * Returns undefined if the configuration belongs to a user, not to a project. Clients keep files of a project in folders such as
 * `.vscode`, and files of the user in the home or configuration folder.
 */
function projectFolder(env: PlaceholderSources['env'], folder: string): string | undefined {
  const project = path.basename(folder).startsWith('.') ? path.dirname(folder) : folder;
  const settings = configFolder(env);
  const own = settings === undefined ? undefined : path.dirname(settings);
  const isUsers =
    project === env.HOME || (own !== undefined && `${project}${path.sep}`.startsWith(`${own}${path.sep}`));
  return isUsers ? undefined : project;
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

/** Adds the variables of `envFile`; those of `env` have priority. The path is used as written, as users confirm it. */
function withEnvFile(
  written: unknown,
  entry: unknown,
  at: readonly string[],
  sources: Sources,
  faults: HostError[],
): unknown {
  const { envFile } = (written ?? {}) as { envFile?: unknown };
  if (typeof envFile !== 'string') return entry;
  const { envFile: _used, env = {}, ...rest } = entry as Table;
  try {
    const variables = parseEnv(content(envFile, [...at, 'envFile'].join('.'), sources));
    const literals = Object.entries(variables).map(([name, value = '']) => {
      if (!harmless.test(name)) sources.onSecret(value);
      return [name, literal(value)];
    });
    return isPlain(env) ? { ...rest, env: { ...Object.fromEntries(literals), ...env } } : { ...rest, env };
  } catch (error) {
    faults.push(isHostError(error) ? error : invalidSpec([...at, 'envFile'].join('.'), thrownText(error)));
    return { ...rest, env };
  }
}

const isPlain = (value: unknown): value is Table =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

type FileText = { readonly text: string } | { readonly why: string };

const fileBytesMax = 64 * 1024;

/** Reads each file once per configuration, so the confirmed text is the text that is filled in. */
export class PlaceholderFiles {
  readonly #folder: string;
  readonly #env: PlaceholderSources['env'];
  readonly #texts = new Map<string, FileText>();

  constructor(folder: string, env: PlaceholderSources['env'] = {}) {
    this.#folder = folder;
    this.#env = env;
  }

  /** `~/` is the home of the user. */
  pathOf(name: string): string {
    return path.resolve(this.#folder, name.replace(/^~(?=\/)/, this.#env.HOME ?? homedir()));
  }

  /** The path may contain placeholders for variables and folders. */
  read(name: string): FileText {
    const faults: HostError[] = [];
    const sources = { env: this.#env, folder: this.#folder, files: this, ...noSecrets };
    const file = this.pathOf(fillText(name, [], sources, faults));
    if (faults[0]) return { why: `cannot be found: ${faults[0].message}` };
    const known = this.#texts.get(file);
    if (known) return known;
    const text = readText(file);
    this.#texts.set(file, text);
    return text;
  }
}

const noSecrets = {
  ...{ areFilesConfirmed: false, commands: new Set<string>(), isStrict: false },
  ...{ onSecret: () => {}, onProblem: () => {} },
};

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
