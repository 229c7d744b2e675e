import { describe, expect, test } from 'vitest';
import { isToolOffered, renamed } from './tool-rules.js';

describe('isToolOffered', () => {
  test.each([
    ['without rules', undefined, 'x', true],
    ['by an empty list', { allow: [] }, 'x', false],
    ['by its name', { allow: ['read'] }, 'read', true],
    ['not by a part of its name', { allow: ['read'] }, 'read_all', false],
    ['by the beginning of its name', { allow: ['read_*'] }, 'read_all', true],
    ['by a star alone', { allow: ['*'] }, 'x', true],
    ['a star in the middle is a star', { allow: ['a*b'] }, 'axb', false],
    ['deny wins', { allow: ['*'], deny: ['rm*'] }, 'rm_all', false],
    ['deny alone leaves the rest', { deny: ['rm*'] }, 'ls', true],
  ] as const)('%s', (_title, rules, tool, expected) => {
    expect(isToolOffered(rules, tool)).toBe(expected);
  });
});

test('only names of its own are renamed', () => {
  expect(renamed({ rename: { a: 'b' } }, 'a')).toBe('b');
  expect(renamed({ rename: { a: 'b' } }, 'c')).toBe('c');
  expect(renamed({ rename: {} }, 'constructor')).toBe('constructor');
  expect(renamed(undefined, 'a')).toBe('a');
});
