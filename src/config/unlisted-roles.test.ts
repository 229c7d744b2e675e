import { expect, test } from 'vitest';
import { parseHostConfig } from './host-config.js';

const hash = `sha256:${'0'.repeat(64)}`;
const keys = { ann: { hash, role: 'dev' }, bob: { hash, role: 'ops' }, eve: { hash } };
const roles = { dev: { allow: ['*/*'] } };

const problemsOf = (config: object) => {
  const problems: { readonly message: string; readonly hint: string | undefined }[] = [];
  parseHostConfig(config, ({ message, hint }) => problems.push({ message, hint }));
  return problems;
};

test('E22 a key whose role is not listed is reported by name', () => {
  expect(problemsOf({ keys, roles })).toEqual([
    {
      message: "keys.bob.role: role 'ops' is not listed: this key may use nothing",
      hint: 'list it under roles in the configuration, or set unlistedRole to "allow"',
    },
  ]);
});

test('E22 without any roles, every key with a role is reported', () => {
  expect(problemsOf({ keys }).map(({ message }) => message)).toEqual([
    "keys.ann.role: role 'dev' is not listed: this key may use nothing",
    "keys.bob.role: role 'ops' is not listed: this key may use nothing",
  ]);
});

test('E22 unlisted roles with access to everything are not reported, nor are entries that are no keys', () => {
  expect(problemsOf({ keys, roles, unlistedRole: 'allow' })).toEqual([]);
  expect(problemsOf({ keys: { a: null, b: 'x', c: { role: 7 }, d: { role: '' } }, roles })).toEqual([]);
});
