/**
 * Decides which client Hostler is at an authorization server: configured, then a client id metadata document, then dynamic
 * registration (RFC 7591). Without any of them, the error says which client to create.
 * Invariants: a registration is sent only inside a login, with the redirect URI that is used afterwards. Credentials belong to
 * one issuer and are never sent to another.
 */
import type { AuthSettings } from '../config/auth-settings.js';
import type { SecretValues } from '../config/secrets/secret-values.js';
import type { Clock } from '../kernel/clock.js';
import { type HostError, notExecuted } from '../kernel/errors.js';
import type { Redact } from '../kernel/redact.js';
import { quoted } from '../kernel/shell-word.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { scopesOf } from '../transports/http/challenges.js';
import type { AuthorizationServer, Discovered } from './discovery.js';
import { type ClientAuthMethod, type RegistrationWay, sameIssuer } from './grant-row.js';
import { refusal } from './identity-errors.js';
import type { ClientRow, NewGrant } from './identity-store.js';
import { objectOf } from './json.js';
import type { OAuthHttp } from './oauth-http.js';
import type { OAuthClient, TokenAnswer } from './token-endpoint.js';

const answerCharsShown = 2_048;
const clientName = 'Hostler';

export interface ChosenClient extends OAuthClient {
  readonly way: RegistrationWay;
}

/** The way in which a client is found. `none`: an operator has to create one. */
export function registrationWay(
  as: AuthorizationServer,
  auth: AuthSettings,
  prefersRegistration: boolean,
): RegistrationWay | 'none' {
  if (auth.clientId !== undefined) return 'configured';
  const [registers, { clientMetadataUrl }] = [as.registration_endpoint !== undefined, auth];
  if (registers && prefersRegistration) return 'registered';
  if (as.client_id_metadata_document_supported && clientMetadataUrl !== undefined) return 'metadata_document';
  return registers ? 'registered' : 'none';
}

/**
 * Another server's login page could send its code here, and the code would go to the token endpoint of this one. So without `iss`
 * the page must be of the issuer itself (RFC 9700, 4.4), unless the operator named the issuer.
 */
export function checkLoginPage(server: string, as: AuthorizationServer): void {
  const { authorization_endpoint: page = as.issuer, authorization_response_iss_parameter_supported: sendsIss } = as;
  const [shown, own] = [new URL(page).origin, new URL(as.issuer).origin];
  if (sendsIss || shown === own) return;
  const hint = `if you know that the two belong together: hostler login ${server} --issuer ${quoted(as.issuer)}`;
  const text = `its login page is at ${shown}, not at its authorization server ${own}`;
  throw refusal(server, 'metadata_invalid', text, hint);
}

/** Client of the configuration. Its secret is used at its own issuer only. */
export function configuredClient(server: string, as: AuthorizationServer, auth: AuthSettings): ChosenClient {
  const { clientId = '', clientSecret: secret, clientKey: key, issuer } = auth;
  if ((secret !== undefined || key !== undefined) && (issuer === undefined || !sameIssuer(issuer, as.issuer)))
    throw refusal(
      server,
      'issuer_changed',
      'its client secret belongs to another authorization server',
      'check the server; if its authorization server has changed, correct auth.issuer and the client',
    );
  return { clientId, method: methodOf(as, secret, key), secret, key, way: 'configured' };
}

/**
 * Resolves the references in the secrets of a configured client: for each request, so a rotated secret is used without a restart.
 * `isFresh`: runs commands even if their output is kept. Without `secrets` the texts are used as written.
 */
export async function withSecrets(
  server: string,
  auth: AuthSettings,
  secrets: Pick<SecretValues, 'resolve'> | undefined,
  isFresh = false,
): Promise<AuthSettings> {
  const { clientSecret, clientKey } = auth;
  if (!secrets) return auth;
  const resolve = (text: string, field: string) =>
    secrets.resolve(text, `mcpServers.${server}.auth.${field}`, { isFresh });
  return {
    ...auth,
    ...(clientSecret !== undefined && { clientSecret: await resolve(clientSecret, 'clientSecret') }),
    ...(clientKey && { clientKey: { ...clientKey, pem: await resolve(clientKey.pem, 'clientKey.pem') } }),
  };
}

/** Its client id is the same at every authorization server. */
export const metadataClient = ({ clientMetadataUrl: clientId = '' }: AuthSettings): ChosenClient => ({
  clientId,
  method: 'none',
  way: 'metadata_document',
});

