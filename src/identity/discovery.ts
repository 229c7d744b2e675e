/**
 * Finds the authorization server of an MCP server: protected resource metadata (RFC 9728), then the metadata of the issuer
 * (RFC 8414 or OpenID Connect), for all protocol revisions with one algorithm.
 * Not here: HTTP rules (oauth-http.ts), registration (registration.ts).
 *
 * Invariants: a failed check ends discovery; the next address is tried only if the document is not at this one. No request reaches an
 * authorization server before the resource was checked. The rules of 2025-03-26 apply only if every
 * address of the resource metadata answers that there is none, and no other issuer is known for the server.
 */
import type { AuthorizationServer as Metadata } from 'oauth4webapi';
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { headerText } from '../transports/http/headers.js';
import { canonicalUrl, sameIssuer } from './grant-row.js';
import { isObject, type JsonObject, parseJson } from './json.js';
import type { OAuthHttp } from './oauth-http.js';

const requestsMax = 8;
const redirectsMax = 3;
const totalMs = 20_000;
const requestMs = 10_000;
const depthMax = 32;

export interface DiscoveryInput {
  readonly server: string;
  readonly url: string;
  /** `auth.issuer`, or `--issuer`. */
  readonly issuer?: string | undefined;
  readonly resource?: string | false | undefined;
  /** `resource_metadata` of the challenge. */
  readonly resourceMetadata?: string | undefined;
  /** Issuer of the grant that exists for this server. If it is the server itself, the rules of 2025-03-26 still apply. */
  readonly knownIssuer?: string | undefined;
  readonly assumesPkce?: boolean;
  /** Asks a person whether the named authorization server may take the place of `knownIssuer`. */
  readonly confirmMove?: ((question: string) => Promise<boolean>) | undefined;
}

/** Checked metadata of an authorization server: only members that Hostler uses. */
export type AuthorizationServer = Readonly<Metadata> & { readonly token_endpoint: string };

export interface Discovered {
  readonly as: AuthorizationServer;
  /** Value of the parameter `resource`; undefined: it is left out. */
  readonly resource: string | undefined;
  readonly resourceMetadata: string | undefined;
  readonly scopesSupported: readonly string[] | undefined;
  /** The authorization server is the server itself, by the rules of 2025-03-26. */
  readonly isOldest: boolean;
}

interface Resource {
  readonly at: string | undefined;
  readonly resource: string | undefined;
  readonly servers: readonly string[];
  readonly scopes: readonly string[] | undefined;
  /** Every address answered with 404, 405 or 410. */
  readonly isAbsent: boolean;
}

export function discover(input: DiscoveryInput, http: OAuthHttp, clock: Clock): Promise<Discovered> {
  return new Discovery(input, http, clock).run();
}

class Discovery {
  readonly #input: DiscoveryInput;
  readonly #http: OAuthHttp;
  readonly #clock: Clock;
  #deadlineAtMs: number;
  #requests = 0;

  constructor(input: DiscoveryInput, http: OAuthHttp, clock: Clock) {
    this.#input = input;
    this.#http = http;
    this.#clock = clock;
    this.#deadlineAtMs = clock.nowMs() + totalMs;
  }

  async run(): Promise<Discovered> {
    const { url, resource, issuer, knownIssuer } = this.#input;
    const found = await this.#resource();
    const isOldest = found.at === undefined && issuer === undefined;
    const { origin } = new URL(url);
    const isMoved = knownIssuer !== undefined && !sameIssuer(knownIssuer, origin);
    if (isOldest && (!found.isAbsent || isMoved))
      throw this.#refuse('no_authorization_server', 'it names no authorization server', issuerHint);
    const chosen = isOldest ? origin : await this.#choose(found);
    const as = await this.#metadata(chosen, isOldest);
    const withoutQuery = canonicalUrl(Object.assign(new URL(url), { search: '', hash: '' }).href);
    return {
      as,
      resource: resource === false ? undefined : (resource ?? found.resource ?? withoutQuery),
      resourceMetadata: found.at,
      scopesSupported: found.scopes,
      isOldest,
    };
  }

