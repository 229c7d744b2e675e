import { expect, test } from 'vitest';
import { StderrTails } from './host-parts.js';

test('the output of the last process stays until the next one has written some', () => {
  const words = new StderrTails();
  const said = ['', '', '', ''];
  const begin = (i: number) => words.began('a', (maxBytes) => (said[i] as string).slice(-(maxBytes ?? 9)));
  expect(words.of('a')).toBeUndefined();
  begin(0);
  expect(words.of('a')).toBe('');
  said[0] = 'first';
  begin(1);
  expect([words.of('a'), words.of('a', 2), words.of('b')]).toEqual(['first', 'st', undefined]);
  // One that says nothing does not take the place of one that did.
  begin(2);
  expect(words.of('a')).toBe('first');
  said[2] = 'third';
  expect(words.of('a')).toBe('third');
  begin(3);
  expect(words.of('a')).toBe('third');
  words.forget('a');
  expect(words.of('a')).toBeUndefined();
});
