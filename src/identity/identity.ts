/**
 * Tokens of all servers of one host: opens identity.db when it is needed, shares grants between servers, and looks for logins of
 * other processes.
 * Not here: logging in (login.ts), one server (oauth-provider.ts).
 *
 * Invariants: without a grant and without `client_credentials` no file is created. The store is polled once a second, and only
 * while a server needs a login or uses one that may end. Nothing here opens a browser or registers a client.
 */
import { existsSync, statSync } from 'node:fs';
import path from 'node:path';
import { loadedLibsql } from '../catalog/store/libsql.js';
import type { AuthSettings } from '../config/auth-settings.js';
import { authEntry } from '../config/auth-settings.js';
import type { SecretValues } from '../config/secrets/secret-values.js';
import type { ServerDefinition } from '../config/server-definition.js';
import { isAttached, isStdio, tokenHeaderOf } from '../config/server-spec.js';
import { setBounded } from '../kernel/bounded-map.js';
import type { Cancel, Clock } from '../kernel/clock.js';
import { type HostError, isHostError } from '../kernel/errors.js';
import type { Random } from '../kernel/random.js';
import type { Redactor } from '../kernel/redact.js';
import type { AuthProvider } from '../session/auth/auth-provider.js';
import type { Environment } from '../transports/environment.js';
import { bearerChallenge } from '../transports/http/challenges.js';
import { discover } from './discovery.js';
import { Grant } from './grant.js';
import { type GrantRow, hashOf } from './grant-row.js';
import { clientRefused, noTokenNow } from './identity-errors.js';
import { type IdentityPlace, keySourceOf } from './identity-place.js';
import type { IdentityStore } from './identity-store.js';
import { createOAuthHttp, type OAuthHttp } from './oauth-http.js';
import { OAuthProvider } from './oauth-provider.js';
import { identityFileName, openStore, storePatiently } from './open-store.js';
import { isPending } from './pending-logins.js';
import { configuredClient, newGrant, withSecrets } from './registration.js';
import {
  hasCredentials,
  isClientRefusal,
  type OAuthClient,
  requestToken,
  revokeGrant,
  type TokenAnswer,
  type TokenRequest,
  tokenParameters,
} from './token-endpoint.js';

const pollMs = 1_000;
/** A locked store is opened again after this time, because its key may have been restored. */
const lockedMs = 30_000;
const soonMs = 2_000;
/** Pause after a refused client. A server that needs a login is probed less often, so its next probe uses a corrected client. */
const clientRefusedMs = 4 * 60_000;
const credentialsMax = 4;
/** No other credentials are used after this time: their commands may be slow, and a lease ends after 120 s. */
const credentialsMs = 60_000;
const refusedMax = 100;

/** Without a folder no grant exists. */
export interface IdentityOptions extends IdentityPlace {
  readonly clock: Clock;
  readonly random: Random;
  readonly redactor: Redactor;
  /** Resolves references in the secrets of configured clients. Without it, they are used as written. */
  readonly secrets?: Pick<SecretValues, 'resolve'> | undefined;
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

/** A request for a token, and the means with which it was sent. */
interface Sent {
  readonly http: OAuthHttp;
  readonly request: TokenRequest;
}

const noAuth: AuthSettings = authEntry.parse({});

export class Identity {
  readonly #options: IdentityOptions;
  readonly #grants = new Map<string, Grant>();
  /** The servers. If several share a grant, the newest decides how the grant is renewed. */
  readonly #providers = new Map<OAuthProvider, Target>();
  /** Time until which refused credentials are not sent to their authorization server again. */
  readonly #refusedUntilMs = new Map<string, number>();
  #store: IdentityStore | undefined;
  #storeError: { readonly error: HostError; readonly atMs: number } | undefined;
  #inode: number | undefined;
  /** Data version of the store at the last look. Undefined: look in any case. */
  #version: number | 'none' | undefined;
  #cancelPoll: Cancel | undefined;
  #isClosed = false;

