/** Text as one word of a POSIX shell, for commands that people paste. */
export const quoted = (text: string): string =>
  /^[\w./:@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
