/**
 * What an embedder may say about a server it spawns, in the words of a configuration entry.
 * Not here: what an entry may hold (config/). Invariant: nothing that was said is left out without a word: what is unknown is
 * refused, and an error names what the embedder wrote.
 */
import { type EntryPlace, parseServerDefinition, type ServerDefinition } from '../config/server-definition.js';
import { HostError } from '../kernel/errors.js';

/** Beside how the server is reached. */
export interface SpawnOptions {
  /** False when absent: a spawned server is started at once. */
  readonly lazy?: boolean;
  readonly keepAliveMs?: number;
  /** URL or path of its server card. */
  readonly card?: string;
  readonly circuitThreshold?: number;
  readonly circuitResetMs?: number;
  readonly maxRestarts?: number;
  readonly restartWindowMs?: number;
  readonly replace?: boolean;
}

/** How the server is reached, and whatever else a configuration entry may hold. */
export type SpawnEntry = { readonly name: string } & Readonly<Record<string, unknown>>;

/** Each option, and where in an entry it stands. */
const places: Readonly<Record<Exclude<keyof SpawnOptions, 'replace'>, readonly [string] | readonly [string, string]>> =
  {
    lazy: ['lazy'],
    keepAliveMs: ['keepAlive'],
    card: ['card'],
    circuitThreshold: ['breaker', 'threshold'],
    circuitResetMs: ['breaker', 'reset'],
    maxRestarts: ['restart', 'max'],
    restartWindowMs: ['restart', 'window'],
  };
const optionNames = [...Object.keys(places), 'replace'];

/** The name of the server to be, which is all that is needed to refuse it. */
export function spawnName(entry: unknown): string {
  const name = isRecord(entry) ? entry.name : undefined;
  if (typeof name === 'string' && name !== '') return name;
  throw new HostError('invalid_spec', 'a server needs a name', {
    field: 'name',
    execution: 'not_executed',
    hint: 'give it as "name"',
  });
}

export function spawnDefinition(entry: SpawnEntry, options: SpawnOptions): ServerDefinition {
  const { name, ...rest } = entry;
  checkOptions(name, options);
  const merged: Record<string, unknown> = { ...rest };
  /** Paths in the entry that an option stands for. */
  const said = new Map<string, string>();
  for (const [option, [key, inner]] of Object.entries(places)) {
    const value = options[option as keyof SpawnOptions];
    if (value === undefined) continue;
    if (inner === undefined) merged[key] = value;
    else {
      const outer = merged[key] ?? {};
      // What is no object stays as it is, to be refused below.
      if (isRecord(outer)) merged[key] = { ...outer, [inner]: value };
    }
    said.set(inner === undefined ? key : `${key}.${inner}`, option);
  }
  return parseServerDefinition(name, merged, false, placeOf(name, said));
}

const placeOf = (name: string, said: ReadonlyMap<string, string>): EntryPlace => ({
  fieldOf: (field) => said.get(field) ?? field,
  wordsOf: (path) => (path === '' ? `server '${name}'` : `server '${name}': ${path}`),
  hint: 'correct it and spawn the server again',
});

function checkOptions(server: string, options: unknown): void {
  if (!isRecord(options))
    throw invalid(server, 'options', 'is not an object', 'give the options of spawn as an object');
  for (const [option, value] of Object.entries(options)) {
    if (!optionNames.includes(option)) {
      throw invalid(server, option, 'is no option of spawn', `the options are ${optionNames.join(', ')}`);
    }
    // In an entry a time may be written as text; here its unit is in the name.
    if (value !== undefined && option.endsWith('Ms') && typeof value !== 'number') {
      throw invalid(server, option, 'must be a number of milliseconds', 'correct it and spawn the server again');
    }
    if (value !== undefined && option === 'replace' && typeof value !== 'boolean') {
      throw invalid(server, option, 'must be true or false', 'correct it and spawn the server again');
    }
  }
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const invalid = (server: string, field: string, problem: string, hint: string): HostError =>
  new HostError('invalid_spec', `server '${server}': ${field}: ${problem}`, {
    server,
    field,
    execution: 'not_executed',
    hint,
  });
