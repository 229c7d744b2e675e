/**
 * Finds members of a JSON object by name, in its bytes.
 * Invariants: a duplicate key has no value, because two parsers could read different ones. In an object with more than
 * `LIMITS.members` members, no member is found. Names are compared as decoded text, so escapes do not matter.
 */
import { LIMITS } from '../kernel/limits.js';
import { eachMember, type Member, readString, scanFacts, scanLimits, skipSpace } from './json-scan.js';

const BACKSLASH = 0x5c;
const QUOTE = 0x22;
const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;
/** `\u0061` is the longest spelling of one character. */
const escapedCharBytes = 6;

export interface Span {
  readonly start: number;
  readonly end: number;
}

/** Positions of the members of an object, four numbers each: key start, key end, value start, value end. */
type Positions = number[];
/** Recording stops after one member more than this, which shows that there are too many. */
const positionsMax = 4 * LIMITS.members;

// Hoisted visitors: a closure would be allocated for every client request.
let recorded: Positions = [];
function record({ keyStart, keyEnd, valueStart, valueEnd }: Member): boolean {
  if (recorded.length > positionsMax) return false;
  recorded.push(keyStart, keyEnd, valueStart, valueEnd);
  return true;
}
function recordParam(member: Member): boolean {
  record(member);
  return scanFacts.values <= scanLimits.values;
}

/** Like `skipValue` for the params object at `from`, but also records its members. */
export function recordParams(bytes: Buffer, from: number, end: number, positions: Positions): number {
  positions.length = 0;
  recorded = positions;
  const after = eachMember(bytes, from, end, 1, recordParam);
  scanFacts.values++;
  if (scanFacts.values <= scanLimits.values) return after;
  scanFacts.tooMany = true;
  return -1;
}

/** Params of the last request. Ingress and router look up its members several times in one tick without another scan. */
const last = {
  params: Buffer.alloc(0) as Buffer,
  positions: [] as Positions,
  views: [] as (Buffer | undefined)[],
};
const rememberedBytesMax = 64 * 1024;

/** `positions` are relative to the message in which `params` begins at `offset`. */
export function rememberParams(params: Buffer, positions: Positions, offset: number): void {
  last.params = params;
  last.positions.length = last.views.length = 0;
  for (let i = 0; i < positions.length; i++) last.positions.push((positions[i] as number) - offset);
  // A large message must not stay in memory until the next one arrives.
  if (params.length > rememberedBytesMax) setImmediate(forget, params);
}

function forget(params: Buffer): void {
  if (last.params !== params) return;
  last.params = Buffer.alloc(0);
  last.views.length = 0;
}

const scratch: Positions = [];

/** Undefined: not an object, or too many members. Valid until the next lookup. */
function positionsOf(bytes: Buffer, outerDepth = 0): Positions | undefined {
  if (bytes === last.params) return last.positions.length > positionsMax ? undefined : last.positions;
  recorded = scratch;
  scratch.length = 0;
  return eachMember(bytes, 0, bytes.length, outerDepth, record) < 0 || scratch.length > positionsMax
    ? undefined
    : scratch;
}

/** Returns the index of a key in the positions; -1: absent, -2: duplicate. */
function indexOf(bytes: Buffer, positions: Positions, key: string): number {
  let found = -1;
  for (let i = 0; i < positions.length; i += 4) {
    if (!keyIs(bytes, positions[i] as number, positions[i + 1] as number, key)) continue;
    if (found >= 0) return -2;
    found = i;
  }
  return found;
}

function viewOf(bytes: Buffer, positions: Positions, at: number): Buffer {
  if (bytes !== last.params) return bytes.subarray(positions[at + 2], positions[at + 3]);
  const { views } = last;
  // Filled in order, so that the array has no holes.
  while (views.length <= at / 4) views.push(undefined);
  views[at / 4] ??= bytes.subarray(positions[at + 2], positions[at + 3]);
  return views[at / 4] as Buffer;
}

/**
 * Views in the order of the keys. Undefined: not an object, one of the keys is duplicate, or too many members. `outerDepth`: as in
 * `eachMember`.
 */
export function uniqueMembers(
  bytes: Buffer,
  keys: readonly string[],
  outerDepth = 0,
): (Buffer | undefined)[] | undefined {
  const positions = positionsOf(bytes, outerDepth);
  if (!positions) return undefined;
  const found: (Buffer | undefined)[] = [];
  for (let i = 0; i < keys.length; i++) {
    const at = indexOf(bytes, positions, keys[i] as string);
    if (at === -2) return undefined;
    found.push(at < 0 ? undefined : viewOf(bytes, positions, at));
  }
  return found;
}

