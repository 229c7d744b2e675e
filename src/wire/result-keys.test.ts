import { expect, test } from 'vitest';
import { MENTIONS_ERROR, MENTIONS_TTL, mentionedKeys } from './result-keys.js';

const padding = (bytes: number) => `"content":"${'x'.repeat(bytes)}"`;

test.each([
  ['nothing', '', 0],
  ['isError', ',"isError":true', MENTIONS_ERROR],
  ['ttlMs', ',"ttlMs":1', MENTIONS_TTL],
  ['both', ',"ttlMs":1,"isError":false', MENTIONS_ERROR + MENTIONS_TTL],
  ['other keys that begin alike', ',"isErrors":1,"ttl":2,"isErro":3', 0],
] as const)('%s is found, however large the result', (_what, members, expected) => {
  for (const bytes of [0, 100, 2_000, 2_048, 5_000]) {
    expect(mentionedKeys(Buffer.from(`{${padding(bytes)}${members}}`))).toBe(expected);
  }
});

test('at the very end and in tiny objects too', () => {
  expect(mentionedKeys(Buffer.from('{"ttlMs"'))).toBe(MENTIONS_TTL);
  expect(mentionedKeys(Buffer.from('"ttlMs"'))).toBe(MENTIONS_TTL);
  expect(mentionedKeys(Buffer.from('"isError"'))).toBe(MENTIONS_ERROR);
  for (const text of ['', '{', '"', '{}', '"ttlMs']) expect(mentionedKeys(Buffer.from(text))).toBe(0);
});