  constructor(options: IdentityOptions) {
    this.#options = options;
  }

  /** Undefined: the server gets its token from a header of the configuration, or needs none. */
  providerFor({ name: server, spec }: ServerDefinition): AuthProvider | undefined {
    if (isStdio(spec) || isAttached(spec) || this.#options.folder === undefined) return undefined;
    const { auth = noAuth, url } = spec;
    if (auth.grant === 'none' || tokenHeaderOf(spec) !== undefined) return undefined;
    const { clock, random, env } = this.#options;
    const http = createOAuthHttp({ server, clock, random, url, issuer: auth.issuer, env });
    const target: Target = { server, url, auth, http };
    const provider: OAuthProvider = new OAuthProvider(server, auth, {
      clock,
      find: () => this.#find(target),
      acquire: (scopes, challenge) => this.#acquire(target, scopes, challenge),
      addWanted: (row, scopes) =>
        storePatiently(clock, () => this.#store?.addWanted(row, scopes)).catch(this.#options.onProblem),
      isPending: () =>
        this.#store !== undefined && isPending(this.#store, { url, account: auth.account }, clock.date().getTime()),
      keySource: keySourceOf(this.#options),
      storeError: () => this.#storeError?.error,
      watch: () => this.#watch(),
      release: (each) => this.#release(each),
    });
    this.#providers.set(provider, target);
    return provider;
  }

  close(): void {
    this.#isClosed = true;
    this.#providers.clear();
    this.#cancelPoll?.();
    for (const grant of this.#grants.values()) grant.close();
  }

  /** Undefined: the file does not exist yet, or cannot be opened now. */
  #open(mayCreate: boolean): IdentityStore | undefined {
    const { folder, key, error: fault, clock, onProblem } = this.#options;
    if (folder === undefined) return undefined;
    const file = path.join(folder, identityFileName);
    if (this.#store && this.#inode !== inodeOf(file)) this.#forget();
    if (this.#store) return this.#store;
    if (this.#storeError && clock.nowMs() < this.#storeError.atMs + lockedMs) return undefined;
    if (!fault && !mayCreate && !existsSync(file)) return undefined;
    try {
      if (fault) throw fault;
      loadedLibsql();
      this.#store = openStore({ folder, key, onProblem });
      this.#inode = inodeOf(file);
      this.#storeError = undefined;
    } catch (error) {
      if (!isHostError(error)) throw error;
      if (!this.#storeError) onProblem(error);
      this.#storeError = { error, atMs: clock.nowMs() };
    }
    return this.#store;
  }

  /** The file was removed or set aside. Its tokens are not used any more; a login creates another file. */
  #forget(): void {
    this.#store = undefined;
    this.#version = undefined;
    for (const grant of this.#grants.values()) grant.close();
    this.#grants.clear();
  }

  #find(target: Target): Grant | undefined {
    const row = this.#open(false)?.findGrant(target.url, target.auth);
    return row && this.#grantOf(row);
  }

  #grantOf(row: GrantRow): Grant {
    const known = this.#grants.get(row.id);
    if (known) {
      known.reload();
      return known;
    }
    const { clock, random, redactor, onProblem } = this.#options;
    let sent: Sent | undefined;
    const users = () => [...this.#providers.keys()].filter(({ grantId }) => grantId === row.id);
    const grant = new Grant(row, {
      store: this.#store as IdentityStore,
      clock,
      random,
      secrets: redactor,
      request: (current) => this.#renew(current, (each) => (sent = each)),
      // Uses the client that obtained the tokens, because the server may have been removed since.
      revoke: async ({ facts }, tokens) =>
        sent && revokeGrant(sent.http, { ...sent.request, endpoint: facts.revocationEndpoint }, tokens),
      // A refresh is counted for only one of the servers that share the grant.
      onRefresh: (result) => users().at(-1)?.refreshed(result),
      onChange: () => {
        for (const provider of users()) provider.changed();
      },
      onProblem,
    });
    this.#grants.set(row.id, grant);
    return grant;
  }

  /** Requests the next token, with the values that were stored with the grant. */
  async #renew(row: GrantRow, onSend: (sent: Sent) => void): Promise<TokenAnswer> {
    const { issuer, clientId, resource, facts, refreshToken = '', scopes } = row;
    const { tokenEndpoint, authMethod: method, way } = facts;
    const isCode = facts.grantType === 'code';
    const own = isCode ? { refresh_token: refreshToken } : { scope: scopes.join(' ') };
    const request = (client: OAuthClient, { tokenParams }: AuthSettings): TokenRequest => ({
      ...{ issuer, tokenEndpoint, client, grantType: isCode ? 'refresh_token' : 'client_credentials' },
      params: tokenParameters(tokenParams, resource, own),
    });
    const targets = [...this.#providers].filter(([{ grantId }]) => grantId === row.id).map(([, target]) => target);
    const newest = targets.at(-1);
    // All its servers were removed while another process had the lease.
    if (!newest) return { kind: 'unavailable', reason: 'not_used', isSent: false, retryAfterMs: undefined };
    if (way === 'configured')
      return this.#requestAsConfigured(
        targets.reverse(),
        (auth) => request({ clientId, method, secret: auth.clientSecret, key: auth.clientKey }, auth),
        onSend,
      );
    const secret = way === 'registered' ? this.#store?.readClient(issuer, clientId)?.secret : undefined;
    const sent: Sent = { http: newest.http, request: request({ clientId, method, secret }, newest.auth) };
    onSend(sent);
    return requestToken(sent.http, sent.request, this.#options.clock.date());
  }

  /** Uses the credentials of one server after the other, until the authorization server knows the client. */
  async #requestAsConfigured(
    targets: readonly Target[],
    requestOf: (auth: AuthSettings) => TokenRequest,
    onSend: (sent: Sent) => void = () => {},
  ): Promise<TokenAnswer> {
    const { clock, secrets, redactor, onProblem } = this.#options;
    const tried = new Set<string>();
    /** Entries whose secret cannot be read, or whose key is no key. */
    const faulty = new Map<Target, unknown>();
    const noteFault = (target: Target) => (error: unknown) => {
      faulty.set(target, error);
      if (targets.length > 1) onProblem(error);
    };
    let refused: TokenAnswer | undefined;
    const untilMs = clock.nowMs() + credentialsMs;
    // The second round runs the commands again: the secret may have been rotated since.
    for (const isFresh of [false, true])
      for (const target of targets) {
        const { server, auth, http } = target;
        if (tried.size >= credentialsMax || faulty.has(target)) continue;
        // No refusal: one of the other credentials may be right.
        if (clock.nowMs() >= untilMs)
          return { kind: 'unavailable', reason: 'slow', isSent: false, retryAfterMs: undefined };
        const resolved = await withSecrets(server, auth, secrets, isFresh).catch(noteFault(target));
        if (!resolved) continue;
        const request = requestOf(resolved);
        const { secret, key: own } = request.client;
        for (const value of [secret, own?.pem]) if (value !== undefined) redactor.know(value);
        const key = hashOf([request.issuer, request.client]);
        const isRefused = (this.#refusedUntilMs.get(key) ?? 0) > clock.nowMs();
        if (isRefused || tried.has(key) || !hasCredentials(request.client)) continue;
        tried.add(key);
        onSend({ http, request });
        const answer = await requestToken(http, request, clock.date()).catch(noteFault(target));
        if (!answer) continue;
        if (!isClientRefusal(answer)) return answer;
        refused = answer;
        setBounded(this.#refusedUntilMs, key, clock.nowMs() + clientRefusedMs, refusedMax);
      }
    if (!refused) for (const error of faulty.values()) throw error;
    return refused ?? { kind: 'refused', error: 'invalid_client' };
  }

  async #acquire(target: Target, scopes: readonly string[], challenge: string | undefined): Promise<Grant> {
    const { clock } = this.#options;
    const { server, url, auth, http } = target;
    const store = this.#open(true);
    if (!store) throw this.#storeError?.error ?? noTokenNow(soonMs, 'store_locked');
    const resourceMetadata = bearerChallenge(challenge)?.params.get('resource_metadata');
    const { issuer, resource } = auth;
    const input = { server, url, issuer, resource, resourceMetadata, assumesPkce: true };
    const found = await discover(input, http, clock).catch((error: unknown) => {
      const reason = isHostError(error) ? error.details.reason : undefined;
      throw reason === 'metadata_unreachable' ? noTokenNow(soonMs, reason) : error;
    });
    const { as } = found;
    const params = tokenParameters(auth.tokenParams, found.resource, { scope: scopes.join(' ') });
    const grantType = 'client_credentials';
    const answer = await this.#requestAsConfigured([target], (resolved) => {
      const client = configuredClient(server, as, resolved);
      return { issuer: as.issuer, tokenEndpoint: as.token_endpoint, client, grantType, params };
    });
    if (answer.kind !== 'tokens' || answer.accessToken === '') throw refusalOf(server, answer);
    const client = configuredClient(server, as, auth);
    const nowMs = clock.date().getTime();
    const own = { ...answer, refreshToken: undefined };
    const grant = newGrant({ url, found, client, account: auth.account, answer: own, scopes, nowMs });
    const stored = this.#grantOf(await storePatiently(clock, () => store.saveLogin(grant)));
    // The stored token is for other hosts. The grant of this closed host would renew it for as long as the process lives.
    if (this.#isClosed) stored.close();
    return stored;
  }

  /** The next look reads the store in any case: a login may just have ended. */
  #watch(): void {
    this.#version = undefined;
    if (this.#isClosed) return;
    this.#cancelPoll ??= this.#pollLater();
  }

  #pollLater(): Cancel {
    const { clock } = this.#options;
    return clock.at(clock.nowMs() + pollMs, () => {
      try {
        this.#poll();
        this.#closeUnused();
      } catch (error) {
        this.#options.onProblem(error);
      }
      const isNeeded = [...this.#providers.keys()].some(({ isWatching }) => isWatching);
      this.#cancelPoll = isNeeded ? this.#pollLater() : undefined;
    });
  }

  #poll(): void {
    const version = this.#open(false)?.dataVersion() ?? 'none';
    if (version === this.#version) return;
    for (const provider of [...this.#providers.keys()]) provider.reload();
    // Set after the loop, because `reload` of a provider can reset it.
    this.#version = version;
  }

  #release(provider: OAuthProvider): void {
    this.#providers.delete(provider);
    this.#closeUnused();
  }

  /** A grant that no server uses any more must not be refreshed: this host may lack its client, and others wait for its lease. */
  #closeUnused(): void {
    const used = new Set([...this.#providers.keys()].map(({ grantId }) => grantId));
    for (const [id, grant] of this.#grants) {
      if (used.has(id)) continue;
      grant.close();
      this.#grants.delete(id);
    }
  }
}

/** Some refusals only say that the authorization server has a fault of its own. */
function refusalOf(server: string, answer: TokenAnswer): HostError {
  if (answer.kind === 'unavailable') return noTokenNow(answer.retryAfterMs ?? soonMs, answer.reason);
  const word = answer.kind === 'refused' ? answer.error : 'token_invalid';
  const isPassing = word === 'temporarily_unavailable' || word === 'server_error';
  return isPassing ? noTokenNow(soonMs, word) : clientRefused(server, word);
}

const inodeOf = (file: string): number | undefined => statSync(file, { throwIfNoEntry: false })?.ino;
