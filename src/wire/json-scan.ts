/**
 * The JSON scanner: walks JSON text as bytes without building values, so that a payload can be measured, cut and forwarded
 * unchanged. It accepts exactly the texts that `JSON.parse` accepts, except values that nest too deep.
 * Not here: checking UTF-8 (`sawHighByte` shows whether that is needed), finding members by name (json-members.ts).
 * The functions that skip or visit return the index after the text they read, or -1 for malformed text. They never throw.
 */
import { LIMITS } from '../kernel/limits.js';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const COMMA = 0x2c;
const COLON = 0x3a;

/** Bytes inside a string: 1 for plain ASCII; 0 for a quote, an escape, a control, or part of a multi-byte character. */
const STRING_BYTE = new Uint8Array(256);
for (let byte = 0x20; byte < 0x80; byte++) STRING_BYTE[byte] = 1;
STRING_BYTE[QUOTE] = 0;
STRING_BYTE[BACKSLASH] = 0;

const ESCAPED_BYTE = new Uint8Array(256);
for (const byte of Buffer.from('"\\/bfnrt')) ESCAPED_BYTE[byte] = 1;

/** If one of these bytes follows a digit, the number is complete. */
const ENDS_NUMBER = new Uint8Array(256);
for (const byte of Buffer.from(',]}')) ENDS_NUMBER[byte] = 1;

const isHex = (byte: number) =>
  (byte >= 0x30 && byte <= 0x39) || (byte >= 0x41 && byte <= 0x46) || (byte >= 0x61 && byte <= 0x66);
const isDigit = (byte: number | undefined) => byte !== undefined && byte >= 0x30 && byte <= 0x39;

const IN_OBJECT = 1;
const IN_ARRAY = 2;
const containers = new Uint8Array(LIMITS.depth + 2);

/** Further results of the last scan. Valid until the next scan. */
export const scanFacts = {
  sawHighByte: false,
  tooDeep: false,
  tooMany: false,
  /** Number of values read, at any depth. The scanner never resets it. */
  values: 0,
  /** Flags (see below) of the keys read, at any depth. The scanner never resets it. */
  mayHold: 0,
};

/**
 * Limits of a scan. A caller that changes one must restore it.
 * `values`: maximum number of values inside one value. Single digits cost many times more per byte than long strings.
 * `passesDeep`: a value that nests too deep is skipped by its brackets alone, without a check that it is JSON.
 */
export const scanLimits = { values: Number.MAX_SAFE_INTEGER, passesDeep: false };

/** Result members that policy reads: `isError` and `ttlMs`. The scan passes every key anyway, and few results have them. */
export const MAY_HOLD_ERROR = 1;
export const MAY_HOLD_TTL = 2;

/** Compares the length and two letters. A false match costs only a lookup. Escaped keys do not match. */
function noteKey(bytes: Uint8Array, start: number, length: number): void {
  if (length === 7) {
    if (bytes[start] === 0x69 && bytes[start + 2] === 0x45) scanFacts.mayHold |= MAY_HOLD_ERROR;
  } else if (length === 5 && bytes[start] === 0x74 && bytes[start + 3] === 0x4d) scanFacts.mayHold |= MAY_HOLD_TTL;
}

export function skipSpace(bytes: Uint8Array, from: number, end: number): number {
  let i = from;
  while (i < end) {
    const byte = bytes[i] as number;
    if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) break;
    i++;
  }
  return i;
}

/** `from` is the index after the opening quote; the result is the index after the closing one. */
function skipString(bytes: Uint8Array, from: number, end: number): number {
  let i = from;
  for (;;) {
    while (i < end && STRING_BYTE[bytes[i] as number] === 1) i++;
    if (i >= end) return -1;
    const byte = bytes[i] as number;
    if (byte === QUOTE) return i + 1;
    if (byte >= 0x80) {
      scanFacts.sawHighByte = true;
      i++;
    } else if (byte === BACKSLASH) {
      // A text may consist only of escapes, so an escape of one character is skipped without a function call.
      if (i + 1 < end && ESCAPED_BYTE[bytes[i + 1] as number] === 1) {
        i += 2;
        continue;
      }
      i = skipEscape(bytes, i + 1, end);
      if (i < 0) return -1;
    } else {
      return -1;
    }
  }
}

