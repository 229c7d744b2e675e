/** Keys of Maps that are made of several names. */
import type { Principal } from './call.js';

/**
 * One string for several names. Invariant: different names give different strings, whatever is in them; that is why each
 * length is written before its name.
 */
export function jointKey(...names: readonly string[]): string {
  let key = '';
  for (const name of names) key += `${name.length}:${name}`;
  return key;
}

/** A name and a role. No role at all gives another key than any role does, also one that is called `undefined`. */
export const roleKey = (name: string, role: string | undefined): string =>
  role === undefined ? jointKey(name) : jointKey(name, role);

/** Whose question it is. A role is part of who somebody is: another role may be shown other things. */
export const principalKey = ({ id, role }: Principal): string => roleKey(id, role);
