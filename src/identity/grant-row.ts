/** One grant of identity.db, and what each part of Hostler may see of it. */
import { createHash } from 'node:crypto';

/** Identifies a grant: a login with the same values replaces it. `resource` is empty if the parameter is left out. */
export interface GrantKey {
  readonly resource: string;
  readonly issuer: string;
  readonly clientId: string;
  /** `auth.account` of the configuration: two accounts of one service can be in use at the same time. */
  readonly account: string;
}

export type ClientAuthMethod = 'none' | 'client_secret_basic' | 'client_secret_post' | 'private_key_jwt';

export type RegistrationWay = 'configured' | 'metadata_document' | 'registered';

/** Everything about a grant that is neither secret nor searched for. */
export interface GrantFacts {
  readonly grantType: 'code' | 'client_credentials';
  readonly tokenEndpoint: string;
  readonly revocationEndpoint?: string | undefined;
  readonly authMethod: ClientAuthMethod;
  readonly way: RegistrationWay;
  /** Configured URL of the login if `resource` is empty: a token that names no resource is for this URL only. */
  readonly url?: string | undefined;
  /** Address of the protected resource metadata; absent: the server has none. */
  readonly resourceMetadata?: string | undefined;
  /** Name of the account at the authorization server, for people. */
  readonly identity?: string | undefined;
  readonly loginMs: number;
  readonly refreshedMs?: number | undefined;
  /** Scopes that the last logins asked for, newest last. */
  readonly asked: readonly { readonly scopes: readonly string[]; readonly atMs: number }[];
  readonly lastError?: { readonly reason: string; readonly atMs: number } | undefined;
}

export interface GrantTokens {
  readonly accessToken: string;
  readonly refreshToken: string | undefined;
  readonly scopes: readonly string[];
  readonly issuedMs: number;
  /** Undefined: the authorization server did not say. */
  readonly expiresMs: number | undefined;
}

export interface GrantRow extends GrantKey, GrantTokens {
  readonly id: string;
  /** Changes with each login: tokens of two logins may belong to two accounts. */
  readonly login: string;
  /** The generation: number of the token within this login, raised with each new token. */
  readonly gen: number;
  readonly state: 'live' | 'dead';
  /** Why the grant is dead. */
  readonly reason: string | undefined;
  /** Scopes that a server asked for and that no login has obtained yet. */
  readonly wanted: readonly string[];
  readonly facts: GrantFacts;
  /** A request of this generation may have been sent without an answer. */
  readonly isInterrupted: boolean;
  readonly failures: number;
  /** No refresh before this time. */
  readonly retryMs: number;
  /** Time of the first of several refusals in a row, none of which ends the grant. */
  readonly refusedMs: number | undefined;
}

/** Largest time of a `Date`. */
const dateMsMax = 8.64e15;

export const hashOf = (parts: unknown): string =>
  createHash('sha256').update(JSON.stringify(parts)).digest('base64url');

/** A token without a person is another grant than the login of a person, even with the same client. */
export function grantId({ facts, ...key }: GrantKey & Pick<GrantRow, 'facts'>): string {
  const { resource, issuer, clientId, account } = key;
  const own = resource === '' && facts.url !== undefined ? [facts.url] : [];
  if (facts.grantType === 'code') return hashOf([resource, issuer, clientId, account, ...own]);
  // The server chooses the spelling of its resource, and this grant needs no person: each spelling would add a row.
  const canonical = URL.canParse(resource) ? canonicalUrl(resource) : resource;
  return hashOf([canonical, issuer, clientId, account, facts.grantType, ...own]);
}

/** Lower-case scheme and host, no default port, no fragment, no lone trailing slash: equal for equal resources. */
export function canonicalUrl(text: string): string {
  const url = new URL(text);
  url.hash = '';
  return url.pathname === '/' && url.search === '' ? url.href.slice(0, -1) : url.href;
}

/** A lone trailing slash is the only difference that is accepted. */
export const sameIssuer = (one: string, other: string): boolean => one.replace(/\/$/, '') === other.replace(/\/$/, '');

/** The facts of a row that cannot be read. */
const noFacts: GrantFacts = {
  ...{ grantType: 'code', tokenEndpoint: '', authMethod: 'none', way: 'registered', loginMs: 0, asked: [] },
};

/** `isWhole`: `asked` and `lastError` are not damaged; else they are reset. The other members stay: they say whose tokens these are. */
export function storedFacts(value: unknown): { readonly facts: GrantFacts; readonly isWhole: boolean } {
  const facts = { ...noFacts, ...(value as Partial<GrantFacts> | undefined) };
  const isTime = (atMs: unknown) => typeof atMs === 'number' && Math.abs(atMs) <= dateMsMax;
  const isAsked = (each: GrantFacts['asked'][number] | null) => Array.isArray(each?.scopes) && isTime(each?.atMs);
  const { asked, lastError } = facts;
  const isWhole = Array.isArray(asked) && asked.every(isAsked) && (lastError === undefined || isTime(lastError?.atMs));
  return { facts: isWhole ? facts : { ...facts, asked: [], lastError: undefined }, isWhole };
}

/** ISO 8601. */
export const timeOf = (atMs: number | undefined): string | undefined =>
  atMs === undefined ? undefined : new Date(atMs).toISOString();

/** What people may see of a grant. Each member is named: a token must never be shown by accident. */
export const shownFacts = ({ issuer, resource, clientId, scopes, expiresMs, facts }: GrantRow) => ({
  ...{ issuer, resource, clientId, scopes, registration: facts.way, identity: facts.identity },
  expiresAt: timeOf(expiresMs),
  lastError: facts.lastError && { reason: facts.lastError.reason, at: new Date(facts.lastError.atMs).toISOString() },
});
