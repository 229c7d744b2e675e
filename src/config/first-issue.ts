import type { z } from 'zod';
import { neutraliseLine } from '../kernel/terminal-text.js';

const nameCharsShown = 100;

/** What is wrong first: where, and in a few words. A key that is not known is the place itself; in zod's words it looks like a secret. */
export function firstIssue({ issues: [issue] }: z.ZodError): { readonly field: string; readonly what: string } {
  const at = issue?.path.map(String) ?? [];
  if (issue?.code !== 'unrecognized_keys') return { field: at.join('.'), what: issue?.message ?? 'is not valid' };
  return { field: [...at, neutraliseLine(String(issue.keys[0]), nameCharsShown)].join('.'), what: 'is not known' };
}