  async #resource(): Promise<Resource> {
    const { url, resourceMetadata } = this.#input;
    const { origin, pathname } = new URL(url);
    const wellKnown = `${origin}/.well-known/oauth-protected-resource`;
    const path = pathname.replace(/\/$/, '');
    const places =
      resourceMetadata === undefined ? [...new Set([`${wellKnown}${path}`, wellKnown])] : [resourceMetadata];
    let isAbsent = true;
    for (const place of places) {
      const found = await this.#fetch(place, resourceMetadata !== undefined);
      if ('json' in found) return this.#checkResource(place, found.json);
      isAbsent &&= [404, 405, 410].includes(found.status);
    }
    return { at: undefined, resource: undefined, servers: [], scopes: undefined, isAbsent };
  }

  #checkResource(at: string, json: JsonObject): Resource {
    const { url, resource: configured, issuer } = this.#input;
    const { resource, authorization_servers: servers, scopes_supported: scopes } = json;
    const isOwn = typeof resource === 'string' && (resource === configured || coversUrl(resource, url));
    if (!isOwn)
      throw this.#refuse(
        'resource_mismatch',
        `its metadata is about another resource (${shown(resource)})`,
        'the server is not set up correctly, or it asks for a token of another server; tell its operator',
      );
    // The list is optional (RFC 9728): the operator may know the authorization server.
    const list = servers === undefined ? [] : strings(servers);
    if (!list) throw this.#refuse('metadata_invalid', 'its metadata has no usable list of authorization servers');
    if (list.length === 0 && issuer === undefined)
      throw this.#refuse('no_authorization_server', 'its metadata names no authorization server', issuerHint);
    return { at, resource, servers: list, scopes: strings(scopes), isAbsent: false };
  }

  /** The pinned issuer, else the issuer of the grant, else the first that the server names. */
  async #choose({ servers }: Resource): Promise<string> {
    const { issuer, knownIssuer, confirmMove } = this.#input;
    const wanted = issuer ?? knownIssuer;
    const [first = ''] = servers;
    if (wanted === undefined) return first;
    const named = servers.find((each) => sameIssuer(each, wanted));
    if (named !== undefined) return named;
    if (issuer !== undefined && servers.length === 0) return issuer;
    if (issuer === undefined) this.#checkIssuer(first);
    const what = `it used the authorization server ${shown(wanted)} and now names`;
    // The login uses the issuer that the question named: the server could answer a second request with another issuer.
    if (issuer === undefined && (await confirmMove?.(`${what} ${shown(first)}. Log in there?`))) {
      this.#deadlineAtMs = this.#clock.nowMs() + totalMs;
      return first;
    }
    throw this.#refuse(
      'issuer_changed',
      `${what} ${servers.map(shown).join(', ')}`,
      'if you trust the new one, log in with --issuer and its address',
    );
  }

  async #metadata(issuer: string, isOldest: boolean): Promise<AuthorizationServer> {
    this.#checkIssuer(issuer);
    const { origin, pathname } = new URL(issuer);
    const path = pathname.replace(/\/$/, '');
    const [rfc8414, oidc] = [
      `${origin}/.well-known/oauth-authorization-server`,
      `${origin}/.well-known/openid-configuration`,
    ];
    const later = path === '' ? [oidc] : [`${oidc}${path}`, `${origin}${path}/.well-known/openid-configuration`];
    for (const place of isOldest ? [rfc8414] : [`${rfc8414}${path}`, ...later]) {
      const found = await this.#fetch(place, false);
      if ('json' in found) return this.#checkMetadata(issuer, found.json);
    }
    // The revision of 2025-03-26 has default paths and demands PKCE.
    if (isOldest)
      return {
        issuer: origin,
        authorization_endpoint: `${origin}/authorize`,
        token_endpoint: `${origin}/token`,
        registration_endpoint: `${origin}/register`,
        token_endpoint_auth_methods_supported: ['none', 'client_secret_basic', 'client_secret_post'],
      };
    const hint = this.#input.issuer === undefined ? issuerHint : 'check auth.issuer';
    throw this.#refuse('metadata_unreachable', `its authorization server ${shown(issuer)} has no metadata`, hint);
  }

  /**
   * An issuer is compared as text, shown to people and sent to other servers. So it must be a text that the URL parser does not change,
   * and people must read the same host in it as the parser. It has neither query nor fragment (RFC 8414, 2).
   */
  #checkIssuer(issuer: string): void {
    const isPlain = /^[\x21-\x7e]{1,2000}$/.test(issuer) && /^https?:\/\/[^/\\?#@]+(?:\/[^\\?#]*)?$/i.test(issuer);
    if (!isPlain || !URL.canParse(issuer))
      throw this.#refuse('metadata_invalid', 'it names an authorization server that is not a plain URL');
  }

  #checkMetadata(issuer: string, json: JsonObject): AuthorizationServer {
    const { issuer: own, token_endpoint: token, code_challenge_methods_supported: methods } = json;
    if (typeof own !== 'string' || !sameIssuer(own, issuer))
      throw this.#refuse(
        'issuer_mismatch',
        `the metadata of ${shown(issuer)} is that of another issuer (${shown(own)})`,
      );
    if (typeof token !== 'string' || !URL.canParse(token))
      throw this.#refuse('metadata_invalid', `the metadata of ${shown(issuer)} has no token endpoint`);
    if (this.#input.assumesPkce !== true && strings(methods)?.includes('S256') !== true)
      throw this.#refuse(
        'pkce_unsupported',
        `its authorization server ${shown(issuer)} does not offer PKCE with S256`,
        'set auth.issuer and auth.pkce to "assume" if you know that it supports PKCE',
      );
    const url = (name: string) =>
      typeof json[name] === 'string' && URL.canParse(json[name]) ? { [name]: json[name] } : {};
    const list = (name: string) => (strings(json[name]) === undefined ? {} : { [name]: strings(json[name]) });
    return {
      issuer: own,
      token_endpoint: token,
      ...url('authorization_endpoint'),
      ...url('registration_endpoint'),
      ...url('revocation_endpoint'),
      ...list('scopes_supported'),
      ...list('token_endpoint_auth_methods_supported'),
      client_id_metadata_document_supported: json.client_id_metadata_document_supported === true,
      authorization_response_iss_parameter_supported: json.authorization_response_iss_parameter_supported === true,
    };
  }

  /** The document, or the status of an address that has none. `isOnly`: there is no other address to try. */
  async #fetch(place: string, isOnly: boolean): Promise<{ readonly json: JsonObject } | { readonly status: number }> {
    const { status, body } = await this.#get(place);
    if (status === 200) {
      const json = parseJson(body.toString('utf8'));
      if (isObject(json) && isShallow(json, depthMax)) return { json };
      if (json !== undefined)
        throw this.#refuse('metadata_invalid', 'its metadata is not an object, or is nested too deeply');
      // Such as the page of an application that answers every path.
      if (isOnly) throw this.#refuse('metadata_invalid', 'its metadata is not a JSON object');
      return { status };
    }
    const isElsewhere = status >= 200 && status < 500 && status !== 429;
    if (isElsewhere && !isOnly) return { status };
    throw this.#refuse('metadata_unreachable', `its metadata was answered with status ${status}`, 'try again later');
  }

  async #get(place: string) {
    let url = place;
    for (let redirects = 0; ; redirects++) {
      if (++this.#requests > requestsMax)
        throw this.#refuse('metadata_unreachable', 'its metadata needs too many requests');
      const leftMs = this.#deadlineAtMs - this.#clock.nowMs();
      const answer = await this.#http({
        url,
        method: 'GET',
        timeoutMs: Math.max(1, Math.min(requestMs, leftMs)),
      }).catch((error: unknown) => {
        throw this.#unreachable(error);
      });
      if (answer.status < 300 || answer.status >= 400) return answer;
      const location = headerText(answer.headers, 'location');
      const next = location !== undefined && URL.canParse(location, url) ? new URL(location, url) : undefined;
      if (next?.origin !== new URL(place).origin || redirects >= redirectsMax)
        throw this.#refuse('redirected', 'its metadata redirects to another origin, or too often');
      url = next.href;
    }
  }

  #unreachable(error: unknown): unknown {
    if (!(error instanceof HostError)) return error;
    const { reason } = error.details;
    if (reason === 'address_refused')
      return error.with({ hint: 'if this address is right, write it as auth.issuer of the server' });
    return reason === 'metadata_too_large' ? error : error.with({ reason: 'metadata_unreachable' });
  }

  #refuse(reason: string, text: string, hint?: string): HostError {
    const { server } = this.#input;
    const details = { server, reason, execution: 'not_executed', ...(hint === undefined ? {} : { hint }) } as const;
    return new HostError('connect_failed', `server '${server}': ${text}`, details);
  }
}

