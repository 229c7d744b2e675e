/** Parts of a configuration that wait for `hostler trust`, as one line for the log and for `hostler status`. */

const partsShown = 20;

export const waitingText = (parts: readonly string[]): string => `waits for hostler trust: ${partsText(parts)}`;

/** The first of them, and how many more there are: a file may have thousands. */
export function partsText(parts: readonly string[]): string {
  const more = parts.length - partsShown;
  return `${parts.slice(0, partsShown).join(', ')}${more > 0 ? `, and ${more} more` : ''}`;
}
