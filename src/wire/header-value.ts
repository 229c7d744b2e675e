/**
 * Encodes text for an HTTP header: visible ASCII unchanged, any other text as `=?base64?...?=`.
 * Invariant: each value has exactly one encoding, so that two readers of a header cannot disagree.
 */
import { isUtf8 } from 'node:buffer';

const visibleAscii = /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/;
const sentinel = /^=\?base64\?.*\?=$/i;
const prefix = '=?base64?';
const suffix = '?=';

export function encodeHeaderValue(value: string): string {
  if (value === '' || (visibleAscii.test(value) && !sentinel.test(value))) return value;
  return `${prefix}${Buffer.from(value, 'utf8').toString('base64')}${suffix}`;
}

/** Returns the decoded text; undefined for a value that `encodeHeaderValue` never returns. */
export function decodeHeaderValue(value: string): string | undefined {
  if (value === '') return '';
  if (!visibleAscii.test(value)) return undefined;
  if (!sentinel.test(value)) return value;
  if (!value.startsWith(prefix)) return undefined;
  const text = value.slice(prefix.length, -suffix.length);
  const bytes = Buffer.from(text, 'base64');
  // Buffer ignores invalid base64, so the text must encode to itself.
  return bytes.toString('base64') === text && isUtf8(bytes) ? bytes.toString('utf8') : undefined;
}
