import { expect, test } from 'vitest';
import { StderrTails } from './host-parts.js';

test('the output of the last process is kept until the next process writes', () => {
  const words = new StderrTails();
  const said = ['', '', '', ''];
  const begin = (i: number) => {
    const tail = (maxBytes = 9) => (said[i] as string).slice(-maxBytes);
    words.began('a', { tail, lines: (maxBytes) => [{ text: tail(maxBytes), atMs: i }] });
  };
  const lines = () => words.linesOf('a').map(({ text, atMs }) => `${text}@${atMs}`);
  expect([words.of('a'), lines()]).toEqual([undefined, []]);
  begin(0);
  expect([words.of('a'), lines()]).toEqual(['', ['@0']]);
  said[0] = 'first';
  begin(1);
  expect([words.of('a'), words.of('a', 2), words.of('b')]).toEqual(['first', 'st', undefined]);
  // A process without output does not replace the output of an earlier one.
  begin(2);
  expect([words.of('a'), lines()]).toEqual(['first', ['first@0']]);
  said[2] = 'third';
  expect([words.of('a'), lines()]).toEqual(['third', ['third@2']]);
  begin(3);
  expect(words.of('a')).toBe('third');
  words.forget('a');
  expect(words.of('a')).toBeUndefined();
});
