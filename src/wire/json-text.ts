/**
 * JSON text as a string or as bytes: conversion, joining, and checks before text of a caller is inserted into a message.
 * Without the checks, text that closes the bracket of the message could rename the tool after the call was allowed. Text that
 * passed the scanner needs no second check.
 */
import { isUtf8 } from 'node:buffer';
import { HostError } from '../kernel/errors.js';
import type { JsonText } from './frame.js';
import { eachMember, readString, scanFacts, skipSpace, skipValue } from './json-scan.js';

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

/** Returns a string with one character per byte of the UTF-8 text. ASCII text is unchanged. */
export const latin1 = (text: string): string => (isAscii.test(text) ? text : Buffer.from(text).toString('latin1'));
const isAscii = /^[\x00-\x7f]*$/;

/** Throws unless the text is exactly one JSON value. */
export function checkValue(text: JsonText, field: string): void {
  const bytes = toBuffer(text);
  scanFacts.sawHighByte = false;
  const after = skipValue(bytes, 0, bytes.length, 0);
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
