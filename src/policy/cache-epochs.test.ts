import { expect, test } from 'vitest';
import { Epochs } from './cache.js';

test('a key that is advanced has another epoch, and the others keep theirs', () => {
  const epochs = new Epochs(10);
  const [a, b] = [epochs.of('a'), epochs.of('b')];
  epochs.advance('a');
  expect([epochs.of('a') === a, epochs.of('b') === b]).toEqual([false, true]);
});

test('all keys are advanced together, also those that were never advanced', () => {
  const epochs = new Epochs(10);
  epochs.advance('a');
  const [a, b] = [epochs.of('a'), epochs.of('b')];
  epochs.advanceAll();
  expect([epochs.of('a') === a, epochs.of('b') === b]).toEqual([false, false]);
});

test('advancing a known key again and again does not affect the others', () => {
  const epochs = new Epochs(2);
  epochs.advance('a');
  epochs.advance('b');
  const b = epochs.of('b');
  for (let i = 0; i < 10; i++) epochs.advance('a');
  expect(epochs.of('b')).toBe(b);
});

test('no epoch of a key is repeated, also beyond the bound of keys', () => {
  const epochs = new Epochs(3);
  const seen = new Map<string, Set<number>>();
  for (let i = 0; i < 200; i++) {
    const key = `k${(i * 7) % 5}`;
    const before = seen.get(key) ?? new Set();
    seen.set(key, before.add(epochs.of(key)));
    epochs.advance(key);
    expect(before.has(epochs.of(key))).toBe(false);
    // A key that was forgotten must not return to an earlier epoch.
    for (const [other, epochsBefore] of seen) expect(Math.max(...epochsBefore)).toBeLessThanOrEqual(epochs.of(other));
  }
});

test('`now` can stand for the epochs of all keys: only keys that advance later have a higher epoch', () => {
  const epochs = new Epochs(3);
  const keys = ['a', 'b', 'c', 'd', 'e'];
  for (let i = 0; i < 200; i++) {
    const { now } = epochs;
    const before = keys.map((key) => epochs.of(key));
    expect(keys.every((key) => epochs.of(key) <= now)).toBe(true);
    if (i % 17 === 0) epochs.advanceAll();
    else epochs.advance(keys[(i * 7) % 5] as string);
    expect(keys.map((key) => epochs.of(key) <= now)).toEqual(keys.map((key, at) => epochs.of(key) === before[at]));
  }
});
