import { expect, test } from 'vitest';
import { digestOf, newKey } from './key-text.js';
import { parseKeys } from './keys.js';

test('a new key is another each time, and long enough that nobody guesses it', () => {
  const [one, other] = [newKey(), newKey()];
  expect(one).toMatch(/^hk_[A-Za-z0-9_-]{43}$/);
  expect(other).not.toBe(one);
});

test('the digest of a key is the one that its entry has, however the hash is written there', () => {
  const digest = digestOf('hk_of-ann');
  const hex = Buffer.from(digest, 'base64url').toString('hex');
  for (const hash of [digest, hex]) {
    const keys = parseKeys({ ann: { hash: `sha256:${hash}` } }, (problem) => {
      throw problem;
    });
    expect(keys.get('ann')?.digest).toBe(digest);
  }
});
