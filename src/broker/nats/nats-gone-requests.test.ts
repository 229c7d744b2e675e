import { expect, test } from 'vitest';
import { goneBetween } from './nats-gone-requests.js';

test.each([
  ['all before the first that is held', 3, 9, { first_seq: 7 }, [3, 4, 5, 6]],
  ['those in between that are not held', 3, 9, { first_seq: 5, deleted: [6, 8, 11] }, [3, 4, 6, 8]],
  ['none that was not handed out', 1, 3, { first_seq: 10, deleted: [12] }, [1, 2, 3]],
  ['none of a stream that has lost nothing', 4, 9, { first_seq: 1, deleted: [2, 3] }, []],
  ['none of which nothing is known', 1, 9, {}, []],
])('gone are %s', (_name, from, to, state, gone) => {
  expect(goneBetween(from, to, state)).toEqual(gone);
});

test('no more than can be forgotten at a time', () => {
  expect(goneBetween(1, 50_000, { first_seq: 60_000 })).toHaveLength(10_000);
});
