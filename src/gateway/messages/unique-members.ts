/**
 * Members of a request's params in one look, for requests that are acted on.
 * Invariant: a request in which one of them stands twice is refused, never read as if it were not there.
 */
import { LIMITS } from '../../kernel/limits.js';
import { keyIs } from '../../wire/json-members.js';
import { eachMember } from '../../wire/json-scan.js';

/** Views in the order of the keys. Undefined: not an object, one of the keys stands twice, or there are too many others. */
export function uniqueMembers(bytes: Buffer, keys: readonly string[]): (Buffer | undefined)[] | undefined {
  const found: (Buffer | undefined)[] = keys.map(() => undefined);
  let isDoubled = false;
  let members = 0;
  const after = eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    if (++members > LIMITS.members) return false;
    for (let i = 0; i < keys.length; i++) {
      if (!keyIs(bytes, keyStart, keyEnd, keys[i] as string)) continue;
      isDoubled ||= found[i] !== undefined;
      found[i] = bytes.subarray(valueStart, valueEnd);
      return !isDoubled;
    }
    return undefined;
  });
  return after < 0 || isDoubled || members > LIMITS.members ? undefined : found;
}
