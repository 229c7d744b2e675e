/**
 * What a server says about keeping a result of `tools/call`: `ttlMs` and `cacheScope` at the top level of the result.
 * Read from the bytes, because the result is relayed unread.
 *
 * Invariant: in doubt there is no hint. A result that says one of these things twice, is an error, or asks for another round,
 * is not kept.
 */
import { keyIs } from '../wire/json-members.js';
import { eachMember } from '../wire/json-scan.js';

export interface CacheHint {
  readonly ttlMs: number;
  /** True: the same for everybody. Anything but `"public"` means it is the caller's own. */
  readonly isPublic: boolean;
}

const keys = ['ttlMs', 'cacheScope', 'resultType', 'isError'] as const;

/** `bytes` is a result object that came through the scanner. */
export function cacheHint(bytes: Buffer): CacheHint | undefined {
  const found: Partial<Record<(typeof keys)[number], string>> = {};
  let isAmbiguous = false;
  const after = eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    for (const key of keys) {
      if (!keyIs(bytes, keyStart, keyEnd, key)) continue;
      if (found[key] !== undefined) isAmbiguous = true;
      // Longer than any value that says something to us; what is cut off was not one.
      found[key] = bytes.toString('utf8', valueStart, Math.min(valueEnd, valueStart + valueBytesMax));
    }
  });
  if (after < 0 || isAmbiguous) return undefined;
  if (found.isError !== undefined && found.isError !== 'false') return undefined;
  if (found.resultType !== undefined && found.resultType !== '"complete"') return undefined;
  const ttlMs = Number(found.ttlMs);
  if (!Number.isInteger(ttlMs) || ttlMs <= 0) return undefined;
  return { ttlMs, isPublic: found.cacheScope === '"public"' };
}

/** Whether a result is the last word on what was asked; one that says anything else, or says it twice, wants to be gone on with. */
export function isComplete(bytes: Buffer): boolean {
  const said: string[] = [];
  eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    if (keyIs(bytes, keyStart, keyEnd, 'resultType')) said.push(bytes.toString('utf8', valueStart, valueEnd));
  });
  return said.length === 0 || (said.length === 1 && said[0] === '"complete"');
}

const valueBytesMax = 64;
