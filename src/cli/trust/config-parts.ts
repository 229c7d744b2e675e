/**
 * Splits a configuration into the parts that need confirmation: those that start a program, reach an address or admit a client.
 * Each part has a digest of all settings that change its behaviour.
 * Not here: storing confirmations (trust-store.ts), unconfirmed parts (unconfirmed-changes.ts).
 * Invariants: equal digests mean equal parts. A setting that is new in a later version needs confirmation unless it is added to
 * a list below.
 */
import { hash } from 'node:crypto';
import { parseEnv } from 'node:util';
import { filesNamedIn } from '../../config/placeholder-syntax.js';
import type { PlaceholderFiles } from '../../config/placeholders.js';

type Table = Readonly<Record<string, unknown>>;

export interface ConfigPart {
  /** Path: `['mcpServers', name]`, `['keys', name]`, or `[setting]` of the top level. */
  readonly at: readonly string[];
  /** Value as written, without the settings that need no confirmation. */
  readonly value: unknown;
  readonly digest: string;
  /** Variables of the `envFile` of a server; undefined if it has none that can be read. */
  readonly fileEnv?: Table | undefined;
}

/**
 * Settings of a server that need no confirmation. `card` needs one: its URL is fetched and may contain `${env:...}`. `pins` and
 * `trustAnnotations` need one: they can switch off protection against the server.
 */
const uncoveredKeys: ReadonlySet<string> = new Set([
  ...['label', 'enabled', 'lazy', 'keepAlive', 'restart', 'breaker', 'timeouts', 'concurrency', 'queueLength', 'cache'],
  ...['isolation', 'tools', 'repair'],
]);

/** Top-level settings that need no confirmation. */
const settingsThatStartNothing: ReadonlySet<string> = new Set([
  ...['$schema', 'roles', 'unlistedRole', 'budgets', 'groups', 'log', 'telemetry', 'idleExit'],
]);

/** `config`: with its placeholders as written. */
export function partsOf(config: unknown, files: PlaceholderFiles): ConfigPart[] {
  const part = (at: readonly string[], value: unknown): ConfigPart => ({
    ...{ at, value, digest: digest(at, value, files) },
    fileEnv: at[0] === 'mcpServers' ? envOfFile(value, files) : undefined,
  });
  if (!isTable(config)) return [];
  return Object.entries(config).flatMap(([key, value]) => {
    if (settingsThatStartNothing.has(key)) return [];
    if (key === 'mcpServers' && isTable(value))
      return Object.entries(value).map(([name, entry]) => part([key, name], splitEntry(entry).covered));
    if (key === 'keys' && isTable(value)) return Object.entries(value).map(([name, entry]) => part([key, name], entry));
    return [part([key], value)];
  });
}

/** The digest of an entry of `keys` that a command is about to write. Such an entry has no placeholders. */
export const digestOfKey = (name: string, entry: unknown): string =>
  hash('sha256', canonical(['keys', name, entry, []]));

/** `covered`: settings that need confirmation. `treatment`: settings that do not. */
export function splitEntry(entry: unknown): { readonly covered: unknown; readonly treatment: Table } {
  if (!isTable(entry)) return { covered: entry, treatment: {} };
  const keep = (isTreatment: boolean): Table =>
    Object.fromEntries(Object.entries(entry).filter(([key]) => uncoveredKeys.has(key) === isTreatment));
  return { covered: keep(false), treatment: keep(true) };
}

export const isTable = (value: unknown): value is Table =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * The digest covers a variable by its name only, and a file by its path and content. A file that is named in a header or in a
 * secret of `auth` is covered by its path: the content is only sent to the confirmed address, and may be rotated.
 */
function digest(at: readonly string[], value: unknown, files: PlaceholderFiles): string {
  const isServer = at[0] === 'mcpServers' && isTable(value);
  const named = new Set(textsIn(isServer ? withoutSecrets(value) : value).flatMap(filesNamedIn));
  if (isServer && typeof value.envFile === 'string') named.add(value.envFile);
  const contents = [...named].sort().map((name) => {
    const read = files.read(name);
    return [name, 'text' in read ? hash('sha256', read.text) : null];
  });
  return hash('sha256', canonical([...at, value, contents]));
}

/** Leaves out the headers and the secrets of `auth`. The rest of `auth` stays, because it says where the secrets are sent. */
function withoutSecrets({ headers: _headers, auth, ...others }: Table): unknown[] {
  if (!isTable(auth)) return [others, auth];
  const { clientSecret: _secret, clientKey, ...rest } = auth;
  if (!isTable(clientKey)) return [others, rest, clientKey];
  const { pem: _pem, ...key } = clientKey;
  return [others, rest, key];
}

function envOfFile(entry: unknown, files: PlaceholderFiles): Table | undefined {
  if (!isTable(entry) || typeof entry.envFile !== 'string') return undefined;
  const read = files.read(entry.envFile);
  return 'text' in read ? parseEnv(read.text) : undefined;
}

function textsIn(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(textsIn) : [];
}

/** The result does not depend on the order of members. */
function canonical(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value !== 'object' || value === null) return String(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${canonical(member)}`).join(',')}}`;
}
