/**
 * Tokens of one server over HTTP from identity.db: the AuthProvider of sessions. It reacts to 401 and 403, and never starts a login.
 * Not here: refreshing (grant.ts), one attempt for all requests (session/auth/auth-recovery.ts).
 *
 * Invariants: a token is used only for the URL that it was granted for. A background 401 registers no client and opens nothing.
 * The rules for scopes never ask for more than `auth.scopesMax`.
 */
import { createHash } from 'node:crypto';
import type { AuthSettings } from '../config/auth-settings.js';
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import type { AuthStatus } from '../policy/policy-events.js';
import type { AuthAdvice, AuthDescription, AuthProvider, RecoverContext } from '../session/auth/auth-provider.js';
import type { AuthToken } from '../transports/http/auth-token.js';
import { bearerChallenge, parseChallenges, scopesOf } from '../transports/http/challenges.js';
import type { Grant } from './grant.js';
import type { GrantRow } from './grant-row.js';

const stepUpsMax = 2;
const stepUpMs = 60 * 60_000;
const scopesCountMax = 100;

export interface ProviderParts {
  readonly clock: Clock;
  /** The newest grant for this server; undefined: none, or the store cannot be opened. */
  readonly find: () => Grant | undefined;
  /** `client_credentials`: obtains a grant for these scopes. */
  readonly acquire: (scopes: readonly string[], challenge: string | undefined) => Promise<Grant>;
  readonly setWanted: (row: GrantRow, wanted: readonly string[]) => void;
  /** Error of the store, if it cannot be opened. */
  readonly storeError: () => HostError | undefined;
  /** Called when logins of other processes have begun to matter: a login is needed, or there is one that may end. */
  readonly watch: () => void;
  /** Called when the server is gone. */
  readonly release: (provider: OAuthProvider) => void;
}

export class OAuthProvider implements AuthProvider {
  readonly server: string;
  readonly #auth: AuthSettings;
  readonly #parts: ProviderParts;
  readonly #listeners = new Set<() => void>();
  readonly #refreshes: Record<string, number> = {};
  #onNews: (news: AuthStatus) => void = () => {};
  #grant: Grant | undefined;
  /** The row at the last look. */
  #seen: GrantRow | undefined;
  #advice: { readonly token?: AuthAdvice; readonly scope?: AuthAdvice } = {};
  #needsLogin = false;
  /** Times of automatic step-ups by scope set (`client_credentials`). */
  readonly #stepUps = new Map<string, number[]>();
  /** Credentials that the authorization server has refused: they are not sent again. */
  #refusedWith: string | undefined;

  constructor(server: string, auth: AuthSettings, parts: ProviderParts) {
    this.server = server;
    this.#auth = auth;
    this.#parts = parts;
    this.#grant = parts.find();
    this.#seen = this.#grant?.row;
  }

  get grantId(): string | undefined {
    return this.#grant?.row.id;
  }

  /** True while a change of the store by another process matters. */
  get isWatching(): boolean {
    return this.#needsLogin || this.#grant !== undefined;
  }

  current(): AuthToken | undefined {
    return this.#grant?.token();
  }

  identity(): string | undefined {
    return this.#grant?.row.facts.identity;
  }

  onNews(listener: (news: AuthStatus) => void): void {
    this.#onNews = listener;
  }