/** Skips `uXXXX`. */
function skipEscape(bytes: Uint8Array, at: number, end: number): number {
  if (at + 4 >= end || bytes[at] !== 0x75) return -1;
  for (let i = at + 1; i <= at + 4; i++) if (!isHex(bytes[i] as number)) return -1;
  return at + 5;
}

function skipNumber(bytes: Uint8Array, from: number, end: number): number {
  let i = from;
  if (bytes[i] === 0x2d) i++;
  if (i >= end) return -1;
  if (bytes[i] === 0x30) i++;
  else if (isDigit(bytes[i])) while (i < end && isDigit(bytes[i])) i++;
  else return -1;
  if (i < end && bytes[i] === 0x2e) {
    i++;
    if (i >= end || !isDigit(bytes[i])) return -1;
    while (i < end && isDigit(bytes[i])) i++;
  }
  if (i < end && (bytes[i] === 0x65 || bytes[i] === 0x45)) {
    i++;
    if (i < end && (bytes[i] === 0x2b || bytes[i] === 0x2d)) i++;
    if (i >= end || !isDigit(bytes[i])) return -1;
    while (i < end && isDigit(bytes[i])) i++;
  }
  return i;
}

const TRUE = Buffer.from('true');
const FALSE = Buffer.from('false');
const NULL = Buffer.from('null');

function skipWord(bytes: Uint8Array, from: number, end: number, word: Uint8Array): number {
  if (from + word.length > end) return -1;
  for (let i = 0; i < word.length; i++) if (bytes[from + i] !== word[i]) return -1;
  return from + word.length;
}

function skipScalar(bytes: Uint8Array, from: number, end: number): number {
  switch (bytes[from]) {
    case 0x74:
      return skipWord(bytes, from, end, TRUE);
    case 0x66:
      return skipWord(bytes, from, end, FALSE);
    case 0x6e:
      return skipWord(bytes, from, end, NULL);
    default:
      return skipNumber(bytes, from, end);
  }
}

/** Skips `"key" :`. */
export function skipKey(bytes: Uint8Array, from: number, end: number): number {
  if (from >= end || bytes[from] !== QUOTE) return -1;
  const after = skipString(bytes, from + 1, end);
  if (after < 0) return -1;
  noteKey(bytes, from + 1, after - from - 2);
  const colon = skipSpace(bytes, after, end);
  return colon < end && bytes[colon] === COLON ? colon + 1 : -1;
}

/** Skips an object or array of any depth by its brackets. The text between them may not be JSON. */
function skipContainer(bytes: Uint8Array, from: number, end: number): number {
  let depth = 0;
  for (let i = from; i < end; ) {
    const byte = bytes[i] as number;
    if (byte === QUOTE) {
      i = skipString(bytes, i + 1, end);
      if (i < 0) return -1;
      continue;
    }
    i++;
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) depth++;
    else if ((byte === CLOSE_BRACE || byte === CLOSE_BRACKET) && --depth === 0) return i;
  }
  return -1;
}

/**
 * Skips one value of any kind. `outerDepth` is the number of containers around it; -1: the value itself does not count as a level.
 * Iterative, because a message of 100,000 brackets must not overflow the stack.
 */
export function skipValue(bytes: Uint8Array, from: number, end: number, outerDepth: number): number {
  let depth = outerDepth;
  let i = from;
  let values = 0;
  const valuesMax = scanLimits.values;
  for (;;) {
    if (++values > valuesMax) {
      scanFacts.tooMany = true;
      return -1;
    }
    i = skipSpace(bytes, i, end);
    if (i >= end) return -1;
    const byte = bytes[i] as number;
    if (byte === QUOTE) {
      i = skipString(bytes, i + 1, end);
    } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      if (depth >= LIMITS.depth) {
        scanFacts.tooDeep = true;
        if (!scanLimits.passesDeep) return -1;
        i = skipContainer(bytes, i, end);
      } else {
        i = skipSpace(bytes, i + 1, end);
        if (i >= end) return -1;
        if (bytes[i] === (byte === OPEN_BRACE ? CLOSE_BRACE : CLOSE_BRACKET)) i++;
        else {
          containers[++depth] = byte === OPEN_BRACE ? IN_OBJECT : IN_ARRAY;
          if (byte === OPEN_BRACE) {
            i = skipKey(bytes, i, end);
            if (i < 0) return -1;
          }
          continue;
        }
      }
    } else if (byte <= 0x39 && byte >= 0x30 && i + 1 < end && ENDS_NUMBER[bytes[i + 1] as number] === 1) {
      // Fast path: a text may consist only of single digits.
      i++;
    } else {
      i = skipScalar(bytes, i, end);
    }
    if (i < 0) return -1;

    // A value is complete: close every container that it completes, or continue with the next member.
    for (;;) {
      if (depth === outerDepth) {
        scanFacts.values += values;
        return i;
      }
      i = skipSpace(bytes, i, end);
      if (i >= end) return -1;
      const next = bytes[i] as number;
      const inObject = containers[depth] === IN_OBJECT;
      if (next === COMMA) {
        i++;
        if (inObject) {
          i = skipKey(bytes, skipSpace(bytes, i, end), end);
          if (i < 0) return -1;
        }
        break;
      }
      if (next !== (inObject ? CLOSE_BRACE : CLOSE_BRACKET)) return -1;
      depth--;
      i++;
    }
  }
}

