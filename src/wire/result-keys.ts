/**
 * Whether a result may hold one of the two members that policy looks for, without walking through it: nearly none does, and
 * this is on the path of every call.
 * Invariant: a `no` is certain for a key that is spelled plainly; a key in escapes is for its reader to find.
 */
const isErrorKey = Buffer.from('"isError"');
const ttlKey = Buffer.from('"ttlMs"');

/** Past it the call into native code is cheaper than looking at each byte here. */
const smallBytes = 2_048;

const QUOTE = 0x22;

export const MENTIONS_ERROR = 1;
export const MENTIONS_TTL = 2;

/** The sum of what is mentioned anywhere in it. */
export function mentionedKeys(bytes: Buffer): number {
  if (bytes.length > smallBytes)
    return (bytes.includes(isErrorKey) ? MENTIONS_ERROR : 0) + (bytes.includes(ttlKey) ? MENTIONS_TTL : 0);
  let found = 0;
  const end = bytes.length - ttlKey.length;
  for (let at = 0; at <= end; at++) {
    if (bytes[at] !== QUOTE) continue;
    if (isAt(bytes, at, isErrorKey)) found |= MENTIONS_ERROR;
    else if (isAt(bytes, at, ttlKey)) found |= MENTIONS_TTL;
  }
  return found;
}

function isAt(bytes: Buffer, start: number, key: Buffer): boolean {
  // The first byte is the quote that was found.
  for (let i = 1; i < key.length; i++) if (bytes[start + i] !== key[i]) return false;
  return true;
}
