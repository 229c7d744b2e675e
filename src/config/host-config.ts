/**
 * The whole configuration (`hostler.json`, already JSON): `unknown` → frozen HostSettings with every default filled in.
 * What makes the file unusable as a whole is thrown, with its path; what concerns one entry is told, and disables that entry.
 * Not here: one server's entry (server-definition.ts), what roles and ceilings do to a call (policy/).
 *
 * Invariants: a key that nothing acts on is refused; an entry that cannot be read never gives more than it would have when
 * read: its role may use nothing, its ceiling lets no call pass.
 */
import { z } from 'zod';
import { HostError, isHostError } from '../kernel/errors.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { type BrokerSettings, brokerEntry } from './broker-settings.js';
import { type ListenSettings, type LogSettings, listenEntry, logEntry } from './listen-settings.js';
import { copyConfig, UnusableEntry } from './plain-data.js';
import { firstIssue } from './schema-issues.js';
import { parseServerDefinition, type ServerDefinition } from './server-definition.js';
import { unlistedRoleHint, unlistedRoles, unlistedRoleText } from './unlisted-roles.js';
import { parseDuration } from './values.js';

/** One thing a role may use. A `*` stands for everything on its side, and only by itself. */
export interface RolePattern {
  readonly server: string;
  readonly tool: string;
}

/** At most `calls` in each window. */
export interface Ceiling {
  readonly calls: number;
  readonly windowMs: number;
}

export interface HostSettings {
  readonly mcpServers: ReadonlyMap<string, ServerDefinition>;
  /** Entries of `mcpServers` that cannot be used, and why. */
  readonly unusable: ReadonlyMap<string, HostError>;
  /** By role. Undefined together with `unlistedRole`: there are no roles, and who names one is refused. */
  readonly roles: ReadonlyMap<string, readonly RolePattern[]> | undefined;
  readonly unlistedRole: 'deny' | 'allow' | undefined;
  readonly budgets: {
    readonly principals: ReadonlyMap<string, Ceiling>;
    readonly roles: ReadonlyMap<string, Ceiling>;
  };
  /** Servers by the name of their group. */
  readonly groups: ReadonlyMap<string, readonly string[]>;
  readonly telemetry: { readonly traces: boolean };
  /** By name, as written. The host itself asks nobody for a key: whoever does reads the entries. */
  readonly keys: Entries;
  readonly listen: ListenSettings;
  readonly log: LogSettings;
  /** Undefined: nobody on another machine is served. */
  readonly broker: BrokerSettings | undefined;
}

/** Every key of the top level. */
export const hostConfigKeys = [
  ...(['$schema', 'mcpServers', 'roles', 'unlistedRole', 'budgets', 'groups', 'keys', 'listen', 'log'] as const),
  ...(['broker', 'telemetry'] as const),
] as const;

/** Of each table and list. */
const entriesMax = 10_000;
const shownChars = 200;

const callsMax = 1_000_000_000;
const wrongCalls = `must be a whole number from 0 to ${callsMax}`;
export const roleEntry = z.strictObject({ allow: z.array(z.unknown(), 'must be a list of server/tool') });
export const ceilingEntry = z.strictObject({
  calls: z.int(wrongCalls).min(0, wrongCalls).max(callsMax, wrongCalls),
  window: z.union([z.number(), z.string()], 'must be a duration like 1m'),
});
const groupName = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/;

type Entries = Readonly<Record<string, unknown>>;
/** Something is wrong with one entry. */
type Tell = (field: string, what: string, hint?: string) => void;

export const parseHostConfig = (input: unknown, onProblem: (problem: HostError) => void): HostSettings =>
  parseWith(copyConfig(input), onProblem, parseServers);

/** How all of it is served. Throws what `parseHostConfig` throws; what is wrong with single entries is told by that alone. */
export const parseServing = (
  input: unknown,
): Pick<HostSettings, 'keys' | 'listen' | 'log' | 'broker' | 'roles' | 'unlistedRole'> =>
  parseWith(
    copyConfig(input),
    () => {},
    () => noServers,
  );

