/** The keys of the top level of a configuration, and the search for the key that a misspelt key probably means. */
import { nearestName } from '../kernel/nearest-name.js';

export const hostConfigKeys = [
  ...(['$schema', 'mcpServers', 'roles', 'unlistedRole', 'budgets', 'groups', 'keys', 'listen', 'log'] as const),
  ...(['broker', 'telemetry', 'secrets', 'identity', 'idleExit'] as const),
] as const;

const shortKeyChars = 3;

/** The key within two edits; within one for keys such as `env`, which are near every short word. */
export const nearestKey = (written: string, ours: Iterable<string>): string | undefined =>
  nearestName(written, ours, ({ length }) => (length > shortKeyChars ? 2 : 1));

/** What an error says about an unknown key; it suggests the nearest known key. */
export function unknownKeyText(written: string, ours: Iterable<string>): string {
  const near = nearestKey(written, ours);
  return near === undefined ? 'is not known' : `is not known; did you mean ${near}?`;
}
