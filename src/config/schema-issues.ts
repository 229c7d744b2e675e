/**
 * Converts issues of zod to a field and a short text.
 * Not here: hints for the user (the parsers).
 * Invariant: apart from names of members, no text of the value is quoted.
 */
import * as z from 'zod/mini';
import { neutraliseLine } from '../kernel/terminal-text.js';

// zod/mini includes no error texts.
z.config(z.locales.en());

const nameCharsShown = 100;

interface Issue {
  readonly field: string;
  readonly what: string;
  /** True if the field is an unknown member. */
  readonly isUnknownKey: boolean;
}

/** `at`: path of the parsed value. */
export function issuesOf({ issues }: Pick<z.core.$ZodError, 'issues'>, at = ''): Issue[] {
  return issues.flatMap((issue): Issue[] => {
    const path = [...(at === '' ? [] : [at]), ...issue.path.map(String)];
    if (issue.code === 'unrecognized_keys')
      return issue.keys.map((key) => ({
        field: [...path, neutraliseLine(key, nameCharsShown)].join('.'),
        what: 'is not known',
        isUnknownKey: true,
      }));
    const text = issue.message ?? 'is not valid';
    const what = text.charAt(0).toLowerCase() + text.slice(1);
    return [{ field: path.join('.'), what, isUnknownKey: false }];
  });
}

export const firstIssue = (error: Pick<z.core.$ZodError, 'issues'>, at = ''): Issue =>
  issuesOf(error, at)[0] ?? { field: at, what: 'is not valid', isUnknownKey: false };

/**
 * Refuses a member called `__proto__` in the objects at these paths. zod drops such a member of a record without an error, so a
 * variable, header or renamed tool of that name would have no effect.
 */
export function refuseProto(entry: unknown, paths: readonly string[], refuse: (field: string) => Error): void {
  for (const path of paths) {
    const table = path.split('.').reduce(memberOf, entry);
    if (isObject(table) && Object.hasOwn(table, '__proto__')) throw refuse(`${path}.__proto__`);
  }
}

const memberOf = (value: unknown, name: string): unknown =>
  isObject(value) && Object.hasOwn(value, name) ? (value as Record<string, unknown>)[name] : undefined;

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;
