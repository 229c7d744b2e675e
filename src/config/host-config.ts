/**
 * Parses the whole configuration (`hostler.json`): `unknown` → frozen HostSettings with all defaults.
 * A mistake in one entry is reported and disables that entry. Any other mistake is thrown, with its path.
 * Not here: one server's entry (server-definition.ts), the effect of roles and budgets on a call (policy/).
 * Invariants: an unknown key in a section of Hostler is refused; client-config.ts decides about all other keys. An invalid entry
 * never grants more than a valid one: an invalid role may use nothing, and an invalid budget allows no call.
 */
import * as z from 'zod/mini';
import { faultsOf, type HostError, isHostError, joinFaults } from '../kernel/errors.js';
import { didYouMean } from '../kernel/nearest-name.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { type IdentitySettings, identityEntry } from './auth-settings.js';
import { type BrokerSettings, brokerEntry, removedBrokerMembers } from './broker-settings.js';
import { normaliseConfig } from './client-config.js';
import { copyConfig, UnusableEntry } from './copy-config.js';
import { invalidSpec } from './invalid-spec.js';
import { hostConfigKeys, nearestKey } from './known-keys.js';
import { type ListenSettings, type LogSettings, listenEntry, logEntry } from './listen-settings.js';
import { firstIssue, issuesOf } from './schema-issues.js';
import { type SecretsSettings, secretsEntry } from './secrets/secrets-settings.js';
import { parseServerDefinition, type ServerDefinition, type UnusableServer } from './server-definition.js';
import { unlistedRoleHint, unlistedRoles, unlistedRoleText } from './unlisted-roles.js';
import { parseDuration } from './values.js';

/** A server and a tool that a role may use. `*` means all. */
export interface RolePattern {
  readonly server: string;
  readonly tool: string;
}

interface RateLimit {
  readonly calls: number;
  readonly windowMs: number;
}

export interface HostSettings {
  /** Valid entries, by slug (server-name.ts). */
  readonly mcpServers: ReadonlyMap<string, ServerDefinition>;
  /** Invalid entries of `mcpServers`, by slug. */
  readonly unusable: ReadonlyMap<string, UnusableServer>;
  /** Patterns by role. If `roles` and `unlistedRole` are undefined, a caller with a role is refused. */
  readonly roles: ReadonlyMap<string, readonly RolePattern[]> | undefined;
  readonly unlistedRole: 'deny' | 'allow' | undefined;
  readonly budgets: {
    readonly principals: ReadonlyMap<string, RateLimit>;
    readonly roles: ReadonlyMap<string, RateLimit>;
  };
  /** Server names by group. */
  readonly groups: ReadonlyMap<string, readonly string[]>;
  readonly telemetry: { readonly traces: boolean };
  /** How long a host that a relay started runs without a client; 0 for no limit. */
  readonly idleExitMs: number;
  /** Unparsed entries by name. The gateway and the broker parse them (keys.ts). */
  readonly keys: Entries;
  readonly listen: ListenSettings;
  readonly log: LogSettings;
  readonly secrets: SecretsSettings;
  /** Undefined if no workers are served. */
  readonly broker: BrokerSettings | undefined;
  /** Where tokens are stored. Has an effect only in the user's own configuration. */
  readonly identity: IdentitySettings | undefined;
}

const entriesMax = 10_000;
const shownChars = 200;

const callsMax = 1_000_000_000;
const wrongCalls = `must be a whole number from 0 to ${callsMax}`;
export const roleEntry = z.strictObject({ allow: z.array(z.unknown(), 'must be a list of server/tool') });
export const rateLimitEntry = z.strictObject({
  calls: z.int(wrongCalls).check(z.minimum(0, wrongCalls), z.maximum(callsMax, wrongCalls)),
  window: z.union([z.number(), z.string()], 'must be a duration like 1m'),
});
export const telemetryEntry = z.strictObject({ traces: z._default(z.boolean('must be true or false'), false) });
const groupName = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/;

type Entries = Readonly<Record<string, unknown>>;
type OnProblem = (problem: HostError) => void;
type Report = (field: string, what: string, hint?: string) => void;

/** `isFromFile`: references to secrets are resolved later. Without a file, a text that looks like a reference is reported. */
export const parseHostConfig = (input: unknown, onProblem: OnProblem, isFromFile = false): HostSettings =>
  parseWith(input, onProblem, (written, report) => parseServers(written, report, isFromFile));

/** All faults: those that make the configuration unusable, then those of single entries. */
export function configFaults(input: unknown, isFromFile = false): readonly HostError[] {
  const ofEntries: HostError[] = [];
  try {
    parseHostConfig(input, (problem) => ofEntries.push(problem), isFromFile);
    return ofEntries;
  } catch (error) {
    if (!isHostError(error)) throw error;
    return [...faultsOf(error), ...ofEntries];
  }
}

