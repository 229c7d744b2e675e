/** The error texts: each error names its server; messages and hints are lower-case, without a final period. */
import { expect, test } from 'vitest';
import { type HostError, isHostError } from '../../kernel/errors.js';
import { checkUrl } from './dial-guard.js';
import { checkFacts, configuredHeaders } from './headers.js';
import { networkError, statusError } from './http-errors.js';

const server = 'fake';
const facts = { server, inSession: true, rpcCode: undefined, now: new Date(0), sent: undefined };

function headerError(headers: Record<string, string>): HostError {
  try {
    configuredHeaders(server, headers);
  } catch (error) {
    if (isHostError(error)) return error;
  }
  throw new Error('the headers were not refused');
}

const networkCodes = [
  ...['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'UND_ERR_CONNECT_TIMEOUT', 'DEPTH_ZERO_SELF_SIGNED_CERT'],
  ...['SELF_SIGNED_CERT_IN_CHAIN', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'CERT_HAS_EXPIRED'],
  ...['ERR_TLS_CERT_ALTNAME_INVALID', 'ECONNRESET'],
];

const errors: Array<HostError | URL | undefined> = [
  ...networkCodes.map((code) => networkError(Object.assign(new Error('x'), { code }), server, false)),
  networkError(new Error('x'), server, true),
  ...[300, 400, 401, 404, 408, 429, 500, 503].map((status) => statusError({ ...facts, status, headers: {} })),
  statusError({ ...facts, status: 403, headers: { 'www-authenticate': 'Bearer error="insufficient_scope"' } }),
  ...['nothing', 'ftp://x/', 'http://u:p@x/', 'http://10.0.0.1/'].map((url) => checkUrl(url, 'public', server)),
  ...[{ 'bad name': 'x' }, { Host: 'x' }, { 'X-A': 'a\n' }].map((headers) => headerError(headers as never)),
  checkFacts(server, { params: [['Re\ngion', 'x']] }),
];

test.each(errors.map((error) => [String(error), error]))('%s', (_text, error) => {
  if (!isHostError(error)) throw new Error('no error');
  expect(error.message).toMatch(/^[a-z].*[^.?!]$/);
  expect(error.message).toContain("server 'fake'");
  expect(error.details.server).toBe(server);
  if (error.hint !== undefined) expect(error.hint).toMatch(/^[a-z].*[^.?!]$/);
});
