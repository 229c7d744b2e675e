/** The keys of the top level of a configuration, and the search for the key that a misspelt key probably means. */
import { nearestName } from '../kernel/nearest-name.js';

export const hostConfigKeys = [
  ...(['$schema', 'mcpServers', 'roles', 'unlistedRole', 'budgets', 'groups', 'keys', 'listen', 'log'] as const),
  ...(['broker', 'telemetry', 'secrets', 'identity', 'idleExit'] as const),
] as const;

const shortKeyChars = 3;

/** Returns the known key at most two edits away, or one edit for keys such as `env`, which resemble every short word. */
export const nearestKey = (written: string, ours: Iterable<string>): string | undefined =>
  nearestName(written, ours, ({ length }) => (length > shortKeyChars ? 2 : 1));

/** The text of an error about an unknown key. It suggests the nearest known key. */
export function unknownKeyText(written: string, ours: Iterable<string>): string {
  const near = nearestKey(written, ours);
  return near === undefined ? 'is not known' : `is not known; did you mean ${near}?`;
}