/** Parses all settings except servers. Does not report mistakes in single entries. */
export const parseServing = (input: unknown): Omit<HostSettings, 'mcpServers' | 'unusable'> =>
  parseWith(
    input,
    () => {},
    () => ({ mcpServers: new Map(), unusable: new Map() }),
  );

type ParsedServers = Pick<HostSettings, 'mcpServers' | 'unusable'>;
type ParseServers = (written: Entries, onProblem: OnProblem) => ParsedServers;

/** Throws all faults of the file that concern no single entry (`faultsOf`). */
function parseWith(input: unknown, onProblem: OnProblem, parse: ParseServers): HostSettings {
  const { config: normalised, notes } = normaliseConfig(copyConfig(input));
  const config = table('', normalised);
  for (const note of notes) onProblem(note);
  const faults = Object.keys(config).flatMap((key) => (isKnown(key) ? [] : [unknownKey(key)]));
  const attempt = <T>(read: () => T, otherwise: T): T => {
    try {
      return read();
    } catch (error) {
      if (!isHostError(error)) throw error;
      faults.push(...faultsOf(error));
      return otherwise;
    }
  };
  const { $schema = '', roles, unlistedRole, broker, identity } = config;
  const entries = (key: string): Entries => attempt(() => table(key, config[key] === undefined ? {} : config[key]), {});
  const report: Report = (field, what, hint = entryHint) => onProblem(invalidSpec(field, what, hint));
  if (typeof $schema !== 'string')
    faults.push(invalidSpec('$schema', 'must be the address of a schema', 'leave it out'));

  const written = entries('mcpServers');
  const names: ServerNames = new Map(Object.entries(written).map(([name, entry]) => [name, labelOf(entry)]));
  const isRule = unlistedRole === undefined || unlistedRole === 'deny' || unlistedRole === 'allow';
  if (!isRule) faults.push(invalidSpec('unlistedRole', 'must be "deny" or "allow"', 'leave it out to deny'));
  const { principals = {}, roles: ofRoles = {}, ...rest } = entries('budgets');
  for (const odd of Object.keys(rest))
    faults.push(invalidSpec(`budgets.${shown(odd)}`, 'is not known', 'use budgets.principals or budgets.roles'));
  const parsed = <T>(
    path: string,
    given: unknown,
    read: (at: string, entry: unknown, name: string) => T | undefined,
  ): ReadonlyMap<string, T> => attempt(() => parseEntries(path, given, report, read), new Map());
  const section = <T extends object>(key: string, schema: z.ZodMiniType<T>): Readonly<T> =>
    attempt(() => parseSection(key, schema, entries(key)), {} as T);

  const settings: HostSettings = {
    ...parse(written, onProblem),
    roles: roles === undefined ? undefined : parsed('roles', roles, (at, entry) => parseRole(at, entry, names, report)),
    unlistedRole: isRule ? (unlistedRole ?? (roles === undefined ? undefined : 'deny')) : 'deny',
    budgets: Object.freeze({
      principals: parsed('budgets.principals', principals, (at, entry) => parseRateLimit(at, entry, report)),
      roles: parsed('budgets.roles', ofRoles, (at, entry) => parseRateLimit(at, entry, report)),
    }),
    groups: parsed('groups', entries('groups'), (at, entry, name) => parseGroup(at, entry, name, names, report)),
    telemetry: section('telemetry', telemetryEntry),
    idleExitMs: attempt(() => parseIdleExit(config.idleExit ?? idleExitDefault), 0),
    keys: entries('keys'),
    listen: section('listen', listenEntry),
    log: section('log', logEntry),
    secrets: section('secrets', secretsEntry),
    broker: broker === undefined ? undefined : section('broker', brokerEntry),
    identity: identity === undefined ? undefined : section('identity', identityEntry),
  };
  for (const { key, role } of unlistedRoles(settings.keys, settings.roles, settings.unlistedRole))
    report(`keys.${shown(key)}.role`, `${unlistedRoleText(role)}: this key may use nothing`, unlistedRoleHint);
  for (const role of settings.budgets.roles.keys())
    if (settings.unlistedRole !== 'allow' && !settings.roles?.has(role))
      report(
        `budgets.roles.${shown(role)}`,
        `${unlistedRoleText(role)}: this budget limits no caller`,
        unlistedRoleHint,
      );
  if (faults.length > 0) throw joinFaults(faults);
  return Object.freeze(settings);
}

