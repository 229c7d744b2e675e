import fc from 'fast-check';
import { expect, test } from 'vitest';
import { compositeKey } from './composite-key.js';

test('names whose concatenations are equal have different keys', () => {
  const lists = [['ab', 'c'], ['a', 'bc'], ['abc'], ['abc', ''], ['', 'abc'], ['1:a'], ['a', '1:'], ['1:a1:', ''], []];
  expect(new Set(lists.map((names) => compositeKey(...names))).size).toBe(lists.length);
});

test('X9 two lists have one key only if they are the same list', () => {
  const names = fc.array(fc.string({ unit: fc.constantFrom(...'01:a/') }), { maxLength: 4 });
  fc.assert(
    fc.property(
      names,
      names,
      (a, b) => (compositeKey(...a) === compositeKey(...b)) === (JSON.stringify(a) === JSON.stringify(b)),
    ),
    { numRuns: 50_000 },
  );
}, 180_000);
