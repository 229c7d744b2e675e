/** Map keys that consist of several names. */
import type { Principal } from './operation.js';

/** Joins names to one string. Invariant: different names give different strings, because each name follows its length. */
export function compositeKey(...names: readonly string[]): string {
  let key = '';
  for (const name of names) key += `${name.length}:${name}`;
  return key;
}

/** The names of a composite key; empty if the string is not one. */
export function namesIn(key: string): string[] {
  const names: string[] = [];
  for (let at = 0; at < key.length; ) {
    const colon = key.indexOf(':', at);
    const end = colon + 1 + Number.parseInt(key.slice(at, colon), 10);
    if (colon < 0 || !(end > colon && end <= key.length)) return [];
    names.push(key.slice(colon + 1, end));
    at = end;
  }
  return names;
}

/** Identity of the caller, with the role: another role may see other things. A principal without a role differs from one with any. */
export const principalKey = ({ id, role }: Principal): string =>
  role === undefined ? compositeKey(id) : compositeKey(id, role);