/** Without a list, an authorization server takes Basic (RFC 8414). */
function methodOf(as: AuthorizationServer, secret: unknown, key: unknown): ClientAuthMethod {
  if (key !== undefined) return 'private_key_jwt';
  if (secret === undefined) return 'none';
  const listed = as.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
  const isPostOnly = !listed.includes('client_secret_basic') && listed.includes('client_secret_post');
  return isPostOnly ? 'client_secret_post' : 'client_secret_basic';
}

export interface RegistrationInput {
  readonly server: string;
  readonly as: AuthorizationServer;
  readonly redirect: string;
  readonly http: OAuthHttp;
  readonly clock: Clock;
  readonly redact: Redact;
}

/** Throws `registration_refused` with the redacted answer of the authorization server. */
export async function registerClient(input: RegistrationInput): Promise<ClientRow> {
  const { server, as, redirect, http, clock, redact } = input;
  const methods: readonly ClientAuthMethod[] = ['none', 'client_secret_basic', 'client_secret_post'];
  const listed = as.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
  const wanted = methods.find((method) => listed.includes(method)) ?? 'none';
  const body = {
    client_name: clientName,
    application_type: 'native',
    redirect_uris: [redirect],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    token_endpoint_auth_method: wanted,
  };
  const { status, body: answer } = await http({
    url: as.registration_endpoint ?? '',
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const json = objectOf(answer);
  const { client_id: clientId, client_secret: secret, token_endpoint_auth_method: method } = json ?? {};
  // Both become parameters, and the id is shown to people.
  const isPlain = (text: unknown): text is string => typeof text === 'string' && /^[\x20-\x7e]{1,2000}$/.test(text);
  if ((status !== 201 && status !== 200) || !isPlain(clientId)) throw refused();
  const expiresS = json?.client_secret_expires_at;
  const hasSecret = isPlain(secret);
  return {
    issuer: as.issuer,
    clientId,
    redirect,
    method:
      methods.find((each) => each === method) ?? (hasSecret && wanted === 'none' ? 'client_secret_basic' : wanted),
    secret: hasSecret ? secret : undefined,
    secretExpiresMs: typeof expiresS === 'number' && expiresS > 0 ? expiresS * 1_000 : undefined,
    createdMs: clock.date().getTime(),
  };
  function refused(): HostError {
    const answerText = neutraliseLine(redact(answer.toString('utf8')), answerCharsShown);
    const text = `its authorization server refused to register Hostler (${status}): ${answerText}`;
    return refusal(server, 'registration_refused', text, createHint(as.issuer, redirect)).with({ httpStatus: status });
  }
}

/** Error of an authorization server that registers no clients. */
export const clientNeeded = (server: string, as: AuthorizationServer, redirect: string): HostError =>
  notExecuted(
    'invalid_spec',
    `server '${server}': its authorization server ${as.issuer} does not register clients by itself`,
    createHint(as.issuer, redirect),
    { server, field: 'auth.clientId', reason: 'client_needed' },
  );

function createHint(issuer: string, redirect: string): string {
  // A brace would begin a placeholder of the configuration. No URL has one.
  const shown = JSON.stringify(issuer.replaceAll('{', '%7B'));
  const entry = `"auth": {"issuer": ${shown}, "clientId": "…", "redirect": {"port": ${new URL(redirect).port || 80}}}`;
  return `create an OAuth client there with the redirect URI ${redirect}, then write ${entry} in the server's entry`;
}

interface Obtained {
  /** Configured URL of the server. */
  readonly url: string;
  readonly found: Discovered;
  readonly client: ChosenClient;
  readonly account: string | undefined;
  readonly answer: TokenAnswer & { readonly kind: 'tokens' };
  /** Scopes that were asked for: all of them are granted if the answer names none. */
  readonly scopes: readonly string[];
  readonly nowMs: number;
}

/** The grant of a first token answer: everything that later requests need. */
export function newGrant({ url, found, client, account = '', answer, scopes, nowMs }: Obtained): NewGrant {
  const { as, resource = '', resourceMetadata } = found;
  const { accessToken, refreshToken, scope, expiresInS } = answer;
  return {
    ...{ url, resource, issuer: as.issuer, clientId: client.clientId, account, accessToken, refreshToken },
    ...{ scopes: scope === undefined ? scopes : scopesOf(scope), issuedMs: nowMs },
    expiresMs: expiresInS === undefined ? undefined : nowMs + expiresInS * 1_000,
    facts: {
      ...{
        grantType: 'client_credentials',
        tokenEndpoint: as.token_endpoint,
        revocationEndpoint: as.revocation_endpoint,
      },
      ...{ authMethod: client.method, way: client.way, resourceMetadata, loginMs: nowMs, asked: [] },
    },
  };
}