/** Positions of one member of an object; the key without its quotes. The object is reused within one scan. */
export interface Member {
  keyStart: number;
  keyEnd: number;
  valueStart: number;
  valueEnd: number;
}

/**
 * Calls `visit` for each member of the object at `from`; stops when it returns false.
 * `enter` may scan a value itself, before `visit`. It returns the index after the value, -1, or undefined to leave the value to
 * the scanner.
 * Returns the index after the object, the index where it stopped, or -1 for malformed text.
 */
export function eachMember(
  bytes: Buffer,
  from: number,
  end: number,
  outerDepth: number,
  visit: (member: Member) => boolean | undefined,
  enter?: (bytes: Buffer, member: Member, end: number) => number | undefined,
): number {
  let i = skipSpace(bytes, from, end);
  if (i >= end || bytes[i] !== OPEN_BRACE) return -1;
  i = skipSpace(bytes, i + 1, end);
  if (i < end && bytes[i] === CLOSE_BRACE) return i + 1;
  const member: Member = { keyStart: 0, keyEnd: 0, valueStart: 0, valueEnd: 0 };
  for (;;) {
    i = skipSpace(bytes, i, end);
    member.keyStart = i + 1;
    const afterKey = skipKey(bytes, i, end);
    if (afterKey < 0) return -1;
    member.keyEnd = keyEndBefore(bytes, afterKey);
    member.valueStart = skipSpace(bytes, afterKey, end);
    i = enter?.(bytes, member, end) ?? skipValue(bytes, member.valueStart, end, outerDepth + 1);
    if (i < 0) return -1;
    member.valueEnd = i;
    if (visit(member) === false) return i;
    i = skipSpace(bytes, i, end);
    if (i >= end) return -1;
    if (bytes[i] === CLOSE_BRACE) return i + 1;
    if (bytes[i] !== COMMA) return -1;
    i++;
  }
}

/** Searches from the index after the colon back to the closing quote of the key. */
export function keyEndBefore(bytes: Uint8Array, afterColon: number): number {
  let i = afterColon - 2;
  while (bytes[i] !== QUOTE) i--;
  return i;
}

/**
 * Calls `visit` with the bounds of each element of the array at `from`; stops when it returns false.
 * Returns the index after the array, the index where it stopped, or -1 for malformed text.
 */
export function eachElement(
  bytes: Uint8Array,
  from: number,
  end: number,
  outerDepth: number,
  visit: (start: number, end: number) => boolean | undefined,
): number {
  let i = skipSpace(bytes, from, end);
  if (i >= end || bytes[i] !== OPEN_BRACKET) return -1;
  i = skipSpace(bytes, i + 1, end);
  if (i < end && bytes[i] === CLOSE_BRACKET) return i + 1;
  for (;;) {
    const start = skipSpace(bytes, i, end);
    i = skipValue(bytes, start, end, outerDepth + 1);
    if (i < 0) return -1;
    if (visit(start, i) === false) return i;
    i = skipSpace(bytes, i, end);
    if (i >= end) return -1;
    if (bytes[i] === CLOSE_BRACKET) return i + 1;
    if (bytes[i] !== COMMA) return -1;
    i++;
  }
}

/** Decodes the string whose content, without quotes, is between the bounds. */
export function readString(bytes: Buffer, start: number, end: number): string {
  for (let i = start; i < end; i++) {
    const byte = bytes[i] as number;
    if (byte === BACKSLASH || byte > 0x7f) return JSON.parse(bytes.toString('utf8', start - 1, end + 1)) as string;
  }
  return bytes.toString('latin1', start, end);
}
