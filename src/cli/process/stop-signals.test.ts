import { expect, test } from 'vitest';
import { stopCounter } from './stop-signals.js';

const counted = (...ways: ('direct' | 'forwarded')[]) => {
  const count = stopCounter();
  return ways.map((way) => count(way === 'forwarded'));
};

test.each([
  ['the second signal is another one', ['direct', 'direct'], ['first', 'again']],
  ['so is the second that a reaper hands on', ['forwarded', 'forwarded'], ['first', 'again']],
  ['E15 one to the whole group is one, whichever way is first', ['direct', 'forwarded'], ['first', 'same']],
  ['E15 … and the other way round', ['forwarded', 'direct'], ['first', 'same']],
  [
    'E15 two to the whole group are two',
    ['direct', 'forwarded', 'forwarded', 'direct'],
    ['first', 'same', 'again', 'again'],
  ],
] as const)('%s', (_name, ways, expected) => {
  expect(counted(...ways)).toEqual(expected);
});
