import { expect, test } from 'vitest';
import { setBounded } from './bounded-map.js';

test('beyond the limit the oldest entry is removed, and setting an entry again makes it the newest', () => {
  const map = new Map<string | undefined, number>();
  for (const key of [undefined, 'a', 'b']) setBounded(map, key, 1, 3);
  setBounded(map, undefined, 2, 3);
  setBounded(map, 'c', 1, 3);
  expect([...map]).toEqual([
    ['b', 1],
    [undefined, 2],
    ['c', 1],
  ]);
});
