/**
 * Edits members of a JSON object in its bytes and copies every other member unchanged: `_meta` of relayed params and results,
 * and single members of results and references.
 * Invariant: each edited key occurs at most once in the result. An object with a duplicate of a replaced key is refused.
 */

import { isUtf8 } from 'node:buffer';
import { HostError } from '../kernel/errors.js';
import type { JsonText } from './channel.js';
import { keyIs, type Span } from './json-members.js';
import { eachMember, readString, scanFacts, skipSpace, skipValue } from './json-scan.js';

const comma = Buffer.from(',');
const emptyObject = Buffer.from('{}');

/** More edits are looked up by key: comparing each member with each edit would take seconds for a large object. */
const comparedEdits = 16;

/** Key and its new value as JSON text; undefined removes the member. */
export type MemberEdits = ReadonlyArray<readonly [key: string, json: JsonText | undefined]>;

/** Replaces members in place and adds new ones in front. Undefined: not one object, or a replaced key is duplicate. */
export function editMembers(bytes: Buffer, edits: MemberEdits): Buffer | undefined {
  const chunks: Uint8Array[] = [];
  const done = new Set<number>();
  const places = edits.length > comparedEdits ? new Map(edits.map(([key], at) => [key, at])) : undefined;
  let isDoubled = false;
  let runStart = -1;
  let lastEnd = -1;
  let kept = 0;
  const after = eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    const at = places
      ? (places.get(readString(bytes, keyStart, keyEnd)) ?? -1)
      : edits.findIndex(([key]) => keyIs(bytes, keyStart, keyEnd, key));
    const json = edits[at]?.[1];
    if (at >= 0 && json === undefined) {
      if (runStart >= 0) chunks.push(bytes.subarray(runStart, lastEnd));
      runStart = -1;
      return undefined;
    }
    if (runStart < 0) {
      if (kept > 0) chunks.push(comma);
      runStart = keyStart - 1;
    }
    kept++;
    lastEnd = valueEnd;
    if (json === undefined) return undefined;
    isDoubled ||= done.has(at);
    done.add(at);
    chunks.push(bytes.subarray(runStart, valueStart), toBuffer(json));
    runStart = valueEnd;
    return !isDoubled;
  });
  if (after < 0 || isDoubled) return undefined;
  if (runStart >= 0) chunks.push(bytes.subarray(runStart, lastEnd));
  const front: Uint8Array[] = [];
  for (const [at, [key, json]] of edits.entries()) {
    if (json === undefined || done.has(at)) continue;
    front.push(Buffer.from(`${front.length === 0 ? '' : ','}${JSON.stringify(key)}:`), toBuffer(json));
  }
  if (front.length > 0 && kept > 0) front.push(comma);
  return Buffer.concat([Buffer.from('{'), ...front, ...chunks, Buffer.from('}')]);
}

export type MetaEdits = ReadonlyArray<readonly [name: string, json: string | undefined]>;

/** Edits `_meta` of params, which must be one JSON object. Without params, the result has only `_meta`. */
export function spliceMeta(params: Uint8Array | undefined, edits: MetaEdits): Buffer {
  const bytes = params ? toBuffer(params) : emptyObject;
  let meta: Span | undefined;
  let members = 0;
  const after = eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    members++;
    if (!keyIs(bytes, keyStart, keyEnd, '_meta')) return;
    if (meta) throw ambiguous('params has two _meta members');
    meta = { start: valueStart, end: valueEnd };
  });
  if (after < 0 || skipSpace(bytes, after, bytes.length) !== bytes.length)
    throw ambiguous('params is not one JSON object');
  const { start, end } = meta ?? { start: -1, end: -1 };
  const others = editMembers(
    meta ? bytes.subarray(start, end) : emptyObject,
    edits.map(([name]) => [name, undefined]),
  );
  const edited = others && editMembers(others, edits);
  if (!edited) throw ambiguous('params._meta is not an object');
  if (meta) return Buffer.concat([bytes.subarray(0, start), edited, bytes.subarray(end)]);
  const open = bytes.indexOf(0x7b) + 1;
  return Buffer.concat([
    ...[bytes.subarray(0, open), Buffer.from('"_meta":'), edited],
    ...(members > 0 ? [comma] : []),
    bytes.subarray(open),
  ]);
}

const ambiguous = (what: string) =>
  new HostError('invalid_arguments', what, {
    field: 'params._meta',
    execution: 'not_executed',
    hint: 'send params as a JSON object with at most one _meta object',
  });

/**
 * JSON text as a string or as bytes: conversion, joining, and checks before text of a caller is inserted into a message.
 * Without the checks, text that closes the bracket of the message could rename the tool after the call was allowed. Text that
 * passed the scanner needs no second check.
 */
export function toBuffer(text: JsonText): Buffer {
  if (typeof text === 'string') return Buffer.from(text);
  return text instanceof Buffer ? text : Buffer.from(text.buffer, text.byteOffset, text.byteLength);
}

export function partsBytes(parts: readonly JsonText[]): number {
  let bytes = 0;
  for (const part of parts) bytes += typeof part === 'string' ? Buffer.byteLength(part) : part.byteLength;
  return bytes;
}

export function joinedParts(parts: readonly JsonText[], bytes = partsBytes(parts)): Buffer {
  const text = Buffer.allocUnsafe(bytes);
  let at = 0;
  for (const part of parts) {
    if (typeof part === 'string') at += text.write(part, at);
    else {
      text.set(part, at);
      at += part.byteLength;
    }
  }
  return text;
}

/** Throws unless the text is exactly one JSON value. `outerDepth`: as in `skipValue`. */
export function checkValue(text: JsonText, field: string, outerDepth = 0): void {
  const bytes = toBuffer(text);
  scanFacts.sawHighByte = false;
  const after = skipValue(bytes, 0, bytes.length, outerDepth);
  if (after < 0 || skipSpace(bytes, after, bytes.length) !== bytes.length)
    throw refused(field, 'is not one JSON value');
  if (scanFacts.sawHighByte && typeof text !== 'string' && !isUtf8(bytes)) throw refused(field, 'is not valid UTF-8');
}

/** Throws unless the text is exactly one JSON object. */
export function checkObject(text: JsonText, field: string): void {
  const bytes = toBuffer(text);
  if (bytes[skipSpace(bytes, 0, bytes.length)] !== 0x7b) throw refused(field, 'is not a JSON object');
  checkValue(bytes, field);
}

/** Throws unless the text is one JSON object without duplicate keys. */
export function checkParams(text: JsonText): void {
  checkObject(text, 'params');
  const bytes = toBuffer(text);
  const seen = new Set<string>();
  eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd }) => {
    const key = readString(bytes, keyStart, keyEnd);
    if (seen.has(key)) throw refused('params', 'has a duplicate key');
    if (seen.size >= paramsKeysMax) throw refused('params', `has more than ${paramsKeysMax} members`);
    seen.add(key);
    return undefined;
  });
}

/** Maximum of members of params. The protocol defines only a few, and all arguments of a tool are in one of them. */
const paramsKeysMax = 256;

const refused = (field: string, what: string) =>
  new HostError('invalid_arguments', `${field} ${what}`, {
    field,
    phase: 'queued',
    execution: 'not_executed',
    hint: 'pass an object, or the text of exactly one JSON object',
  });
