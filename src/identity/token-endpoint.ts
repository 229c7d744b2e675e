/**
 * Requests to token and revocation endpoints, and the meaning of their answers (a fixed list).
 * Not here: what a grant does with an answer (grant.ts, login.ts).
 * Invariants: the text of an authorization server is never part of an answer; an error is one of the registered words or
 * `other`. A refresh token of an answer with status 200 is returned even if the access token beside it is unusable.
 */
import type { ClientAuth } from 'oauth4webapi';
import { HostError } from '../kernel/errors.js';
import { headerText } from '../transports/http/headers.js';
import { parseRetryAfter } from '../transports/http/http-errors.js';
import type { WholeAnswer } from '../transports/http/whole-exchange.js';
import type { ClientAuthMethod } from './grant-row.js';
import { type JsonObject, objectOf } from './json.js';
import type { OAuthHttp } from './oauth-http.js';

const tokenRequestMs = 20_000;
const tokenCharsMax = 16 * 1024;
const lifetimeSMax = 10 * 365 * 86_400;

/** How Hostler proves to the authorization server which client it is. */
export interface OAuthClient {
  readonly clientId: string;
  readonly method: ClientAuthMethod;
  readonly secret?: string | undefined;
  readonly key?: { readonly pem: string; readonly alg: string; readonly kid?: string | undefined } | undefined;
}

/** False: the configuration lacks the secret or the key, so the authorization server would refuse the client. */
export const hasCredentials = ({ method, secret, key }: OAuthClient): boolean =>
  method === 'none' || secret !== undefined || key !== undefined;

export interface TokenRequest {
  readonly issuer: string;
  readonly tokenEndpoint: string;
  readonly client: OAuthClient;
  readonly grantType: 'authorization_code' | 'refresh_token' | 'client_credentials';
  readonly params: Readonly<Record<string, string>>;
}

/** Parameters of a request for a token: those of the configuration, and those of Hostler that are not empty. */
export const tokenParameters = (
  configured: Readonly<Record<string, string>> | undefined,
  resource: string | undefined,
  own: Readonly<Record<string, string>>,
): Record<string, string> => ({
  ...configured,
  ...Object.fromEntries(Object.entries({ ...own, resource: resource ?? '' }).filter(([, value]) => value !== '')),
});

export type TokenAnswer =
  | {
      readonly kind: 'tokens';
      /** Empty: the answer has no usable access token. */
      readonly accessToken: string;
      readonly refreshToken: string | undefined;
      readonly expiresInS: number | undefined;
      readonly scope: string | undefined;
      readonly idToken: string | undefined;
    }
  /** The authorization server refused the request. */
  | { readonly kind: 'refused'; readonly error: RefusalWord }
  /** The answer says nothing about the grant. `isSent`: the request may have had an effect. */
  | {
      readonly kind: 'unavailable';
      readonly reason: string;
      readonly isSent: boolean;
      readonly retryAfterMs: number | undefined;
    };

const words = [
  ...(['invalid_request', 'invalid_client', 'invalid_grant', 'unauthorized_client', 'unsupported_grant_type'] as const),
  ...(['invalid_scope', 'invalid_target', 'access_denied', 'server_error', 'temporarily_unavailable'] as const),
] as const;
type RefusalWord = (typeof words)[number] | 'other';

/** The authorization server refused the client, which says nothing about the grant. */
export const isClientRefusal = (answer: TokenAnswer): boolean =>
  answer.kind === 'refused' && (answer.error === 'invalid_client' || answer.error === 'unauthorized_client');

/** Throws if the key of the client is no key. Any other failure is an answer. */
export async function requestToken(http: OAuthHttp, request: TokenRequest, now: Date): Promise<TokenAnswer> {
  const { tokenEndpoint, grantType, params } = request;
  try {
    return readTokenAnswer(await post(http, request, tokenEndpoint, { grant_type: grantType, ...params }), now);
  } catch (error) {
    if (error instanceof HostError && error.details.reason === 'client_key') throw error;
    return unavailable(error);
  }
}

/** Revokes the refresh token first, because an access token ends soon. True if the authorization server confirmed all of it. */
export async function revokeGrant(
  http: OAuthHttp,
  { endpoint, ...issuer }: Pick<TokenRequest, 'issuer' | 'client'> & { readonly endpoint: string | undefined },
  { accessToken, refreshToken }: { readonly accessToken: string; readonly refreshToken: string | undefined },
): Promise<boolean> {
  if (endpoint === undefined || !hasCredentials(issuer.client)) return false;
  const tokens = { refresh_token: refreshToken, access_token: accessToken };
  const answers: boolean[] = [];
  for (const [token_type_hint, token] of Object.entries(tokens)) {
    if (!token) continue;
    const answer = await post(http, issuer, endpoint, { token, token_type_hint }).catch(() => undefined);
    answers.push(answer?.status === 200);
  }
  return answers.length > 0 && answers.every(Boolean);
}

