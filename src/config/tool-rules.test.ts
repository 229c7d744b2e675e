import { expect, test } from 'vitest';
import { noToolRules, renamed } from './tool-rules.js';

test('a tool with the name of an inherited member is not renamed', () => {
  expect(renamed({ ...noToolRules, rename: { a: 'b' } }, 'a')).toBe('b');
  expect(renamed({ ...noToolRules, rename: { a: 'b' } }, 'c')).toBe('c');
  expect(renamed(noToolRules, 'constructor')).toBe('constructor');
});
