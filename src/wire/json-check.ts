/**
 * Checks JSON text that a caller hands us before it is pasted into a message. Without it, text that closes our bracket
 * could rename the tool or the method behind the back of whoever allowed the call.
 * Text that came through the scanner already needs no second look.
 */
import { isUtf8 } from 'node:buffer';
import { HostError } from '../kernel/errors.js';
import { readString } from './envelope.js';
import type { JsonText } from './frame.js';
import { eachMember, scanFacts, skipSpace, skipValue } from './json-scan.js';

export function toBuffer(text: JsonText): Buffer {
  if (typeof text === 'string') return Buffer.from(text);
  return text instanceof Buffer ? text : Buffer.from(text.buffer, text.byteOffset, text.byteLength);
}

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

/** Throws unless the text is one JSON object in which no key stands twice: what decides about a request must be one thing. */
export function checkParams(text: JsonText): void {
  checkObject(text, 'params');
  const bytes = toBuffer(text);
  const seen = new Set<string>();
  eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd }) => {
    const key = readString(bytes, keyStart, keyEnd);
    if (seen.has(key)) throw refused('params', 'has a key twice');
    if (seen.size >= paramsKeysMax) throw refused('params', `has more than ${paramsKeysMax} members`);
    seen.add(key);
    return undefined;
  });
}

/** The protocol knows a handful; arguments of a tool are not among them but below one of them. */
const paramsKeysMax = 256;

const refused = (field: string, what: string) =>
  new HostError('invalid_arguments', `${field} ${what}`, {
    field,
    phase: 'queued',
    execution: 'not_executed',
    hint: 'pass an object, or the text of exactly one JSON object',
  });