  onChanged(listener: () => void): () => void {
    this.#listeners.add(listener);
    if (this.isWatching) this.#parts.watch();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.#parts.release(this);
    };
  }

  advice(kind: RecoverContext['kind']): AuthAdvice | undefined {
    return this.#advice[kind];
  }

  /** Looks for a login, a logout or a refresh of another process. */
  reload(): void {
    const before = this.#seen;
    this.#find();
    const row = this.#seen;
    if (row?.login === before?.login && row?.gen === before?.gen && row?.state === before?.state) return;
    if (row?.state === 'live') this.#advice = {};
    this.#setNeeded(!row || (row.wanted.length > 0 && row.login === before?.login));
    this.#tell();
  }

  /** Called when this process has renewed or ended the grant. */
  changed(): void {
    this.#notice();
    this.#tell();
  }

  #tell(): void {
    for (const listener of [...this.#listeners]) listener();
  }

  #find(): void {
    this.#grant?.reload();
    this.#grant = this.#parts.find();
    this.#notice();
    if (this.isWatching) this.#parts.watch();
  }

  /** Reports what has happened to the grant since the last look. Several servers may share the grant, so each has a look of its own. */
  #notice(): void {
    const [before, row] = [this.#seen, this.#grant?.row];
    this.#seen = row;
    if (row && row.login !== before?.login) this.#onNews('login');
    else if (before && !row) this.#onNews('logout');
    else if (row?.state === 'dead' && before?.state === 'live') this.#onNews('dead');
  }

  /** Counts a refresh request of this host. `ok`: it succeeded. */
  refreshed(result: string): void {
    this.#refreshes[result] = (this.#refreshes[result] ?? 0) + 1;
    if (result === 'ok') this.#onNews('refreshed');
  }

  async recover(failed: AuthToken | undefined, { kind, challenge }: RecoverContext): Promise<boolean> {
    this.#find();
    const token = this.#grant?.token();
    if (token && token.header[1] !== failed?.header[1]) return true;
    const isRenewed = kind === 'scope' ? await this.#stepUp(challenge) : await this.#renew(challenge);
    if (isRenewed) {
      this.#setNeeded(false);
      this.#advice = {};
    }
    return isRenewed;
  }

  async #renew(challenge: string | undefined): Promise<boolean> {
    if (this.#grant && (await this.#refresh(this.#grant)) === 'renewed') return true;
    if (this.#auth.grant === 'client_credentials') {
      const asked = scopesOf(bearerChallenge(challenge)?.params.get('scope'));
      return this.#acquire(this.#auth.scopes ?? asked, challenge);
    }
    const locked = this.#parts.storeError();
    const reason = locked ? 'store_locked' : (this.#grant?.row.reason ?? 'login_needed');
    this.#advise('token', reason, locked?.hint ?? this.#loginHint());
    this.#setNeeded(true);
    return false;
  }

  #refresh(grant: Grant) {
    return grant.refresh().catch((error: unknown) => {
      if (!(error instanceof HostError)) throw error;
      throw error.with({ message: `server '${this.server}': ${error.message}`, server: this.server });
    });
  }

  async #acquire(scopes: readonly string[], challenge: string | undefined): Promise<boolean> {
    const { clientId, clientSecret, clientKey, issuer } = this.#auth;
    const used = hashOf([clientId, clientSecret, clientKey, issuer, scopes]);
    if (used === this.#refusedWith) return false;
    try {
      const grant = await this.#parts.acquire(scopes, challenge);
      this.#grant = grant;
      this.#seen = grant.row;
      this.#parts.watch();
      return true;
    } catch (error) {
      if (!(error instanceof HostError) || error.code === 'reconnecting') throw error;
      if (error.details.reason === 'issuer_changed') this.#onNews('issuer_changed');
      this.#refusedWith = used;
      this.#advise(
        'token',
        error.details.reason,
        `${error.message}${error.hint === undefined ? '' : `; ${error.hint}`}`,
      );
      return false;
    }
  }

  async #stepUp(challenge: string | undefined): Promise<boolean> {
    const refused = parseChallenges(challenge).find(({ params }) => params.get('error') === 'insufficient_scope');
    const asked = scopesOf(refused?.params.get('scope'));
    const row = this.#grant?.row;
    if (!row) return this.#renew(challenge);
    const { scopesMax } = this.#auth;
    const list = asked.join(' ');
    if (asked.every((scope) => row.scopes.includes(scope)))
      return this.#refuse(
        'scope_not_honoured',
        `the server refuses scopes that the token has (${list}); tell its operator`,
      );
    if (scopesMax && !asked.every((scope) => scopesMax.includes(scope)))
      return this.#refuse('scope_ceiling', `the server wants ${list}, which auth.scopesMax does not allow`);
    const union = [...new Set([...row.scopes, ...row.wanted, ...asked])];
    if (union.length > scopesCountMax)
      return this.#refuse(
        'scope_denied',
        `the server has asked for more than ${scopesCountMax} scopes; tell its operator`,
      );
    if (!asked.every((scope) => row.wanted.includes(scope))) this.#onNews('step_up');
    const nowMs = this.#parts.clock.date().getTime();
    if (this.#auth.grant === 'client_credentials') {
      if (!this.#mayStepUp(list, nowMs)) return this.#denied(list);
      return this.#acquire(union, challenge);
    }
    const before = row.facts.asked.filter(
      ({ scopes, atMs }) => nowMs - atMs < stepUpMs && asked.every((scope) => scopes.includes(scope)),
    );
    if (before.length >= stepUpsMax) return this.#denied(list);
    this.#parts.setWanted(row, union);
    this.#grant?.reload();
    this.#setNeeded(true);
    return this.#refuse('insufficient_scope', `the call needs the scopes ${list}: run: hostler login ${this.server}`);
  }

  #mayStepUp(set: string, nowMs: number): boolean {
    const times = (this.#stepUps.get(set) ?? []).filter((atMs) => nowMs - atMs < stepUpMs);
    if (this.#stepUps.size > 100) this.#stepUps.clear();
    this.#stepUps.set(set, [...times, nowMs]);
    return times.length < stepUpsMax;
  }

  #denied(list: string): boolean {
    return this.#refuse(
      'scope_denied',
      `the authorization server does not grant ${list}; if that has changed, run: hostler login ${this.server}`,
    );
  }

  #refuse(reason: string, hint: string): boolean {
    this.#advise('scope', reason, hint);
    return false;
  }

  #advise(kind: RecoverContext['kind'], reason: string | undefined, hint: string): void {
    this.#advice = { ...this.#advice, [kind]: { reason, hint } };
  }

  #loginHint(): string {
    return `run: hostler login ${this.server}`;
  }

  #setNeeded(isNeeded: boolean): void {
    this.#needsLogin = isNeeded;
    if (isNeeded) this.#parts.watch();
  }

  describe(): AuthDescription {
    const locked = this.#parts.storeError();
    const grant = this.#grant;
    const row = grant?.row;
    const state = locked
      ? 'locked'
      : !row
        ? 'none'
        : row.state === 'dead'
          ? 'dead'
          : grant?.isRefreshing
            ? 'refreshing'
            : row.wanted.some((scope) => !row.scopes.includes(scope))
              ? 'step_up'
              : 'granted';
    const next = this.#needsLogin || state === 'dead' || state === 'step_up' ? this.#loginHint() : undefined;
    const time = (atMs: number | undefined) => (atMs === undefined ? undefined : new Date(atMs).toISOString());
    return {
      state,
      needsLogin: next !== undefined,
      grant: this.#auth.grant === 'client_credentials' ? 'client_credentials' : 'code',
      refreshes: { ...this.#refreshes },
      ...(row && {
        issuer: row.issuer,
        resource: row.resource,
        resourceMetadata: row.facts.resourceMetadata,
        registration: row.facts.way,
        clientId: row.clientId,
        identity: row.facts.identity,
        scopes: row.scopes,
        wanted: state === 'step_up' ? row.wanted : undefined,
        expiresAt: time(row.expiresMs),
        refreshAt: time(grant?.refreshAtMs),
        lastRefreshAt: time(row.facts.refreshedMs),
        lastError: row.facts.lastError && {
          reason: row.facts.lastError.reason,
          at: time(row.facts.lastError.atMs) ?? '',
        },
      }),
      ...(locked && { lastError: { reason: 'store_locked', at: time(this.#parts.clock.date().getTime()) ?? '' } }),
      next: locked?.hint ?? next,
    };
  }
}

const hashOf = (parts: unknown): string => createHash('sha256').update(JSON.stringify(parts)).digest('base64url');
