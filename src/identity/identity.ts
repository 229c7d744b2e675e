/**
 * Tokens of all servers of one host: opens identity.db when it is needed, shares grants between servers, and looks for logins of
 * other processes.
 * Not here: logging in (login.ts), one server (oauth-provider.ts).
 *
 * Invariants: without a grant and without `client_credentials` no file is created. The store is polled once a second, and only
 * while a server needs a login or uses one that may end. Nothing here opens a browser or registers a client.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { loadedLibsql } from '../catalog/store/libsql.js';
import type { AuthSettings } from '../config/auth-settings.js';
import { authEntry } from '../config/auth-settings.js';
import type { ServerDefinition } from '../config/server-definition.js';
import { isAttached, isStdio } from '../config/server-spec.js';
import type { Cancel, Clock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import type { Random } from '../kernel/random.js';
import type { Redactor } from '../kernel/redact.js';
import type { AuthProvider } from '../session/auth/auth-provider.js';
import type { Environment } from '../transports/environment.js';
import { bearerChallenge } from '../transports/http/challenges.js';
import { discover } from './discovery.js';
import { Grant } from './grant.js';
import type { GrantRow } from './grant-row.js';
import type { IdentityStore } from './identity-store.js';
import { createOAuthHttp, type OAuthHttp } from './oauth-http.js';
import { OAuthProvider } from './oauth-provider.js';
import { identityFileName, openStore } from './open-store.js';
import { configuredClient, newGrant } from './registration.js';
import { type OAuthClient, requestToken, type TokenAnswer } from './token-endpoint.js';

const pollMs = 1_000;
/** A locked store is tried again: its key may have been restored. */
const lockedMs = 30_000;

export interface IdentityOptions {
  /** Undefined: there is no home directory, so no grant exists. */
  readonly folder: string | undefined;
  readonly key?: string | undefined;
  readonly clock: Clock;
  readonly random: Random;
  readonly redactor: Redactor;
  /** Names the proxy and the certificate authorities. */
  readonly env?: Environment;
  readonly onProblem: (error: unknown) => void;
}

interface Target {
  readonly server: string;
  readonly url: string;
  readonly auth: AuthSettings;
  readonly http: OAuthHttp;
}

const noAuth: AuthSettings = authEntry.parse({});

export class Identity {
  readonly #options: IdentityOptions;
  readonly #grants = new Map<string, Grant>();
  /** How each grant is renewed: the newest server that uses it decides. */
  readonly #targets = new Map<string, Target>();
  readonly #providers = new Set<OAuthProvider>();
  #store: IdentityStore | undefined;
  #storeError: { readonly error: HostError; readonly atMs: number } | undefined;
  #version: number | undefined;
  #cancelPoll: Cancel | undefined;

  constructor(options: IdentityOptions) {
    this.#options = options;
  }

