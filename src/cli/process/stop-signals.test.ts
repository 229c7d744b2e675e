import { expect, test } from 'vitest';
import { stopCounter } from './stop-signals.js';

const counted = (...ways: ('direct' | 'forwarded')[]) => {
  const count = stopCounter();
  return ways.map((way) => count(way === 'forwarded'));
};

test.each([
  ['a second direct signal is counted', ['direct', 'direct'], ['first', 'again']],
  ['a second signal that a reaper forwards is counted', ['forwarded', 'forwarded'], ['first', 'again']],
  ['E15 one signal to the group counts once if it arrives directly first', ['direct', 'forwarded'], ['first', 'same']],
  ['E15 one signal to the group counts once if it is forwarded first', ['forwarded', 'direct'], ['first', 'same']],
  [
    'E15 two signals to the group count twice',
    ['direct', 'forwarded', 'forwarded', 'direct'],
    ['first', 'same', 'again', 'again'],
  ],
] as const)('%s', (_name, ways, expected) => {
  expect(counted(...ways)).toEqual(expected);
});
