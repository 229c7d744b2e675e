import { expect, test } from 'vitest';
import { waitingText } from './waiting-text.js';

test('the first parts are named, and the rest is counted', () => {
  expect(waitingText(['keys.a', 'listen'])).toBe('waits for hostler trust: keys.a, listen');
  const many = Array.from({ length: 25 }, (_, i) => `keys.k${i}`);
  expect(waitingText(many)).toMatch(/: keys\.k0, .*keys\.k19, and 5 more$/);
});
