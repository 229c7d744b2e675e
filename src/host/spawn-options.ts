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
  const { merged, said } = mergeOptions(rest, options);
  return parseServerDefinition(name, merged, false, placeOf(name, said, 'correct it and spawn the server again'));
}

/** The entry with each option in its place, and the name of the option for each path that it stands for. */
export function mergeOptions(entry: Readonly<Record<string, unknown>>, options: SpawnOptions) {
  const merged: Record<string, unknown> = { ...entry };
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
  return { merged, said };
}

/** `hint`: what corrects a wrong field. */
export const placeOf = (name: string, said: ReadonlyMap<string, string>, hint: string): EntryPlace => ({
  fieldOf: (field) => said.get(field) ?? field,
  wordsOf: (path) => (path === '' ? `server '${name}'` : `server '${name}': ${path}`),
  hint,
});

/** `verb`: the method that takes the options. `more`: names it takes beside those of spawn. */
export function checkOptions(server: string, options: unknown, verb = 'spawn', more: readonly string[] = []): void {
  if (!isRecord(options))
    throw invalidOption(server, 'options', 'is not an object', `give the options of ${verb} as an object`);
  const hint = `correct it and ${verb} the server again`;
  const names = [...optionNames, ...more];
  for (const [option, value] of Object.entries(options)) {
    if (!names.includes(option)) {
      throw invalidOption(server, option, `is no option of ${verb}`, `the options are ${names.join(', ')}`);
    }
    // In an entry a time may be written as text; here its unit is in the name.
    if (value !== undefined && option.endsWith('Ms') && typeof value !== 'number') {
      throw invalidOption(server, option, 'must be a number of milliseconds', hint);
    }
    if (value !== undefined && option === 'replace' && typeof value !== 'boolean') {
      throw invalidOption(server, option, 'must be true or false', hint);
    }
  }
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

export const invalidOption = (server: string, field: string, problem: string, hint: string): HostError =>
  new HostError('invalid_spec', `server '${server}': ${field}: ${problem}`, {
    server,
    field,
    execution: 'not_executed',
    hint,
  });
