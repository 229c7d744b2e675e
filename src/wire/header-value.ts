/**
 * How a text of any kind travels in an HTTP header: as it is when it is plain visible ASCII, else as `=?base64?...?=`.
 * Invariant: a value that is decoded was encoded in exactly one way, so that two readers of a header cannot disagree.
 */
import { isUtf8 } from 'node:buffer';

const visibleAscii = /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/;
const sentinel = /^=\?base64\?.*\?=$/i;
const prefix = '=?base64?';
const suffix = '?=';

/** Values that are not plain visible ASCII travel as `=?base64?...?=`. */
export function encodeHeaderValue(value: string): string {
  if (value === '' || (visibleAscii.test(value) && !sentinel.test(value))) return value;
  return `${prefix}${Buffer.from(value, 'utf8').toString('base64')}${suffix}`;
}

/** What a header value stands for; undefined when it is not one that `encodeHeaderValue` could have made or left alone. */
export function decodeHeaderValue(value: string): string | undefined {
  if (value === '') return '';
  if (!visibleAscii.test(value)) return undefined;
  if (!sentinel.test(value)) return value;
  if (!value.startsWith(prefix)) return undefined;
  const text = value.slice(prefix.length, -suffix.length);
  const bytes = Buffer.from(text, 'base64');
  // Buffer takes what is not base64 for nothing: only what comes out the same again was meant.
  return bytes.toString('base64') === text && isUtf8(bytes) ? bytes.toString('utf8') : undefined;
}