async function post(
  http: OAuthHttp,
  { issuer, client }: Pick<TokenRequest, 'issuer' | 'client'>,
  url: string,
  params: Readonly<Record<string, string>>,
): Promise<WholeAnswer> {
  const body = new URLSearchParams(params);
  const headers = new Headers({ 'content-type': 'application/x-www-form-urlencoded' });
  const authenticate = await authenticationOf(client);
  await authenticate({ issuer }, { client_id: client.clientId }, body, headers);
  return http({
    ...{ url, method: 'POST', headers: Object.fromEntries(headers), body: body.toString() },
    timeoutMs: tokenRequestMs,
  });
}

/** Replaces the function of oauth4webapi, which also encodes `-`, `_` and `.`: many servers do not decode them. */
const basicAuthentication =
  (secret: string): ClientAuth =>
  (_as, { client_id: id }, _body, headers) => {
    const encoded = [id, secret].map((text) => new URLSearchParams([['', text]]).toString().slice(1));
    headers.set('authorization', `Basic ${Buffer.from(encoded.join(':')).toString('base64')}`);
  };

async function authenticationOf({ method, secret = '', key }: OAuthClient): Promise<ClientAuth> {
  const oauth = await import('oauth4webapi');
  if (method === 'client_secret_basic') return basicAuthentication(secret);
  if (method === 'client_secret_post') return oauth.ClientSecretPost(secret);
  if (method !== 'private_key_jwt' || !key) return oauth.None();
  const { importPKCS8 } = await import('jose');
  const imported = await importPKCS8(key.pem, key.alg).catch(() => {
    throw new HostError('invalid_spec', `auth.clientKey: is not a PKCS #8 private key for ${key.alg}`, {
      field: 'auth.clientKey.pem',
      reason: 'client_key',
      execution: 'not_executed',
      hint: 'write a key such as that of openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256',
    });
  });
  return oauth.PrivateKeyJwt(key.kid === undefined ? imported : { key: imported, kid: key.kid });
}

function unavailable(error: unknown): TokenAnswer {
  const details = error instanceof HostError ? error.details : undefined;
  // An invalid key or address never left this machine.
  const isSent = details?.execution === 'uncertain';
  const reason = details?.reason ?? 'request_failed';
  return { kind: 'unavailable', reason, isSent, retryAfterMs: undefined };
}

export function readTokenAnswer({ status, headers, body }: WholeAnswer, now: Date): TokenAnswer {
  const json = objectOf(body);
  const hasToken = isToken(json?.access_token) || isToken(json?.refresh_token);
  // GitHub refuses with status 200.
  const isRefusal = status === 400 || status === 401 || (status === 200 && !hasToken && json?.error !== undefined);
  if (json && isRefusal) return { kind: 'refused', error: words.find((word) => word === json.error) ?? 'other' };
  if (json && status === 200) return tokensOf(json);
  // Most of these answers come from a proxy. After a status of 200 without JSON, the refresh token may have been used.
  const isSent = status === 200 || status >= 500;
  const retryAfterMs = parseRetryAfter(headerText(headers, 'retry-after'), now);
  return { kind: 'unavailable', reason: `status_${status}`, isSent, retryAfterMs };
}

function tokensOf(json: JsonObject): TokenAnswer {
  const { access_token: access, refresh_token: refresh, token_type: type, expires_in: expires, scope } = json;
  const isBearer = typeof type === 'string' && type.toLowerCase() === 'bearer';
  const seconds = typeof expires === 'string' ? Number(expires) : expires;
  const isTime = typeof seconds === 'number' && seconds > 0 && seconds <= lifetimeSMax;
  return {
    kind: 'tokens',
    accessToken: isBearer && isToken(access) ? access : '',
    refreshToken: isToken(refresh) ? refresh : undefined,
    expiresInS: isTime ? seconds : undefined,
    scope: typeof scope === 'string' ? scope : undefined,
    idToken: isToken(json.id_token) ? json.id_token : undefined,
  };
}

const isToken = (value: unknown): value is string =>
  typeof value === 'string' && value.length <= tokenCharsMax && /^[\x21-\x7e]+$/.test(value);
