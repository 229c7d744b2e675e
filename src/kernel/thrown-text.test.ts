import { expect, test } from 'vitest';
import { thrownText } from './thrown-text.js';

const hostile = Object.defineProperty(new Error('x'), 'message', {
  get: () => {
    throw new Error('no');
  },
});

test.each([
  ['an error', new Error('boom'), 'boom'],
  ['an error without a message', new TypeError(), 'TypeError'],
  ['a text', 'boom', 'boom'],
  ['nothing', undefined, 'undefined'],
  ['an object without a text', Object.create(null), 'object'],
  ['an error whose message throws', hostile, 'object'],
])('%s has a text', (_name, thrown, text) => {
  expect(thrownText(thrown)).toBe(text);
});