function parseWith(input: unknown, onProblem: (problem: HostError) => void, parse: typeof parseServers): HostSettings {
  const config = table('', input);
  for (const key of Object.keys(config)) if (!isKnown(key)) throw unknownKey(key);
  const { mcpServers = {}, roles, unlistedRole, budgets = {}, groups = {}, telemetry = {} } = config;
  const { $schema = '', keys = {}, listen = {}, log = {}, broker } = config;
  if (typeof $schema !== 'string') throw invalid('$schema', 'must be the address of a schema', 'leave it out');
  const tell: Tell = (field, what, hint = 'correct this entry; the others are not affected') =>
    onProblem(invalid(field, what, hint));

  const written = table('mcpServers', mcpServers);
  const names: ReadonlySet<string> = new Set(Object.keys(written));
  if (unlistedRole !== undefined && unlistedRole !== 'deny' && unlistedRole !== 'allow') {
    throw invalid('unlistedRole', 'must be "deny" or "allow"', 'leave it out to deny');
  }
  const { principals = {}, roles: ofRoles = {}, ...rest } = table('budgets', budgets);
  const [odd] = Object.keys(rest);
  if (odd !== undefined)
    throw invalid(`budgets.${shown(odd)}`, 'is not known', 'use budgets.principals or budgets.roles');

  const settings: HostSettings = {
    ...parse(written, onProblem),
    roles:
      roles === undefined ? undefined : each('roles', roles, tell, (at, entry) => parseRole(at, entry, names, tell)),
    unlistedRole: unlistedRole ?? (roles === undefined ? undefined : 'deny'),
    budgets: Object.freeze({
      principals: each('budgets.principals', principals, tell, (at, entry) => parseCeiling(at, entry, tell)),
      roles: each('budgets.roles', ofRoles, tell, (at, entry) => parseCeiling(at, entry, tell)),
    }),
    groups: each('groups', groups, tell, (at, entry, name) => parseGroup(at, entry, name, names, tell)),
    telemetry: parseTelemetry(telemetry),
    keys: table('keys', keys),
    listen: whole('listen', listenEntry, table('listen', listen)),
    log: whole('log', logEntry, table('log', log)),
    broker: broker === undefined ? undefined : whole('broker', brokerEntry, table('broker', broker)),
  };
  for (const { key, role } of unlistedRoles(settings.keys, settings.roles, settings.unlistedRole))
    tell(`keys.${shown(key)}.role`, `${unlistedRoleText(role)}: this key may use nothing`, unlistedRoleHint);
  return Object.freeze(settings);
}

type ParsedServers = Pick<HostSettings, 'mcpServers' | 'unusable'>;
const noServers: ParsedServers = { mcpServers: new Map(), unusable: new Map() };

function parseServers(written: Entries, onProblem: (problem: HostError) => void): ParsedServers {
  const mcpServers = new Map<string, ServerDefinition>();
  const unusable = new Map<string, HostError>();
  for (const [name, entry] of Object.entries(written)) {
    try {
      if (entry instanceof UnusableEntry) throw entry.error;
      const definition = parseServerDefinition(name, entry, true);
      if (placeholder.test(JSON.stringify(definition))) onProblem(notReplaced(name));
      mcpServers.set(name, definition);
    } catch (thrown) {
      // Whatever a parser throws disables this entry and no other.
      const error = isHostError(thrown) ? thrown : unexpected(`mcpServers.${shown(name)}`, thrown);
      unusable.set(name, error);
      onProblem(error);
    }
  }
  return { mcpServers, unusable };
}

/** A role that cannot be read stays listed, with nothing: left out, `unlistedRole: "allow"` would open everything to it. */
function parseRole(at: string, entry: unknown, servers: ReadonlySet<string>, tell: Tell): readonly RolePattern[] {
  const parsed = roleEntry.safeParse(entry);
  if (!parsed.success) {
    const { field, what } = firstIssue(parsed.error, at);
    tell(field, what, 'correct it; until then this role may use nothing');
    return Object.freeze([]);
  }
  const patterns = list(`${at}.allow`, parsed.data.allow, tell, (field, pattern) => {
    const { server, tool } = splitPattern(pattern);
    if (server.trim() === '' || tool.trim() === '') {
      tell(field, `'${shown(pattern)}' is not of the form server/tool and was left out`, patternHint);
      return false;
    }
    if (server !== '*' && !servers.has(server)) {
      tell(
        field,
        `names the server '${shown(server)}', which is not configured; it is enforced as written`,
        patternHint,
      );
    } else if (tool !== '*' && tool.includes('*')) {
      tell(field, `'${shown(pattern)}' allows only a tool that is called so, star and all`, patternHint);
    }
    return true;
  });
  return Object.freeze(patterns.map(splitPattern));
}

/** At the first slash: a tool may have one in its name, a server not. Without one there is no server. */
function splitPattern(pattern: string): RolePattern {
  const slash = pattern.indexOf('/');
  return { server: pattern.slice(0, Math.max(slash, 0)), tool: pattern.slice(slash + 1) };
}

const patternHint = 'write server/tool, server/* for all tools of a server, or */* for everything';

/** A ceiling that cannot be read lets nothing pass: left out, it would be no ceiling at all. */
function parseCeiling(at: string, entry: unknown, tell: Tell): Ceiling {
  const nothing = Object.freeze({ calls: 0, windowMs: 60_000 });
  const hint = 'correct it; until then no call passes';
  const parsed = ceilingEntry.safeParse(entry);
  if (!parsed.success) {
    const { field, what } = firstIssue(parsed.error, at);
    tell(field, what, hint);
    return nothing;
  }
  const { calls, window } = parsed.data;
  try {
    return Object.freeze({ calls, windowMs: parseDuration(window, 'window') });
  } catch (error) {
    if (!isHostError(error)) throw error;
    tell(`${at}.window`, error.message.replace(/^window: /, ''), hint);
    return nothing;
  }
}

