/**
 * Removes from the text of a configuration the values that only its client reads. The file of a client may have megabytes of
 * history, which takes longer to parse than all other values and may quote other configurations.
 * Not here: single keys that have no effect (client-config.ts).
 * Invariant: only plain JSON, which clients write, is changed; any other text stays as it is.
 */
import { serverTables } from './client-keys.js';
import { hostConfigKeys } from './known-keys.js';

const readKeys: ReadonlySet<string> = new Set([...hostConfigKeys, ...serverTables]);

/** A space replaces the byte order mark, so that offsets stay the same. */
export const withoutMark = (text: string): string => text.replace(/^\ufeff/, ' ');

/**
 * Replaces each object or list at the top level that Hostler does not read by a string: blanks of equal length, or an empty string
 * if `isShorter`.
 */
export function withoutForeign(text: string, isShorter = false): string {
  const body = withoutMark(text);
  try {
    if (Array.isArray(JSON.parse(body))) return body;
  } catch {
    return body;
  }
  const parts: string[] = [];
  let [depth, begun, end, key] = [0, 0, 0, ''];
  for (let at = 0; at < body.length; at++) {
    const char = body[at];
    if (char === '"') {
      const from = at;
      do at = body.indexOf('"', at + 1);
      while (isEscaped(body, at));
      if (depth === 1) key = body.slice(from + 1, at);
    } else if (char === '{' || char === '[') begun = ++depth === 2 ? at : begun;
    else if ((char === '}' || char === ']') && --depth === 1 && !readKeys.has(key) && !key.includes('\\')) {
      parts.push(body.slice(end, begun), `"${' '.repeat(isShorter ? 0 : at - begun - 1)}"`);
      end = at + 1;
    }
  }
  return `${parts.join('')}${body.slice(end)}`;
}

function isEscaped(body: string, at: number): boolean {
  let before = at - 1;
  while (body[before] === '\\') before--;
  return (at - before) % 2 === 0;
}
