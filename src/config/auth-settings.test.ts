import { expect, test } from 'vitest';
import { HostError } from '../kernel/errors.js';
import { parseServerSpec } from './server-spec.js';

const url = 'https://mcp.example/mcp';
const issuer = 'https://as.example';
const fault = (given: object) => {
  try {
    parseServerSpec({ name: 'docs', ...given });
    return undefined;
  } catch (error) {
    if (!(error instanceof HostError)) throw error;
    return [error.code, error.details.field];
  }
};

test.each<[string, object, string]>([
  ['pkce "assume" without issuer', { pkce: 'assume' }, 'auth.pkce'],
  ['a client secret without issuer', { clientId: 'a', clientSecret: 'planted-secret' }, 'auth.issuer'],
  ['a client key without issuer', { clientId: 'a', clientKey: { pem: 'planted-pem' } }, 'auth.issuer'],
  ['a secret without a client', { issuer, clientSecret: 'planted-secret' }, 'auth.clientId'],
  ['a secret and a key', { issuer, clientId: 'a', clientSecret: 's', clientKey: { pem: 'p' } }, 'auth.clientKey'],
  ['client_credentials without a secret', { grant: 'client_credentials', issuer, clientId: 'a' }, 'auth.grant'],
  ['an issuer without https', { issuer: 'http://as.example' }, 'auth.issuer'],
  ['an issuer with a password', { issuer: 'https://a:b@as.example' }, 'auth.issuer'],
  [
    'a parameter that Hostler sets',
    { authorizeParams: { redirect_uri: 'https://evil.example' } },
    'auth.authorizeParams',
  ],
  ['a port that does not exist', { redirect: { port: 65_536 } }, 'auth.redirect.port'],
])('AC-A4 %s is invalid_spec', (_what, auth, field) => {
  expect(fault({ url, auth })).toEqual(['invalid_spec', field]);
});

test.each<[string, object, string]>([
  ['auth of a program', { command: 'x', auth: { issuer } }, 'auth'],
  [
    'auth and a header with a token',
    { url, auth: {}, headers: { authorization: 'Bearer x' } },
    'headers.authorization',
  ],
])('AC-A4 %s is invalid_spec', (_what, given, field) => {
  expect(fault(given)).toEqual(['invalid_spec', field]);
});

test('AC-A4 the same settings with the missing part are accepted', () => {
  const secret = { issuer, clientId: 'a', clientSecret: 's' };
  for (const auth of [{ pkce: 'assume', issuer }, secret, { ...secret, grant: 'client_credentials' }])
    expect(fault({ url, auth })).toBeUndefined();
  expect(fault({ url, auth: { grant: 'none' }, headers: { authorization: 'Bearer x' } })).toBeUndefined();
});