function parseGroup(
  at: string,
  entry: unknown,
  name: string,
  servers: ReadonlySet<string>,
  tell: Tell,
): readonly string[] | undefined {
  if (!groupName.test(name)) {
    tell(at, 'is no name for a group', 'use 1 to 64 letters, digits, dots, dashes or underscores');
    return undefined;
  }
  if (!Array.isArray(entry)) {
    tell(at, 'must be a list of servers');
    return undefined;
  }
  return list(at, entry, tell, (field, server) => {
    if (!servers.has(server)) tell(field, `names the server '${shown(server)}', which is not configured`);
    return true;
  });
}

function parseTelemetry(input: unknown): HostSettings['telemetry'] {
  const { traces = false, ...rest } = table('telemetry', input);
  const [odd] = Object.keys(rest);
  if (odd !== undefined) throw invalid(`telemetry.${shown(odd)}`, 'is not known', 'the only key is telemetry.traces');
  if (typeof traces !== 'boolean')
    throw invalid('telemetry.traces', 'must be true or false', 'leave it out for no traces');
  return Object.freeze({ traces });
}

/** What says how all of it is served is taken whole or not at all. */
function whole<T extends object>(at: string, schema: z.ZodType<T>, input: Entries): Readonly<T> {
  const parsed = schema.safeParse(input);
  if (parsed.success) return Object.freeze(parsed.data);
  const { field, what } = firstIssue(parsed.error, at);
  throw invalid(field, what);
}

/** Names are trimmed, blank ones left out, and of two that become equal the later one counts; each of it is told. */
function each<T>(
  path: string,
  input: unknown,
  tell: Tell,
  parse: (at: string, entry: unknown, name: string) => T | undefined,
): ReadonlyMap<string, T> {
  const found = new Map<string, T>();
  for (const [written, given] of Object.entries(table(path, input))) {
    const name = written.trim();
    const at = `${path}.${shown(name)}`;
    // As undefined: the parser of each table decides what stands in for the entry, and closes a role or a budget.
    const entry = given instanceof UnusableEntry ? undefined : given;
    if (given instanceof UnusableEntry) tellUnusable(at, given.error, tell);
    if (name === '') {
      tell(path, 'a blank name was left out');
      continue;
    }
    if (name !== written) tell(at, 'the blanks around its name were taken off');
    if (found.has(name)) tell(at, 'is given twice, and the later one counts');
    const value = parse(at, entry, name);
    if (value === undefined) found.delete(name);
    else found.set(name, value);
  }
  return found;
}

function tellUnusable(at: string, { message, hint, details: { field = at } }: HostError, tell: Tell): void {
  tell(field, message.startsWith(`${field}: `) ? message.slice(field.length + 2) : message, hint);
}

/** Texts of a list, trimmed and each once; what is left out or changed is told. */
function list(
  path: string,
  input: readonly unknown[],
  tell: Tell,
  isUsable: (field: string, text: string) => boolean,
): readonly string[] {
  const kept = new Set<string>();
  // A longer list never comes here: it was refused when it was copied (plain-data.ts).
  for (const [i, written] of input.entries()) {
    const field = `${path}.${i}`;
    const text = typeof written === 'string' ? written.trim() : undefined;
    if (text === undefined) tell(field, 'is not a text and was left out');
    else if (text === '') tell(field, 'is blank and was left out');
    else if (kept.has(text)) tell(field, `'${shown(text)}' is given twice`);
    else {
      if (text !== written) tell(field, 'the blanks around it were taken off');
      if (isUsable(field, text)) kept.add(text);
    }
  }
  return Object.freeze([...kept]);
}

function table(path: string, input: unknown): Entries {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) throw invalid(path, 'must be an object');
  if (Object.keys(input).length > entriesMax) throw invalid(path, `has more than ${entriesMax} entries`);
  return input as Entries;
}

const isKnown = (key: string): boolean => (hostConfigKeys as readonly string[]).includes(key);
const shown = (text: string): string => neutraliseLine(text, shownChars);

/** Filled in where a file is read (config-file.ts). What is handed over as an object is taken as it is. */
const placeholder = /\$\{(?:env|file):/;
const notReplaced = (server: string): HostError =>
  invalid(
    `mcpServers.${shown(server)}`,
    'has a value with an env: or file: placeholder, which is filled in only in a file; it is used as written',
    'fill in the value before the configuration is handed over',
  );

const unexpected = (field: string, cause: unknown): HostError =>
  new HostError('invalid_spec', `${field}: cannot be used`, {
    field,
    execution: 'not_executed',
    hint: 'correct this entry; the other servers are not affected',
    cause,
  });

const unknownKey = (key: string): HostError =>
  invalid(shown(key), 'is not a key of the configuration', `known are ${hostConfigKeys.join(', ')}`);

function invalid(field: string, what: string, hint = 'correct the configuration and try again'): HostError {
  return new HostError('invalid_spec', `${field === '' ? 'the configuration' : field}: ${what}`, {
    field,
    execution: 'not_executed',
    hint,
  });
}
