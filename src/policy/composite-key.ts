/** Keys of Maps that are made of several names. */
import type { Principal } from './operation.js';

/**
 * One string for several names. Invariant: different names give different strings, whatever is in them; that is why each
 * length is written before its name.
 */
export function compositeKey(...names: readonly string[]): string {
  let key = '';
  for (const name of names) key += `${name.length}:${name}`;
  return key;
}

/** The names that one was made of; none when it was not made here. */
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

/** A name and a role. No role at all gives another key than any role does, also one that is called `undefined`. */
export const roleKey = (name: string, role: string | undefined): string =>
  role === undefined ? compositeKey(name) : compositeKey(name, role);

/** Whose question it is. A role is part of the identity: another role may be shown other things. */
export const principalKey = ({ id, role }: Principal): string => roleKey(id, role);
