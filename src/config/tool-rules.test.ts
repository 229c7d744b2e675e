import { expect, test } from 'vitest';
import { noToolRules, renamed } from './tool-rules.js';

test('only own members rename tools', () => {
  expect(renamed({ ...noToolRules, rename: { a: 'b' } }, 'a')).toBe('b');
  expect(renamed({ ...noToolRules, rename: { a: 'b' } }, 'c')).toBe('c');
  expect(renamed(noToolRules, 'constructor')).toBe('constructor');
});
