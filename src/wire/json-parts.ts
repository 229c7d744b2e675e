/** One JSON text in several parts, as it is put together without looking into any of them. */
import type { JsonText } from './frame.js';

export function partsBytes(parts: readonly JsonText[]): number {
  let bytes = 0;
  for (const part of parts) bytes += typeof part === 'string' ? Buffer.byteLength(part) : part.byteLength;
  return bytes;
}

/** The parts as one text, in a buffer of exactly `bytes`. */
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

/** As a text with a letter for each byte of UTF-8. Nearly every text of ours is ASCII and stays as it is. */
export const latin1 = (text: string): string => (isAscii.test(text) ? text : Buffer.from(text).toString('latin1'));
const isAscii = /^[\x00-\x7f]*$/;
