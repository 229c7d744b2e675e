/**
 * Converts the options of `spawn` and `attach` to a server definition, and creates the errors of both.
 * Not here: keys of a configuration entry (config/), which objects can be attached (transports/attached/attachable.ts),
 * registering and starting (servers.ts).
 *
 * Invariants: an unknown option, or one that needs a factory, is refused, never ignored. Errors name the option as the
 * application wrote it.
 */
import type * as z from 'zod/mini';
import {
  definitionOf,
  type EntryPlace,
  parseServerDefinition,
  type ServerDefinition,
  type treatment,
  treatmentKeys,
} from '../config/server-definition.js';
import { type AttachedServerSpec, checkServerName, isAttached, isOneShot } from '../config/server-spec.js';
import { type ErrorCode, HostError, type HostErrorOptions, isHostError } from '../kernel/errors.js';
import { type Attachable, type AttachFactory, attachProblem } from '../transports/attached/attachable.js';
import { notAttachable } from '../transports/attached/attached-errors.js';

export interface SpawnOptions {
  /** Default false: the server starts immediately. */
  readonly lazy?: boolean;
  readonly keepAliveMs?: number;
  readonly card?: string;
  readonly circuitThreshold?: number;
  readonly circuitResetMs?: number;
  readonly maxRestarts?: number;
  readonly restartWindowMs?: number;
  readonly replace?: boolean;
}

/** Transport of the server, and any other key of a configuration entry. */
export type SpawnEntry = { readonly name: string } & Readonly<Record<string, unknown>>;

/** Other keys of a configuration entry. */
type Treatment = Readonly<Partial<Omit<z.input<typeof treatment>, 'enabled' | keyof SpawnOptions>>>;

/** Without a factory, `lazy`, `isolation: "per-client"`, `keepAlive` and `restart` are refused. */
export interface AttachOptions extends SpawnOptions, Treatment {}

/** Path of each option in a configuration entry. */
const optionPaths: Readonly<
  Record<Exclude<keyof SpawnOptions, 'replace'>, readonly [string] | readonly [string, string]>
> = {
  lazy: ['lazy'],
  keepAliveMs: ['keepAlive'],
  card: ['card'],
  circuitThreshold: ['breaker', 'threshold'],
  circuitResetMs: ['breaker', 'reset'],
  maxRestarts: ['restart', 'max'],
  restartWindowMs: ['restart', 'window'],
};
const spawnOptionNames = [...Object.keys(optionPaths), 'replace'];
/** `attach` has no `enabled`: an application omits the call instead. */
const treatmentNames = [...treatmentKeys].filter((key) => key !== 'enabled' && key !== 'lazy' && key !== 'card');

// --- spawn

/** Runs before other checks, because the allowlist needs only the name. */
export function spawnName(entry: unknown): string {
  const name = isRecord(entry) ? entry.name : undefined;
  if (typeof name === 'string' && name !== '') return name;
  throw new HostError('invalid_spec', 'spawn: the server has no name', {
    field: 'name',
    execution: 'not_executed',
    hint: 'pass it as "name"',
  });
}

export function spawnDefinition(entry: SpawnEntry, options: SpawnOptions): ServerDefinition {
  const { name, ...rest } = entry;
  checkOptions(name, options, 'spawn', spawnOptionNames);
  const { merged, optionAt } = mergeOptions(rest, options);
  return parseServerDefinition(name, merged, false, placeOf(name, optionAt, 'correct it and spawn the server again'));
}

// --- attach

/** Throws `invalid_spec`. The object is inspected, not used. */
export function attachDefinition(
  name: string,
  source: Attachable | AttachFactory,
  options: AttachOptions,
): ServerDefinition {
  checkServerName(name);
  checkOptions(name, options, 'attach', [...spawnOptionNames, ...treatmentNames]);
  const hasFactory = typeof source === 'function';
  const problem = hasFactory ? undefined : attachProblem(source);
  if (problem !== undefined) throw notAttachable(name, problem);
  const own = Object.entries(options).filter(([option]) => treatmentKeys.has(option));
  const { merged, optionAt } = mergeOptions(Object.fromEntries(own), options);
  if (!hasFactory) {
    const optionOf = (key: string) => [...optionAt].find(([path]) => path.split('.')[0] === key)?.[1] ?? key;
    refuseRestarts(name, merged, optionOf);
    merged.keepAlive = 0;
  }
  // A new function each time: attaching the same factory again is a new definition.
  const take = hasFactory ? () => source() : () => source;
  const spec: AttachedServerSpec = Object.freeze({ name, transport: 'attached', hasFactory, take });
  return definitionOf(spec, merged, false, placeOf(name, optionAt, 'correct it and attach the server again'));
}

/** One object is one connection, which all clients share until it closes. */
function refuseRestarts(name: string, entry: Readonly<Record<string, unknown>>, optionOf: (key: string) => string) {
  const { lazy, isolation, keepAlive, restart } = entry;
  const isRefused: Readonly<Record<string, boolean>> = {
    lazy: lazy === true,
    isolation: isolation === 'per-client',
    keepAlive: keepAlive !== undefined && keepAlive !== 0 && keepAlive !== '0',
    restart: restart !== undefined,
  };
  const key = Object.keys(isRefused).find((each) => isRefused[each]);
  if (key === undefined) return;
  const hint = 'attach a function that makes a new object each time';
  throw invalidOption(name, optionOf(key), 'needs a factory', hint);
}

