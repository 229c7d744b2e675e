/** Names the parts of a configuration that wait for a confirmation. A separate file, so that `status` does not load trust-text.ts. */
const partsListed = 20;

export const waitingText = (parts: readonly string[]): string => `waits for hostler trust: ${partsText(parts)}`;

/** Bounded, because a file may have thousands of parts. */
export function partsText(parts: readonly string[]): string {
  const more = parts.length - partsListed;
  return `${parts.slice(0, partsListed).join(', ')}${more > 0 ? `, and ${more} more` : ''}`;
}
