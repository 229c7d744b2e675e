/**
 * Finds members of a JSON object by name, in its bytes.
 * Invariants: a key that stands twice has no value, because two parsers could read two; an object with more than `LIMITS.members`
 * members has no member that is found. Names are compared as decoded text, however they are escaped.
 */
import { LIMITS } from '../kernel/limits.js';
import { eachMember, type Member, readString, scanFacts, scanLimits, skipSpace } from './json-scan.js';

const BACKSLASH = 0x5c;
const QUOTE = 0x22;
const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;
/** `\u0061` is the longest spelling of one character. */
const escapedCharBytes = 6;

/** Where a value lies in its text. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/** Where the members of an object are, four numbers each: key start, key end, value start, value end. */
type Positions = number[];
/** One member more is recorded, which says that there are too many. */
const positionsMax = 4 * LIMITS.members;

// Visitors without a closure: every request of a client is recorded.
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

/** Scans the params object at `from` as `skipValue` does, and records its members on the way. */
export function recordParams(bytes: Buffer, from: number, end: number, positions: Positions): number {
  positions.length = 0;
  recorded = positions;
  const after = eachMember(bytes, from, end, 1, recordParam);
  scanFacts.values++;
  if (scanFacts.values <= scanLimits.values) return after;
  scanFacts.tooMany = true;
  return -1;
}

/** The params of the last request: ingress and router look up its members several times in one tick, and none scans it again. */
const last = {
  params: Buffer.alloc(0) as Buffer,
  positions: [] as Positions,
  views: [] as (Buffer | undefined)[],
};
const rememberedBytesMax = 64 * 1024;

/** `positions` are those of the message in which `params` begins at `offset`. */
export function rememberParams(params: Buffer, positions: Positions, offset: number): void {
  last.params = params;
  last.positions.length = last.views.length = 0;
  for (let i = 0; i < positions.length; i++) last.positions.push((positions[i] as number) - offset);
  // A large message must not stay in memory until the next one comes.
  if (params.length > rememberedBytesMax) setImmediate(forget, params);
}

function forget(params: Buffer): void {
  if (last.params !== params) return;
  last.params = Buffer.alloc(0);
  last.views.length = 0;
}

const scratch: Positions = [];

/** Undefined: not an object, or one with too many members. Valid until the next lookup. */
function positionsOf(bytes: Buffer): Positions | undefined {
  if (bytes === last.params) return last.positions.length > positionsMax ? undefined : last.positions;
  recorded = scratch;
  scratch.length = 0;
  return eachMember(bytes, 0, bytes.length, 0, record) < 0 || scratch.length > positionsMax ? undefined : scratch;
}

/** The index of a key in the positions; -1: it is absent, -2: it stands twice. */
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
  // In order, so that the list has no holes.
  while (views.length <= at / 4) views.push(undefined);
  views[at / 4] ??= bytes.subarray(positions[at + 2], positions[at + 3]);
  return views[at / 4] as Buffer;
}

/** Views in the order of the keys. Undefined: not an object, one of the keys stands twice, or there are too many members. */
export function uniqueMembers(bytes: Buffer, keys: readonly string[]): (Buffer | undefined)[] | undefined {
  const positions = positionsOf(bytes);
  if (!positions) return undefined;
  const found: (Buffer | undefined)[] = [];
  for (let i = 0; i < keys.length; i++) {
    const at = indexOf(bytes, positions, keys[i] as string);
    if (at === -2) return undefined;
    found.push(at < 0 ? undefined : viewOf(bytes, positions, at));
  }
  return found;
}

/** Views in the order of the keys; each undefined where `memberBytes` would be. */
export function membersBytes(bytes: Buffer, keys: readonly string[]): (Buffer | undefined)[] {
  const positions = positionsOf(bytes);
  return keys.map((key) => positions && memberAt(bytes, positions, key));
}

/** A view of the value of `key`. Undefined: absent, twice, not an object, or too many members. */
export function memberBytes(bytes: Buffer, key: string): Buffer | undefined {
  const positions = positionsOf(bytes);
  return positions && memberAt(bytes, positions, key);
}

function memberAt(bytes: Buffer, positions: Positions, key: string): Buffer | undefined {
  const at = indexOf(bytes, positions, key);
  return at < 0 ? undefined : viewOf(bytes, positions, at);
}

/** The value of `key` as JSON text. */
export const memberText = (bytes: Buffer, key: string): string | undefined => memberBytes(bytes, key)?.toString('utf8');

/** The value of `key` when it is a string. */
export function memberString(bytes: Buffer, key: string): string | undefined {
  const value = memberBytes(bytes, key);
  return value && stringOf(value);
}

/** The decoded text of one value, when it is a string. */
export const stringOf = (value: Buffer): string | undefined =>
  value[0] === QUOTE ? readString(value, 1, value.length - 1) : undefined;

/** For the bytes of one value, as the functions here return them. */
export const isObject = (value: Buffer | undefined): value is Buffer => value?.[0] === OPEN_BRACE;
export const isList = (value: Buffer | undefined): value is Buffer => value?.[0] === OPEN_BRACKET;

/** Whether the key between the bounds is `key`. Decodes only a key with escapes or non-ASCII characters that could be it. */
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

/** Byte by byte: a string made only to be compared costs more than the comparison. */
function spells(bytes: Buffer, start: number, key: string): boolean {
  for (let i = 0; i < key.length; i++) if (bytes[start + i] !== key.charCodeAt(i)) return false;
  return true;
}

/** `unclear`: two readers could take it for two values. A key or one above it stands twice, or among too many members. */
export type AtPath = Buffer | 'absent' | 'unclear';
type Path = readonly string[];

/** The values at several paths, none of them empty, in the order of the paths; found in one scan. */
export function valuesAt(bytes: Buffer | undefined, paths: readonly Path[]): AtPath[] {
  const values: AtPath[] = paths.map(() => 'absent');
  if (bytes === undefined) return values;
  const from = skipSpace(bytes, 0, bytes.length);
  if (bytes[from] !== OPEN_BRACE) return values;
  const after = readPaths(bytes, from, 0, [...paths.keys()], paths, values);
  return after < 0 ? paths.map(() => 'unclear') : values;
}

/** A member name, and the paths that end at it or lead through it. */
interface Step {
  readonly ending: number[];
  readonly through: number[];
  count: number;
}

/** Reads the object at `from`, into which the paths of the given indexes lead. */
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
    // Names past the limit are not decoded.
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