function parseServers(written: Entries, onProblem: OnProblem, isFromFile: boolean): ParsedServers {
  const mcpServers = new Map<string, ServerDefinition>();
  const unusable = new Map<string, UnusableServer>();
  for (const [name, entry] of Object.entries(written)) {
    const unused = entry instanceof UnusableEntry ? entry : undefined;
    const faults = unused ? [...faultsOf(unused.error)] : [];
    const given = unused ? unused.entry : entry;
    try {
      const definition = unused && given === undefined ? undefined : parseServerDefinition(name, given, true);
      if (definition && faults.length === 0) {
        mcpServers.set(name, definition);
        if (!isFromFile && placeholder.test(JSON.stringify(definition))) onProblem(notReplaced(name));
      }
    } catch (thrown) {
      // An internal error of a parser must also disable only this entry.
      const others = isHostError(thrown)
        ? faultsOf(thrown)
        : [invalidSpec(`mcpServers.${shown(name)}`, 'cannot be used', entryHint, { cause: thrown })];
      const known = new Set(faults.map(({ details }) => details.field));
      faults.push(...others.filter(({ details }) => !known.has(details.field)));
    }
    if (faults.length === 0) continue;
    for (const fault of faults) onProblem(fault);
    unusable.set(name, { error: faults[0] as HostError, label: unused?.label ?? labelOf(given) ?? name });
  }
  return { mcpServers, unusable };
}

/** Labels by slug. */
type ServerNames = ReadonlyMap<string, string | undefined>;

/** Returns the start of a hint. A role or group names a server by slug; `text` may be the name as the client wrote it. */
function meantServer(servers: ServerNames, text: string): string {
  const isLabel = (label: string | undefined) => label === text || (label && text.startsWith(`${label}/`));
  const [slug] = [...servers].find(([, label]) => isLabel(label)) ?? [];
  return slug === undefined ? didYouMean(text.split('/', 1)[0] ?? '', servers.keys()) : `did you mean ${slug}? `;
}

const labelOf = (entry: unknown): string | undefined => {
  const label = typeof entry === 'object' && entry !== null ? (entry as { label?: unknown }).label : undefined;
  return typeof label === 'string' ? label : undefined;
};

/** An invalid role stays listed and may use nothing. Otherwise `unlistedRole: "allow"` would allow it everything. */
function parseRole(at: string, entry: unknown, servers: ServerNames, report: Report): readonly RolePattern[] {
  const parsed = roleEntry.safeParse(entry);
  if (!parsed.success) {
    const { field, what } = firstIssue(parsed.error, at);
    report(field, what, 'correct it; until then this role may use nothing');
    return Object.freeze([]);
  }
  const patterns = list(`${at}.allow`, parsed.data.allow, report, (field, pattern) => {
    const { server, tool } = splitPattern(pattern);
    if (server.trim() === '' || tool.trim() === '') {
      report(field, `'${shown(pattern)}' is not of the form server/tool and was left out`, patternHint);
      return false;
    }
    if (server !== '*' && !servers.has(server)) {
      report(
        field,
        `names the server '${shown(server)}', which is not configured; the pattern applies as written`,
        `${meantServer(servers, pattern)}${patternHint}`,
      );
    } else if (tool !== '*' && tool.includes('*')) {
      report(field, `'${shown(pattern)}' matches only a tool with exactly this name, star included`, patternHint);
    }
    return true;
  });
  return Object.freeze(patterns.map(splitPattern));
}

/** Splits at the first slash, because a tool name may contain slashes. Without a slash the server is empty. */
function splitPattern(pattern: string): RolePattern {
  const slash = pattern.indexOf('/');
  return { server: pattern.slice(0, Math.max(slash, 0)), tool: pattern.slice(slash + 1) };
}

const patternHint = 'write server/tool, server/* for all tools of a server, or */* for everything';

/** An invalid budget allows no call. If it were left out, there would be no limit. */
function parseRateLimit(at: string, entry: unknown, report: Report): RateLimit {
  const nothing = Object.freeze({ calls: 0, windowMs: 60_000 });
  const hint = 'correct it; until then no call is allowed';
  const parsed = rateLimitEntry.safeParse(entry);
  if (!parsed.success) {
    const { field, what } = firstIssue(parsed.error, at);
    report(field, what, hint);
    return nothing;
  }
  const { calls, window } = parsed.data;
  try {
    return Object.freeze({ calls, windowMs: parseDuration(window, 'window') });
  } catch (error) {
    if (!isHostError(error)) throw error;
    report(`${at}.window`, error.message.replace(/^window: /, ''), hint);
    return nothing;
  }
}

