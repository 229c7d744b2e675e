/**
 * Finds keys that have no rights because `roles` does not list their role.
 * Not here: refusing their calls (policy/allowlist.ts).
 */
import { neutraliseLine } from '../kernel/terminal-text.js';

export interface UnlistedRole {
  /** Name of the entry in `keys`. */
  readonly key: string;
  readonly role: string;
}

export const unlistedRoleHint = 'list it under roles in the configuration, or set unlistedRole to "allow"';

const shownChars = 128;

/** Used in the log, in `status`, and in errors for the worker. */
export const unlistedRoleText = (role: string): string => `role '${neutraliseLine(role, shownChars)}' is not listed`;

/** `keys`: unparsed entries. keys.ts reports all other mistakes in them. */
export function unlistedRoles(
  keys: Readonly<Record<string, unknown>>,
  roles: ReadonlyMap<string, unknown> | undefined,
  unlistedRole: 'deny' | 'allow' | undefined,
): readonly UnlistedRole[] {
  if (unlistedRole === 'allow') return [];
  return Object.entries(keys).flatMap(([key, entry]) => {
    const role = typeof entry === 'object' && entry !== null ? (entry as { role?: unknown }).role : undefined;
    return typeof role !== 'string' || role === '' || roles?.has(role) ? [] : [{ key, role }];
  });
}
