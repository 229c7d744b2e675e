/**
 * Single members of a JSON object, found in its bytes.
 * Invariants: a key that stands twice is nobody's value. The last-wins habit of parsers is how one message comes to mean
 * two things. An object with more members than anybody means (`LIMITS.members`) has none that is found.
 */
import { LIMITS } from '../kernel/limits.js';
import { readString } from './envelope.js';
import { eachMember } from './json-scan.js';

export interface Span {
  readonly start: number;
  readonly end: number;
}

/** Where the value of `key` lies in the object `bytes[start, end)`; undefined when absent, doubled, or not an object. */
export function findMember(bytes: Buffer, key: string, start = 0, end = bytes.length): Span | undefined {
  let found: Span | undefined;
  let count = 0;
  let members = 0;
  const after = eachMember(bytes, start, end, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    if (++members > LIMITS.members) return false;
    if (!keyIs(bytes, keyStart, keyEnd, key)) return undefined;
    count++;
    found = { start: valueStart, end: valueEnd };
    return undefined;
  });
  return after < 0 || count !== 1 || members > LIMITS.members ? undefined : found;
}

/** Views of the values of several keys, found in one look; each undefined as `findMember` has it. In the order of the keys. */
export function membersBytes(bytes: Buffer, keys: readonly string[]): (Buffer | undefined)[] {
  const found: (Buffer | undefined)[] = keys.map(() => undefined);
  const counts = keys.map(() => 0);
  let members = 0;
  const after = eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    if (++members > LIMITS.members) return false;
    for (let i = 0; i < keys.length; i++) {
      if (!keyIs(bytes, keyStart, keyEnd, keys[i] as string)) continue;
      found[i] = counts[i] ? undefined : bytes.subarray(valueStart, valueEnd);
      counts[i] = 1;
    }
    return undefined;
  });
  return after < 0 || members > LIMITS.members ? keys.map(() => undefined) : found;
}

/** Whether the key between the bounds is `key`, an ASCII name. Decodes only what could be it in disguise. */
export function keyIs(bytes: Buffer, start: number, end: number, key: string): boolean {
  const length = end - start;
  if (length === key.length) return spells(bytes, start, key);
  if (length < key.length || length > key.length * escapedCharBytes) return false;
  // Looked for here: a view made for every key that is another one costs more than the look.
  for (let i = start; i < end; i++) if (bytes[i] === BACKSLASH) return readString(bytes, start, end) === key;
  return false;
}

/** Byte by byte: a text made only to be compared costs more than the comparison. */
function spells(bytes: Buffer, start: number, key: string): boolean {
  for (let i = 0; i < key.length; i++) if (bytes[start + i] !== key.charCodeAt(i)) return false;
  return true;
}

const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;
/** `\u0061` is the longest way to write one character. */
const escapedCharBytes = 6;

/** Of the bytes of one value, as the functions here return them. */
export const isObject = (value: Buffer | undefined): value is Buffer => value?.[0] === OPEN_BRACE;
export const isList = (value: Buffer | undefined): value is Buffer => value?.[0] === OPEN_BRACKET;

/** The value of `key` as it stands in the text. */
export function memberText(bytes: Buffer, key: string): string | undefined {
  const span = findMember(bytes, key);
  return span && bytes.toString('utf8', span.start, span.end);
}

/** The value of `key` when it is a string. */
export function memberString(bytes: Buffer, key: string): string | undefined {
  const value = memberBytes(bytes, key);
  return value && stringOf(value);
}

/** What the text of one value stands for, when it is a string. */
export const stringOf = (value: Buffer): string | undefined =>
  value[0] === 0x22 ? readString(value, 1, value.length - 1) : undefined;

/** A view of the value of `key`. */
export function memberBytes(bytes: Buffer, key: string): Buffer | undefined {
  const span = findMember(bytes, key);
  return span && bytes.subarray(span.start, span.end);
}