  /** Undefined: this server has a token of its own, or none. */
  providerFor({ name: server, spec }: ServerDefinition): AuthProvider | undefined {
    if (isStdio(spec) || isAttached(spec) || this.#options.folder === undefined) return undefined;
    const { auth = noAuth, url, headers } = spec;
    const hasHeader = Object.keys(headers).some((name) => name.toLowerCase() === 'authorization');
    if (auth.grant === 'none' || hasHeader) return undefined;
    const { clock, random, env } = this.#options;
    const trusted = auth.issuer === undefined ? [url] : [url, auth.issuer];
    const target: Target = { server, url, auth, http: createOAuthHttp({ server, clock, random, trusted, env }) };
    const provider: OAuthProvider = new OAuthProvider(server, auth, {
      clock,
      find: () => this.#find(target),
      acquire: (scopes, challenge) => this.#acquire(target, scopes, challenge),
      setWanted: ({ id }, wanted) => this.#store?.setWanted(id, wanted),
      storeError: () => this.#storeError?.error,
      watch: () => this.#watch(),
      release: (each) => this.#release(each),
    });
    this.#providers.add(provider);
    return provider;
  }

  close(): void {
    this.#providers.clear();
    this.#cancelPoll?.();
    for (const grant of this.#grants.values()) grant.close();
  }

  /** Undefined: the file does not exist yet, or cannot be opened now. */
  #open(mayCreate: boolean): IdentityStore | undefined {
    const { folder, key, clock, onProblem } = this.#options;
    if (this.#store || folder === undefined) return this.#store;
    if (this.#storeError && clock.nowMs() < this.#storeError.atMs + lockedMs) return undefined;
    if (!mayCreate && !existsSync(path.join(folder, identityFileName))) return undefined;
    try {
      loadedLibsql();
      this.#store = openStore({ folder, key, onProblem });
      this.#storeError = undefined;
    } catch (error) {
      if (!isHostError(error)) throw error;
      if (!this.#storeError) onProblem(error);
      this.#storeError = { error, atMs: clock.nowMs() };
    }
    return this.#store;
  }

  #find(target: Target): Grant | undefined {
    const row = this.#open(false)?.findGrant(target.url, target.auth);
    return row && this.#grantOf(row, target);
  }

  #grantOf(row: GrantRow, target: Target): Grant {
    this.#targets.set(row.id, target);
    const known = this.#grants.get(row.id);
    if (known) {
      known.reload();
      return known;
    }
    const { clock, random, redactor, onProblem } = this.#options;
    const users = () => [...this.#providers].filter(({ grantId }) => grantId === row.id);
    const grant = new Grant(row, {
      store: this.#store as IdentityStore,
      clock,
      random,
      secrets: redactor,
      request: (current) => this.#renew(current),
      // Counted for one of the servers that share the grant.
      onRefresh: (result) => users().at(-1)?.refreshed(result),
      onChange: () => {
        for (const provider of users()) provider.changed();
      },
      onProblem,
    });
    this.#grants.set(row.id, grant);
    return grant;
  }

  /** The request for the next generation, with what was stored with the grant. */
  #renew(row: GrantRow): Promise<TokenAnswer> {
    const { auth, http } = this.#targets.get(row.id) as Target;
    const { issuer, resource, facts, refreshToken = '' } = row;
    const isCode = facts.grantType === 'code';
    const client = this.#clientOf(row, auth);
    const params = {
      ...auth.tokenParams,
      ...(resource === '' ? {} : { resource }),
      ...(isCode ? { refresh_token: refreshToken } : row.scopes.length === 0 ? {} : { scope: row.scopes.join(' ') }),
    };
    const grantType = isCode ? 'refresh_token' : 'client_credentials';
    const request = { issuer, tokenEndpoint: facts.tokenEndpoint, client, grantType, params } as const;
    return requestToken(http, request, this.#options.clock.date());
  }

  #clientOf({ issuer, clientId, facts: { authMethod: method, way } }: GrantRow, auth: AuthSettings): OAuthClient {
    if (way === 'configured') return { clientId, method, secret: auth.clientSecret, key: auth.clientKey };
    return {
      clientId,
      method,
      secret: way === 'registered' ? this.#store?.readClient(issuer, clientId)?.secret : undefined,
    };
  }

  async #acquire(target: Target, scopes: readonly string[], challenge: string | undefined): Promise<Grant> {
    const { clock } = this.#options;
    const { server, url, auth, http } = target;
    const store = this.#open(true);
    if (!store) throw this.#storeError?.error ?? unreachable(server, 'store_locked');
    const resourceMetadata = bearerChallenge(challenge)?.params.get('resource_metadata');
    const { issuer, resource } = auth;
    const input = { server, url, issuer, resource, resourceMetadata, assumesPkce: true };
    const found = await discover(input, http, clock).catch((error: unknown) => {
      const reason = isHostError(error) ? error.details.reason : undefined;
      throw reason === 'metadata_unreachable' ? unreachable(server, reason) : error;
    });
    const { as } = found;
    const client = configuredClient(server, as, auth);
    const answer = await requestToken(
      http,
      {
        issuer: as.issuer,
        tokenEndpoint: as.token_endpoint,
        client,
        grantType: 'client_credentials',
        params: {
          ...auth.tokenParams,
          ...(found.resource === undefined ? {} : { resource: found.resource }),
          ...(scopes.length === 0 ? {} : { scope: scopes.join(' ') }),
        },
      },
      clock.date(),
    );
    if (answer.kind === 'unavailable') throw unreachable(server, answer.reason, answer.retryAfterMs);
    if (answer.kind === 'refused' || answer.accessToken === '')
      throw refusedClient(server, answer.kind === 'refused' ? answer.error : 'token_invalid');
    const nowMs = clock.date().getTime();
    const own = { ...answer, refreshToken: undefined };
    const grant = newGrant({ url, found, client, account: auth.account, answer: own, scopes, nowMs });
    return this.#grantOf(store.saveLogin(grant), target);
  }

  /** The next look reads the store in any case: a login may just have ended. */
  #watch(): void {
    this.#version = undefined;
    this.#cancelPoll ??= this.#pollLater();
  }

  #pollLater(): Cancel {
    const { clock } = this.#options;
    return clock.at(clock.nowMs() + pollMs, () => {
      try {
        this.#poll();
      } catch (error) {
        this.#options.onProblem(error);
      }
      const isNeeded = [...this.#providers].some(({ isWatching }) => isWatching);
      this.#cancelPoll = isNeeded ? this.#pollLater() : undefined;
    });
  }

  #poll(): void {
    const version = this.#open(false)?.dataVersion();
    if (version === undefined || version === this.#version) return;
    for (const provider of [...this.#providers]) provider.reload();
    // After the look, which asks for another one.
    this.#version = version;
  }

  #release(provider: OAuthProvider): void {
    this.#providers.delete(provider);
    const used = new Set([...this.#providers].map(({ grantId }) => grantId));
    for (const [id, grant] of this.#grants) {
      if (used.has(id)) continue;
      grant.close();
      this.#grants.delete(id);
      this.#targets.delete(id);
    }
  }
}

const unreachable = (server: string, reason: string, retryAfterMs = 2_000): HostError =>
  new HostError('reconnecting', `server '${server}': no token could be requested now (${reason})`, {
    server,
    reason: 'auth_server',
    execution: 'not_executed',
    retryAfterMs,
    hint: 'try again after the given time',
  });

const refusedClient = (server: string, word: string): HostError =>
  new HostError(
    'denied',
    `server '${server}': its authorization server refused the client of the configuration (${word})`,
    {
      server,
      reason: 'client_refused',
      execution: 'not_executed',
      hint: 'correct auth.clientId, auth.clientSecret or auth.clientKey',
    },
  );
