/**
 * What zod found wrong, as the two things our errors are made of: where, and what in a few words.
 * Only the first is told: the others often follow from it. Not here: the error itself, and its hint (whoever parses).
 *
 * Invariant: of what was read, nothing but the names of members is quoted, and those in one short line.
 */
import type { z } from 'zod';
import { neutraliseLine } from '../kernel/terminal-text.js';

const nameCharsShown = 100;

export interface FirstIssue {
  readonly field: string;
  readonly what: string;
  /** The member that nobody knows is the field itself: in zod's words it looks like a secret. */
  readonly isUnknownKey: boolean;
}

/** `at`: where that stands which was parsed. */
export function firstIssue({ issues: [issue] }: z.ZodError, at = ''): FirstIssue {
  const place = [...(at === '' ? [] : [at]), ...(issue?.path.map(String) ?? [])];
  if (issue?.code === 'unrecognized_keys') {
    const field = [...place, neutraliseLine(String(issue.keys[0]), nameCharsShown)].join('.');
    return { field, what: 'is not known', isUnknownKey: true };
  }
  const text = issue?.message ?? 'is not valid';
  return { field: place.join('.'), what: text.charAt(0).toLowerCase() + text.slice(1), isUnknownKey: false };
}
