/**
 * Parses `auth` of a server over HTTP: how Hostler obtains tokens for it.
 * Invariants: a client secret or key is accepted only together with `issuer`; otherwise the server would choose who receives it.
 * Extra parameters never replace a parameter that Hostler sets.
 */
import * as z from 'zod/mini';
import { isSecure } from './values.js';

const text = (max: number) => z.string().check(z.minLength(1, 'must not be empty'), z.maxLength(max, 'is too long'));

const isSecureUrl = (text: string): boolean => {
  if (!URL.canParse(text)) return false;
  const url = new URL(text);
  return isSecure(url) && url.username === '' && url.password === '';
};
const secureUrl = z.string().check(z.refine(isSecureUrl, 'must be an https URL (http only on loopback)'));

const scope = z.string().check(z.regex(/^[\x21\x23-\x5b\x5d-\x7e]{1,256}$/, 'is not a scope'));
const scopes = z.array(scope).check(z.maxLength(100, 'has too many entries'));

/** Parameters that Hostler sets itself. */
const reserved =
  /^(?:client_id|client_secret|client_assertion.*|redirect_uri|state|code.*|resource|response_.*|grant_type|refresh_token|scope|request|request_uri)$/;
const params = z.record(text(100), z.string().check(z.maxLength(2_000, 'is too long'))).check(
  z.refine((given) => Object.keys(given).length <= 20, 'has more than 20 parameters'),
  z.refine(
    (given) => !Object.keys(given).some((name) => reserved.test(name)),
    'names a parameter that Hostler sets itself',
  ),
);

const members = z.strictObject({
  grant: z._default(z.enum(['code', 'client_credentials', 'none']), 'code'),
  account: z.optional(
    z.string().check(z.regex(/^[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}$/, 'use 1 to 64 letters, digits or _.@-')),
  ),
  issuer: z.optional(secureUrl),
  clientId: z.optional(text(2_000)),
  clientSecret: z.optional(text(4_000)),
  clientKey: z.optional(
    z.strictObject({
      pem: text(16_384),
      alg: z._default(z.enum(['ES256', 'ES384', 'RS256', 'PS256', 'EdDSA']), 'ES256'),
      kid: z.optional(text(200)),
    }),
  ),
  clientMetadataUrl: z.optional(secureUrl),
  scopes: z.optional(scopes),
  scopesMax: z.optional(scopes),
  resource: z.optional(z.union([z.literal(false), secureUrl], 'must be an https URL, or false to leave it out')),
  authorizeParams: z.optional(params),
  tokenParams: z.optional(params),
  redirect: z.optional(
    z.strictObject({
      host: z._default(z.enum(['127.0.0.1', 'localhost']), '127.0.0.1'),
      port: z._default(z.int().check(z.minimum(0), z.maximum(65_535)), 0),
      path: z._default(
        z.string().check(z.regex(/^\/[A-Za-z0-9_./-]{0,200}$/, 'must be a path such as /callback')),
        '/callback',
      ),
    }),
  ),
  pkce: z._default(z.enum(['required', 'assume']), 'required'),
});

type Members = z.infer<typeof members>;

const rule = (member: keyof Members, holds: (auth: Members) => boolean, error: string) =>
  z.refine<Members>(holds, { path: [member], error });
const hasSecret = ({ clientSecret, clientKey }: Members) => (clientSecret ?? clientKey) !== undefined;
const isGiven = (value: unknown) => value !== undefined;

export const authEntry = members.check(
  rule(
    'issuer',
    (auth) => isGiven(auth.issuer) || !hasSecret(auth),
    'is needed with clientSecret or clientKey: otherwise the server would choose who receives them',
  ),
  rule('pkce', ({ issuer, pkce }) => isGiven(issuer) || pkce === 'required', '"assume" needs issuer'),
  rule(
    'clientKey',
    ({ clientSecret, clientKey }) => !isGiven(clientSecret) || !isGiven(clientKey),
    'cannot be used together with clientSecret',
  ),
  rule('clientId', (auth) => isGiven(auth.clientId) || !hasSecret(auth), 'is needed with clientSecret or clientKey'),
  rule(
    'grant',
    (auth) => auth.grant !== 'client_credentials' || hasSecret(auth),
    '"client_credentials" needs clientId with clientSecret or clientKey',
  ),
);

export type AuthSettings = Readonly<z.infer<typeof authEntry>>;

/** `identity` of the user's own configuration. */
export const identityEntry = z.strictObject({
  dir: z.optional(z.string().check(z.regex(/^(?:\/|[A-Za-z]:[\\/])/, 'must be an absolute path'))),
  key: z.optional(z.string().check(z.minLength(1, 'must not be empty'), z.maxLength(4_096, 'is too long'))),
});

export type IdentitySettings = Readonly<z.infer<typeof identityEntry>>;
