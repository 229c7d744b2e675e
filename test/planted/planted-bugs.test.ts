import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { plantedBugs } from './planted-bugs.js';

const root = new URL('../../', import.meta.url);

test.each(plantedBugs)('the planted bug "$name" still fits the source, and its tests exist', ({ edits, tests }) => {
  for (const { file, find, replace } of edits) {
    const text = readFileSync(new URL(file, root), 'utf8');
    expect(text.split(find)).toHaveLength(2);
    expect(replace).not.toBe(find);
  }
  expect(tests.length).toBeGreaterThan(0);
  for (const file of tests) expect(existsSync(new URL(file, root))).toBe(true);
});

test('no two planted bugs have the same name', () => {
  expect(new Set(plantedBugs.map(({ name }) => name)).size).toBe(plantedBugs.length);
});
