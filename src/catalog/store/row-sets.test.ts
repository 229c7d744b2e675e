import { expect, test } from 'vitest';
import { RowNames } from './row-sets.js';

test('many questions of one tick are one, and what is written meanwhile counts', async () => {
  let reads = 0;
  const rows = ['a'];
  const names = new RowNames(() => {
    reads++;
    return rows;
  });
  expect(['x', 'y'].map((name) => names.mayHave(name))).toEqual([true, true]);
  expect(reads).toBe(0);
  expect(['a', 'b', 'c'].map((name) => names.mayHave(name))).toEqual([true, false, false]);
  expect(reads).toBe(1);
  rows.push('b');
  names.changed();
  expect([names.mayHave('b'), reads]).toEqual([true, 2]);
  await Promise.resolve();
  rows.push('c');
  for (const name of ['x', 'y']) names.mayHave(name);
  expect([names.mayHave('c'), reads]).toEqual([true, 3]);
});