export const notAttached = (name: string): HostError =>
  new HostError('invalid_spec', `server '${name}' is not attached`, {
    server: name,
    field: 'name',
    execution: 'not_executed',
    hint: 'to remove a configured server, remove its configuration entry; to end the run of any server, use stop',
  });

/** A reload closes the connection and opens it again, but one object can be opened only once. */
export const notReloadable = (name: string): HostError =>
  new HostError('invalid_request', `server '${name}' was attached without a factory and cannot be started again`, {
    server: name,
    reason: 'one_shot',
    execution: 'not_executed',
    hint: `attach a new connection as '${name}' with replace, or attach a factory`,
  });

// --- both

/** Returns the entry with each option at its path, and the option name of each path. */
function mergeOptions(entry: Readonly<Record<string, unknown>>, options: SpawnOptions) {
  const merged: Record<string, unknown> = { ...entry };
  const optionAt = new Map<string, string>();
  for (const [option, [key, inner]] of Object.entries(optionPaths)) {
    const value = options[option as keyof SpawnOptions];
    if (value === undefined) continue;
    if (inner === undefined) merged[key] = value;
    else {
      const outer = merged[key] ?? {};
      // A value that is not an object is left unchanged, so that parsing refuses it.
      if (isRecord(outer)) merged[key] = { ...outer, [inner]: value };
    }
    optionAt.set(inner === undefined ? key : `${key}.${inner}`, option);
  }
  return { merged, optionAt };
}

const placeOf = (name: string, optionAt: ReadonlyMap<string, string>, hint: string): EntryPlace => ({
  fieldOf: (field) => optionAt.get(field) ?? field,
  textOf: (path) => (path === '' ? `server '${name}'` : `server '${name}': ${path}`),
  hint,
});

function checkOptions(server: string, options: unknown, method: string, names: readonly string[]): void {
  if (!isRecord(options))
    throw invalidOption(server, 'options', 'is not an object', `pass the options of ${method} as an object`);
  const hint = `correct it and ${method} the server again`;
  for (const [option, value] of Object.entries(options)) {
    if (!names.includes(option))
      throw invalidOption(server, option, `is no option of ${method}`, `the options are ${names.join(', ')}`);
    if (value === undefined) continue;
    // A configuration entry also accepts durations as text; here the option name has the unit.
    if (option.endsWith('Ms') && typeof value !== 'number')
      throw invalidOption(server, option, 'must be a number of milliseconds', hint);
    if (option === 'replace' && typeof value !== 'boolean')
      throw invalidOption(server, option, 'must be true or false', hint);
  }
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const invalidOption = (server: string, field: string, problem: string, hint: string): HostError =>
  new HostError('invalid_spec', `server '${server}': ${field}: ${problem}`, {
    server,
    field,
    execution: 'not_executed',
    hint,
  });

/** Errors that announce a next attempt of a registered server. */
const refusals: ReadonlySet<ErrorCode> = new Set(['server_parked', 'server_ejected', 'reconnecting', 'needs_reauth']);

/**
 * The error of an eager `spawn` or `attach` whose server did not become ready. The supervisor's error would announce a next
 * attempt, but the server was removed. `earlier`: the server to replace, which is registered again.
 */
export function spawnFailed(
  error: unknown,
  { name, spec }: ServerDefinition,
  earlier: ServerDefinition | undefined,
): unknown {
  if (!isHostError(error)) return error;
  // The first failure of a one-shot server stops it and is the cause; a requested stop has no cause.
  const isFailure = error.code === 'server_stopped' && isOneShot(spec) && isHostError(error.cause);
  if (!isFailure && !refusals.has(error.code)) return error;
  const method = isAttached(spec) ? 'attach' : 'spawn';
  const message = (why: string) => `server '${name}' could not be started; ${registrationAfter(earlier)} (${why})`;
  const options = (hint: string): HostErrorOptions => ({
    server: name,
    phase: 'queued',
    execution: 'not_executed',
    hint: `${hint}; then ${method} server '${name}' again`,
    cause: error,
  });
  const failure = error.cause;
  if (isHostError(failure)) {
    const { code, hint = 'fix the cause' } = failure;
    return new HostError(code, message(failure.message), { ...failure.details, ...options(hint) });
  }
  // No start has failed yet: the first one was still running at the start timeout.
  const hint = 'look at its stderr; if it is only slow, raise its start timeout';
  return new HostError('timeout', message('it did not become ready in time'), {
    ...options(hint),
    reason: 'start_timeout',
  });
}

function registrationAfter(earlier: ServerDefinition | undefined): string {
  if (!earlier) return 'it is not registered';
  return isOneShot(earlier.spec)
    ? 'the earlier server of this name is registered again but stopped, because it was attached without a factory'
    : 'the earlier server of this name is registered again';
}