const issuerHint = 'if you know the authorization server, set auth.issuer of the server';

const shown = (value: unknown): string =>
  neutraliseLine(typeof value === 'string' ? value : typeof value, LIMITS.quotedChars);

/** True if the resource is the URL, or a URL of the same origin whose path is a parent of its path. */
function coversUrl(resource: string, url: string): boolean {
  // The parser of URLs would resolve dots and accept blanks and control characters.
  if (!URL.canParse(resource) || /[\x00-\x20\x7f\\]|\/\.{1,2}(?:\/|$)|%2e/i.test(resource)) return false;
  const [own, other] = [new URL(canonicalUrl(url)), new URL(resource)];
  if (other.username !== '' || other.password !== '' || resource.includes('#') || other.origin !== own.origin)
    return false;
  if (other.search !== '') return canonicalUrl(resource) === own.href;
  const path = other.pathname.replace(/\/$/, '');
  const ownPath = own.pathname.replace(/\/$/, '');
  return ownPath === path || ownPath.startsWith(`${path}/`);
}

const strings = (value: unknown): string[] | undefined =>
  Array.isArray(value) && value.every((each) => typeof each === 'string') ? (value as string[]) : undefined;

const isShallow = (value: unknown, left: number): boolean =>
  typeof value !== 'object' ||
  value === null ||
  (left > 0 && Object.values(value).every((each) => isShallow(each, left - 1)));
