/**
 * Makes text from outside safe for a terminal: it cannot move the cursor, change colours, ring, reverse the reading direction
 * or hide. Unsafe characters are shown as escapes, so that an attack is visible.
 */

/**
 * Control characters except tab and newline, lone surrogates, line and paragraph separators, and all characters that Unicode
 * defines as invisible: soft hyphens, joiners, bidi controls, fillers, variation selectors, tags.
 */
const unsafe =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029\ufff9-\ufffb\p{Cs}\p{Bidi_Control}\p{Default_Ignorable_Code_Point}]/gu;

const visible = (character: string) => `\\u{${(character.codePointAt(0) as number).toString(16)}}`;

export const neutralise = (text: string): string => text.replace(unsafe, visible);

/** Like `neutralise`, on one line and cut to `maxChars` characters of input. */
export function neutraliseLine(text: string, maxChars: number): string {
  // Cut before replacing, so that a huge text costs no more than its visible part.
  const line = neutralise(headOf(text, maxChars)).replaceAll('\n', '\\n').replaceAll('\t', ' ');
  return headOf(line, maxChars * 2);
}

/** Returns the first `maxChars` characters and an ellipsis, without splitting a surrogate pair. */
function headOf(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  return `${text.slice(0, maxChars).replace(/[\ud800-\udbff]$/, '')}…`;
}

/** Writes the same characters as JSON escapes, so that the text still parses to the same value. */
export const neutraliseJson = (json: string): string =>
  json.replace(unsafe, (character) =>
    character
      .split('')
      .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
      .join(''),
  );

/** Blank characters that are invisible or look like a plain space. */
const blank = /[\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000]/gu;

const codePoint = (character: string): string =>
  `U+${(character.codePointAt(0) as number).toString(16).toUpperCase().padStart(4, '0')}`;

/** Returns the invisible and the blank characters of a text, each once, such as `U+202E`. */
export const unseenCharacters = (text: string): string[] => [
  ...new Set([...(text.match(unsafe) ?? []), ...(text.match(blank) ?? [])].map(codePoint)),
];

/** Replaces each character that `unseenCharacters` finds by its code point, such as `<U+202E>`, for a person who compares two texts. */
export const showUnseen = (text: string): string =>
  text
    .replace(unsafe, (character) => `<${codePoint(character)}>`)
    .replace(blank, (character) => `<${codePoint(character)}>`);
