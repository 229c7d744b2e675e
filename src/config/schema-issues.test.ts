import { expect, test } from 'vitest';
import * as z from 'zod/mini';
import { firstIssue } from './schema-issues.js';

const schema = z.strictObject({ a: z.strictObject({ b: z.number('must be a number') }), c: z.optional(z.string()) });

test.each<[input: unknown, at: string | undefined, field: string, what: string, isUnknownKey: boolean]>([
  [{ a: { b: 'x' } }, undefined, 'a.b', 'must be a number', false],
  [{ a: { b: 'x' } }, 'listen', 'listen.a.b', 'must be a number', false],
  [{ a: { b: 1 }, c: 5 }, 'listen', 'listen.c', 'invalid input: expected string, received number', false],
  [5, 'listen', 'listen', 'invalid input: expected object, received number', false],
  [{ a: { b: 1 }, d: 'x' }, undefined, 'd', 'is not known', true],
  [{ a: { b: 1, d: 'x' } }, 'listen', 'listen.a.d', 'is not known', true],
  [{ a: { b: 1 }, [`${'k'.repeat(300)}\n`]: 'x' }, undefined, `${'k'.repeat(100)}…`, 'is not known', true],
])('the first issue of %j, which is the value of %s, is at %s: %s', (input, at, field, what, isUnknownKey) => {
  const { error } = schema.safeParse(input);
  expect(error && firstIssue(error, at)).toEqual({ field, what, isUnknownKey });
});