/** Views in the order of the keys, each as `memberBytes` would return it. */
export function membersBytes(bytes: Buffer, keys: readonly string[]): (Buffer | undefined)[] {
  const positions = positionsOf(bytes);
  return keys.map((key) => positions && memberAt(bytes, positions, key));
}

/** A view of the value of `key`. Undefined: absent, duplicate, not an object, or too many members. */
export function memberBytes(bytes: Buffer, key: string): Buffer | undefined {
  const positions = positionsOf(bytes);
  return positions && memberAt(bytes, positions, key);
}

function memberAt(bytes: Buffer, positions: Positions, key: string): Buffer | undefined {
  const at = indexOf(bytes, positions, key);
  return at < 0 ? undefined : viewOf(bytes, positions, at);
}

export const memberText = (bytes: Buffer, key: string): string | undefined => memberBytes(bytes, key)?.toString('utf8');

export function memberString(bytes: Buffer, key: string): string | undefined {
  const value = memberBytes(bytes, key);
  return value && stringOf(value);
}

export const stringOf = (value: Buffer): string | undefined =>
  value[0] === QUOTE ? readString(value, 1, value.length - 1) : undefined;

export const isObject = (value: Buffer | undefined): value is Buffer => value?.[0] === OPEN_BRACE;
export const isList = (value: Buffer | undefined): value is Buffer => value?.[0] === OPEN_BRACKET;

/** Whether the key between the bounds is `key`. Decodes only a key with escapes or non-ASCII characters. */
export function keyIs(bytes: Buffer, start: number, end: number, key: string): boolean {
  const length = end - start;
  const first = bytes[start];
  if (first !== key.charCodeAt(0) && first !== BACKSLASH && !((first ?? 0) > 0x7f)) return false;
  if (length === key.length && spells(bytes, start, key)) return true;
  if (length <= key.length || length > key.length * escapedCharBytes) return false;
  for (let i = start; i < end; i++)
    if (bytes[i] === BACKSLASH || (bytes[i] as number) > 0x7f) return readString(bytes, start, end) === key;
  return false;
}

/** Byte by byte: creating a string for the comparison would cost more than the comparison. */
function spells(bytes: Buffer, start: number, key: string): boolean {
  for (let i = 0; i < key.length; i++) if (bytes[start + i] !== key.charCodeAt(i)) return false;
  return true;
}

/** `unclear`: two parsers could read different values. A key on the path is duplicate, or its object has too many members. */
export type AtPath = Buffer | 'absent' | 'unclear';
type Path = readonly string[];

/** Returns the values at several non-empty paths, in the order of the paths, with one scan. */
export function valuesAt(bytes: Buffer | undefined, paths: readonly Path[]): AtPath[] {
  const values: AtPath[] = paths.map(() => 'absent');
  if (bytes === undefined) return values;
  const from = skipSpace(bytes, 0, bytes.length);
  if (bytes[from] !== OPEN_BRACE) return values;
  const after = readPaths(bytes, from, 0, [...paths.keys()], paths, values);
  return after < 0 ? paths.map(() => 'unclear') : values;
}

interface Step {
  readonly ending: number[];
  readonly through: number[];
  count: number;
}

/** Reads the object at `from`, which lies on the paths with the given indexes. */
function readPaths(
  bytes: Buffer,
  from: number,
  depth: number,
  indexes: readonly number[],
  paths: readonly Path[],
  values: AtPath[],
): number {
  const steps = new Map<string, Step>();
  for (const i of indexes) {
    const path = paths[i] as Path;
    const name = path[depth] as string;
    const step = steps.get(name) ?? { ending: [], through: [], count: 0 };
    steps.set(name, step);
    (path.length === depth + 1 ? step.ending : step.through).push(i);
  }
  let members = 0;
  let step: Step | undefined;
  const enter = (_: Buffer, { keyStart, keyEnd, valueStart }: Member): number | undefined => {
    step = ++members <= LIMITS.members ? steps.get(readString(bytes, keyStart, keyEnd)) : undefined;
    if (step === undefined || step.count++ > 0) step = undefined;
    else if (step.through.length > 0 && bytes[valueStart] === OPEN_BRACE)
      return readPaths(bytes, valueStart, depth + 1, step.through, paths, values);
    return undefined;
  };
  const visit = ({ valueStart, valueEnd }: Member): undefined => {
    for (const i of step?.ending ?? []) values[i] = bytes.subarray(valueStart, valueEnd);
  };
  const after = eachMember(bytes, from, bytes.length, depth, visit, enter);
  for (const { ending, through, count } of steps.values())
    if (count > 1 || members > LIMITS.members) for (const i of [...ending, ...through]) values[i] = 'unclear';
  return after;
}
