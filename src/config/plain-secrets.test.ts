import { expect, test } from 'vitest';
import { hasPlainSecret } from './plain-secrets.js';

const github = `ghp_${'a'.repeat(36)}`;

test.each<[string, Record<string, unknown>, boolean]>([
  ['no member', {}, false],
  ['a value under the name of a secret', { env: { LINEAR_API_KEY: 'abcdef123456' } }, true],
  ['a header', { url: 'https://example.com', headers: { Authorization: 'Bearer abcdef' } }, true],
  ['a token in an argument', { command: 'node', args: ['--x', github] }, true],
  ['a token under a harmless name', { env: { X: github } }, true],
  ['a password in an address', { env: { DATABASE: 'postgres://me:hunter2@db/x' } }, true],
  ['a placeholder', { env: { API_KEY: ['$', '{env:API_KEY}'].join('') }, headers: { 'X-Token': '%MY_TOKEN%' } }, false],
  ['a path', { env: { SSH_AUTH_SOCK: '/run/user/1000/agent' } }, false],
  ['a mode', { env: { AUTH: 'none' } }, false],
  [
    'ordinary values',
    { command: 'npx', args: ['-y', 'pkg'], env: { DEBUG: 'everything' }, url: 'https://a.b/c' },
    false,
  ],
  ['members of a wrong type', { env: 'API_KEY=x', headers: null, args: 'x', url: 7 }, false],
])('AC-E12 %s: %s', (_name, entry, isPlain) => {
  expect(hasPlainSecret(entry)).toBe(isPlain);
});