function parseGroup(
  at: string,
  entry: unknown,
  name: string,
  servers: ServerNames,
  report: Report,
): readonly string[] | undefined {
  if (!groupName.test(name)) {
    report(at, 'is not a valid group name', 'use 1 to 64 letters, digits, dots, dashes or underscores');
    return undefined;
  }
  if (!Array.isArray(entry)) {
    report(at, 'must be a list of servers');
    return undefined;
  }
  return list(at, entry, report, (field, server) => {
    if (!servers.has(server))
      report(
        field,
        `names the server '${shown(server)}', which is not configured`,
        `${meantServer(servers, server)}${entryHint}`,
      );
    return true;
  });
}

const idleExitDefault = '30s';

function parseIdleExit(value: unknown): number {
  if (value === 0 || value === '0') return 0;
  if (typeof value === 'number' || typeof value === 'string') return parseDuration(value, 'idleExit');
  throw invalidSpec('idleExit', 'must be a duration like 30s, or 0');
}

/** Parses a section without entries. One mistake makes the whole configuration unusable. */
function parseSection<T extends object>(at: string, schema: z.ZodMiniType<T>, input: Entries): Readonly<T> {
  const parsed = schema.safeParse(input);
  if (parsed.success) return Object.freeze(parsed.data);
  const faults = issuesOf(parsed.error, at).map(({ field, what }) => {
    const removed = at === 'broker' ? removedBrokerMembers[field.slice('broker.'.length)] : undefined;
    return removed === undefined ? invalidSpec(field, what) : invalidSpec(field, 'is not used any more', removed);
  });
  throw joinFaults(faults);
}

/** Trims names, drops blank names, and prefers the later of two equal names. Reports each of these changes. */
function parseEntries<T>(
  path: string,
  input: unknown,
  report: Report,
  parse: (at: string, entry: unknown, name: string) => T | undefined,
): ReadonlyMap<string, T> {
  const found = new Map<string, T>();
  for (const [written, given] of Object.entries(table(path, input))) {
    const name = written.trim();
    const at = `${path}.${shown(name)}`;
    // `parse` gets undefined for an unusable entry: a role or budget then allows nothing.
    const entry = given instanceof UnusableEntry ? undefined : given;
    if (given instanceof UnusableEntry) reportUnusable(at, given.error, report);
    if (name === '') {
      report(path, 'a blank name was left out');
      continue;
    }
    if (name !== written) report(at, 'the blanks around its name were removed');
    if (found.has(name)) report(at, 'is given twice; the later one is used');
    const value = parse(at, entry, name);
    if (value === undefined) found.delete(name);
    else found.set(name, value);
  }
  return found;
}

function reportUnusable(at: string, { message, hint, details: { field = at } }: HostError, report: Report): void {
  report(field, message.startsWith(`${field}: `) ? message.slice(field.length + 2) : message, hint);
}

/** Trims the texts of a list and removes duplicates. Reports each change. */
function list(
  path: string,
  input: readonly unknown[],
  report: Report,
  isUsable: (field: string, text: string) => boolean,
): readonly string[] {
  const kept = new Set<string>();
  // copy-config.ts has checked the length.
  for (const [i, written] of input.entries()) {
    const field = `${path}.${i}`;
    const text = typeof written === 'string' ? written.trim() : undefined;
    if (text === undefined) report(field, 'is not a text and was left out');
    else if (text === '') report(field, 'is blank and was left out');
    else if (kept.has(text)) report(field, `'${shown(text)}' is given twice`);
    else {
      if (text !== written) report(field, 'the blanks around it were removed');
      if (isUsable(field, text)) kept.add(text);
    }
  }
  return Object.freeze([...kept]);
}

function table(path: string, input: unknown): Entries {
  const prefix = path === '' ? 'the configuration: ' : '';
  if (typeof input !== 'object' || input === null || Array.isArray(input))
    throw invalidSpec(path, `${prefix}must be an object`);
  if (Object.keys(input).length > entriesMax) throw invalidSpec(path, `${prefix}has more than ${entriesMax} entries`);
  return input as Entries;
}

const isKnown = (key: string): boolean => (hostConfigKeys as readonly string[]).includes(key);
const shown = (text: string): string => neutraliseLine(text, shownChars);

/** config-file.ts replaces placeholders only in a file, not in an object of an embedder. */
const placeholder = /\$\{(?:env|file):/;
const notReplaced = (server: string): HostError =>
  invalidSpec(
    `mcpServers.${shown(server)}`,
    'has a value with an env: or file: placeholder; placeholders are replaced only in a file, so it is used as written',
    'replace the placeholder before passing the configuration',
  );

const entryHint = 'correct this entry; the others are not affected';

const unknownKey = (key: string): HostError =>
  invalidSpec(
    shown(key),
    `is not a key of the configuration${nearestKey(key, hostConfigKeys) === undefined ? '' : `; did you mean ${nearestKey(key, hostConfigKeys)}?`}`,
    `known are ${hostConfigKeys.join(', ')}`,
  );
