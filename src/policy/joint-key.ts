/**
 * One string for several names, as the key of a Map. Invariant: different names give different strings, whatever is in them;
 * that is why each length is written before its name.
 */
export function jointKey(...names: readonly string[]): string {
  let key = '';
  for (const name of names) key += `${name.length}:${name}`;
  return key;
}
