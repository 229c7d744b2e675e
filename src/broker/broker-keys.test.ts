import { expect, test } from 'vitest';
import { parseKeys } from '../config/keys.js';
import { natsCredentialsOf } from './broker-keys.js';

const nkey = (letter: string) => `U${letter.repeat(55)}`;
const read = (input: object) =>
  natsCredentialsOf(
    parseKeys(input, (problem) => {
      throw problem;
    }),
  );

test.each([
  ['the one that ends later', '2031-01-31', '2030-01-31', new Date('2031-01-31')],
  ['the one that ends later, wherever it stands', '2030-01-31', '2031-01-31', new Date('2031-01-31')],
  ['the one that never ends', undefined, '2030-01-31', undefined],
  ['the one that never ends, wherever it stands', '2030-01-31', undefined, undefined],
])('of two keys of one mailbox it is served as long as %s', (_what, first, second, expiresAt) => {
  const found = read({
    'w-1': { mailbox: 'w', nkey: nkey('A'), role: 'r', expires: first },
    'w-2': { mailbox: 'w', nkey: nkey('B'), role: 'r', expires: second },
    far: { mailbox: 'far', nkey: nkey('C'), destinations: ['*'] },
  });
  expect([...found]).toEqual([['w', { role: 'r', expiresAt }]]);
});
