/**
 * Makes text from outside safe to show a person: nothing in it can move the cursor, change colours, ring, reverse the
 * reading direction or hide. What is taken out stays visible as an escape, so that an attack is seen rather than obeyed.
 */

/**
 * C0 but tab and newline; DEL; C1; soft hyphen; bidi marks, embeddings and isolates; zero-width and invisible operators;
 * line and paragraph separators; BOM; interlinear marks; tag characters; variation selectors supplement; lone surrogates.
 */
const unsafe =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e0fff}\p{Cs}]/gu;

const visible = (character: string) => `\\u{${(character.codePointAt(0) as number).toString(16)}}`;

export const neutralise = (text: string): string => text.replace(unsafe, visible);

/** As `neutralise`, on one line and at most `maxChars` long. */
export function neutraliseLine(text: string, maxChars: number): string {
  // Cut before replacing so that a huge text costs no more than what is shown of it.
  const head = text.length > maxChars ? `${text.slice(0, maxChars)}…` : text;
  const line = neutralise(head).replaceAll('\n', '\\n').replaceAll('\t', ' ');
  return line.length > maxChars * 2 ? `${line.slice(0, maxChars * 2)}…` : line;
}
