import { expect, test } from 'vitest';
import { FairMap } from './fair-map.js';

test('D-45 who floods pushes out its own oldest, and nobody else’s', () => {
  const map = new FairMap<number>(4);
  map.set('a', '1', 1);
  for (let n = 0; n < 100; n++) map.set('b', `${n}`, n);
  expect(map.size).toBe(4);
  expect([map.take('a', '1'), map.take('b', '96'), map.take('b', '97'), map.take('b', '99')]).toEqual([
    ...[1, undefined, 97, 99],
  ]);
  expect(map.size).toBe(1);
});

test('what is said again is the newest, and is taken once', () => {
  const map = new FairMap<number>(2);
  map.set('a', '1', 1);
  map.set('a', '2', 2);
  map.set('a', '1', 3);
  map.set('a', '3', 4);
  expect([map.get('a', '1'), map.get('a', '1'), map.get('b', '1')]).toEqual([3, 3, undefined]);
  expect([map.take('a', '2'), map.take('a', '1'), map.take('a', '1'), map.take('a', '3'), map.size]).toEqual([
    ...[undefined, 3, undefined, 4, 0],
  ]);
});
