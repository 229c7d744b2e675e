import { expect, test } from 'vitest';
import { madeOnce } from './made-once.js';

test('nothing is made before it is asked for, and only one ever', () => {
  let made = 0;
  const get = madeOnce(() => ({ number: ++made }));
  expect(made).toBe(0);
  expect(get()).toBe(get());
  expect(get().number).toBe(1);
});

test('what could not be made is tried again', () => {
  let tries = 0;
  const get = madeOnce(() => {
    if (++tries === 1) throw new Error('not yet');
    return {};
  });
  expect(get).toThrow('not yet');
  expect(get()).toEqual({});
});
