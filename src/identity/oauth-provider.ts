/**
 * Tokens of one server over HTTP from identity.db: the AuthProvider of sessions. It reacts to 401 and 403, and never starts a login.
 * Not here: refreshing (grant.ts), one attempt for all requests (session/auth/auth-recovery.ts).
 *
 * Invariants: a token is used only for the URL that it was granted for. A background 401 registers no client and opens nothing.
 * The rules for scopes never ask for more than `auth.scopesMax`.
 */
import type { AuthSettings } from '../config/auth-settings.js';
import { setBounded } from '../kernel/bounded-map.js';
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import { KeyedMutex } from '../kernel/keyed-mutex.js';
import type { AuthStatus } from '../policy/policy-events.js';
import type { AuthAdvice, AuthDescription, AuthProvider, RecoverContext } from '../session/auth/auth-provider.js';
import type { AuthToken } from '../transports/http/auth-token.js';
import { bearerChallenge, missingScopes, scopesOf } from '../transports/http/challenges.js';
import type { Grant } from './grant.js';
import { type GrantRow, shownFacts, timeOf } from './grant-row.js';
import { clientRefused, noTokenNow, ofServer } from './identity-errors.js';

const stepUpsMax = 2;
const stepUpMs = 60 * 60_000;
/**
 * Limit of automatic step-ups of one server in `burstMs`. It counts step-ups for all scopes together: a server can ask for other scopes
 * each time.
 */
const stepUpsPerBurst = 4;
const burstMs = 10_000;
const stepUpsPerHour = 20;
const scopesCountMax = 100;
const tooManyScopes = `the server has asked for more than ${scopesCountMax} scopes; tell its operator`;
const advicesMax = 100;
/**
 * A caller stops waiting this long before its deadline and gets `reconnecting`. An attempt that still runs at the deadline would count as
 * failed, and the caller would be told to log in.
 */
const leaveMs = 1_000;
/**
 * After a server has named another authorization server, its metadata is not read again within this time. It is shorter than the time between
 * two probes of a server that needs a login.
 */
const movedMs = 4 * 60_000;

export interface ProviderParts {
  readonly clock: Clock;
  /** The newest grant for this server; undefined: none, or the store cannot be opened. */
  readonly find: () => Grant | undefined;
  /** `client_credentials`: obtains a grant for these scopes. */
  readonly acquire: (scopes: readonly string[], challenge: string | undefined) => Promise<Grant>;
  readonly addWanted: (row: GrantRow, scopes: readonly string[]) => Promise<void>;
  /** A login of this server waits for its person. */
  readonly isPending: () => boolean;
  readonly keySource: AuthDescription['store'];
  /** Error of the store, if it cannot be opened. */
  readonly storeError: () => HostError | undefined;
  /** Starts watching for logins and logouts of other processes. Called if this server needs a login, or has one that may end. */
  readonly watch: () => void;
  /** Called when the server has been removed. */
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
  /** What to do, by the scopes that a call needs. The entry '' is for a refused token. */
  readonly #advice = new Map<string, AuthAdvice>();
  #needsLogin = false;
  /** Automatic step-ups of the last hour (`client_credentials`). */
  #stepUps: { readonly set: string; readonly atMs: number }[] = [];
  /**
   * One attempt at a time: if two ran together, the grant of the second would replace that of the first and lack its scopes. An attempt
   * continues when its callers leave. The next attempt first checks whether it is still needed.
   */
  readonly #turns = new KeyedMutex();
  #movedUntilMs = 0;

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

  peek(): AuthToken | undefined {
    return this.#grant?.peek();
  }

  hasExpired(): boolean {
    return this.#grant?.hasExpired ?? false;
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

  advice(kind: RecoverContext['kind'], challenge?: string): AuthAdvice | undefined {
    return this.#advice.get(kind === 'token' ? '' : adviceKey(missingScopes(challenge)));
  }

  /** Looks for a login, a logout or a refresh of another process. */
  reload(): void {
    const before = this.#seen;
    this.#movedUntilMs = 0;
    this.#find();
    const row = this.#seen;
    if (row?.login === before?.login && row?.gen === before?.gen && row?.state === before?.state) return;
    if (row?.state === 'live') this.#advice.clear();
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

  async recover(failed: AuthToken | undefined, { kind, challenge, deadlineAtMs }: RecoverContext): Promise<boolean> {
    this.#find();
    const token = this.#grant?.token();
    // The token of another process may be for other scopes than this call needs.
    const isEnough = kind === 'token' || hasScopes(this.#grant?.row, missingScopes(challenge));
    if (token && isEnough && token.header[1] !== failed?.header[1]) return this.#renewed(true);
    const renewing = kind === 'scope' ? this.#stepUp(challenge) : this.#renew(challenge);
    return this.#within(renewing.then(this.#renewed), deadlineAtMs - leaveMs);
  }

  readonly #renewed = (isRenewed: boolean): boolean => {
    if (!isRenewed) return false;
    this.#setNeeded(false);
    this.#advice.clear();
    return true;
  };

  #within<T>(work: Promise<T>, untilMs: number): Promise<T> {
    const { clock } = this.#parts;
    return new Promise((resolve, reject) => {
      const late = () => reject(ofServer(this.server, noTokenNow(2_000, 'slow')));
      const cancel = clock.at(untilMs, late);
      work.finally(cancel).then(resolve, reject);
    });
  }

  async #renew(challenge: string | undefined): Promise<boolean> {
    const result = this.#grant && (await this.#refresh(this.#grant));
    if (result === 'renewed') return true;
    if (result === 'client_refused') {
      const { message, hint, details } = clientRefused(this.server, 'invalid_client');
      return this.#refuse(undefined, details.reason, `${message}; ${hint}`);
    }
    if (this.#auth.grant === 'client_credentials') {
      const named = scopesOf(bearerChallenge(challenge)?.params.get('scope'));
      if (!this.#auth.scopes && !this.#isAllowed(named)) return this.#refuseBeyondMax(undefined, named);
      const scopes = this.#auth.scopes ?? named;
      const sent = this.#grant?.peek();
      return this.#turns.runExclusive('', async () => {
        const now = this.#grant?.peek();
        return (now !== undefined && now !== sent) || this.#acquire(scopes, challenge);
      });
    }
    const locked = this.#parts.storeError();
    const reason = locked ? 'store_locked' : (this.#grant?.row.reason ?? 'login_needed');
    this.#setNeeded(true);
    return this.#refuse(undefined, reason, locked?.hint ?? this.#loginHint());
  }

  #refresh(grant: Grant) {
    return grant.refresh().catch((error: unknown) => {
      if (!(error instanceof HostError)) throw error;
      throw ofServer(this.server, error);
    });
  }

  async #acquire(scopes: readonly string[], challenge: string | undefined): Promise<boolean> {
    const { clock } = this.#parts;
    if (clock.nowMs() < this.#movedUntilMs) return false;
    try {
      const { scopesMax } = this.#auth;
      const allowed = scopesMax ? scopes.filter((scope) => scopesMax.includes(scope)) : scopes;
      const grant = await this.#parts.acquire(allowed, challenge);
      this.#grant = grant;
      this.#seen = grant.row;
      this.#parts.watch();
      // The callers may have left.
      this.#tell();
      return true;
    } catch (error) {
      if (!(error instanceof HostError)) throw error;
      if (error.code === 'reconnecting') throw ofServer(this.server, error);
      const { reason } = error.details;
      if (reason === 'issuer_changed') {
        this.#onNews('issuer_changed');
        this.#movedUntilMs = clock.nowMs() + movedMs;
      }
      return this.#refuse(undefined, reason, `${error.message}${error.hint === undefined ? '' : `; ${error.hint}`}`);
    }
  }

  async #stepUp(challenge: string | undefined): Promise<boolean> {
    const asked = missingScopes(challenge);
    const row = this.#grant?.row;
    if (!row) return this.#renew(challenge);
    const list = asked.join(' ');
    const refuse = (reason: string, hint: string) => this.#refuse(asked, reason, hint);
    if (asked.length === 0)
      return refuse(
        'insufficient_scope',
        `the server does not say which scopes the call needs; run: hostler login ${this.server} --scopes "…"`,
      );
    if (hasScopes(row, asked))
      return refuse('scope_not_honoured', `the server refuses scopes that the token has (${list}); tell its operator`);
    if (!this.#isAllowed(asked)) return this.#refuseBeyondMax(asked, asked);
    if (this.#auth.grant === 'client_credentials')
      return this.#turns.runExclusive('', () => this.#stepUpAlone(asked, challenge));
    const union = unionOf(row, asked);
    if (union.length > scopesCountMax) return this.#refuse(asked, 'scope_denied', tooManyScopes);
    if (!asked.every((scope) => row.wanted.includes(scope))) this.#onNews('step_up');
    const nowMs = this.#parts.clock.date().getTime();
    const before = row.facts.asked.filter(
      ({ scopes, atMs }) => Math.abs(nowMs - atMs) < stepUpMs && asked.every((scope) => scopes.includes(scope)),
    );
    if (before.length >= stepUpsMax) return this.#denied(asked);
    await this.#parts.addWanted(row, union);
    this.#grant?.reload();
    this.#setNeeded(true);
    return refuse('insufficient_scope', `the call needs the scopes ${list}: run: hostler login ${this.server}`);
  }

  /** The attempt before may have changed the grant, so its scopes are read only now. */
  async #stepUpAlone(asked: readonly string[], challenge: string | undefined): Promise<boolean> {
    const row = this.#grant?.row;
    if (!row) return false;
    if (hasScopes(row, asked)) return true;
    const union = unionOf(row, asked);
    if (union.length > scopesCountMax) return this.#refuse(asked, 'scope_denied', tooManyScopes);
    const nowMs = this.#parts.clock.nowMs();
    const set = asked.join(' ');
    this.#stepUps = this.#stepUps.filter(({ atMs }) => nowMs - atMs < stepUpMs);
    if (this.#stepUps.filter((each) => each.set === set).length >= stepUpsMax) return this.#denied(asked);
    const burst = this.#stepUps.filter(({ atMs }) => nowMs - atMs < burstMs);
    if (burst.length >= stepUpsPerBurst || this.#stepUps.length >= stepUpsPerHour)
      return this.#refuse(asked, 'scope_denied', 'the server asks for other scopes too often; tell its operator');
    this.#stepUps.push({ set, atMs: nowMs });
    this.#onNews('step_up');
    return this.#acquire(union, challenge);
  }

  #isAllowed(scopes: readonly string[]): boolean {
    const { scopesMax } = this.#auth;
    return !scopesMax || scopes.every((scope) => scopesMax.includes(scope));
  }

  #refuseBeyondMax(asked: readonly string[] | undefined, wanted: readonly string[]): false {
    const hint = `the server wants ${wanted.join(' ')}, which auth.scopesMax does not allow`;
    return this.#refuse(asked, 'scope_ceiling', hint);
  }

  #denied(asked: readonly string[]): boolean {
    return this.#refuse(
      asked,
      'scope_denied',
      `the authorization server does not grant ${asked.join(' ')}; if that has changed, run: hostler login ${this.server}`,
    );
  }

  /** `asked`: the scopes that the refused call needs; undefined: the token was refused. */
  #refuse(asked: readonly string[] | undefined, reason: string | undefined, hint: string): false {
    setBounded(this.#advice, asked === undefined ? '' : adviceKey(asked), { reason, hint }, advicesMax);
    return false;
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
    const own = stateOf(grant);
    const isLacking = own === 'none' || own === 'dead' || own === 'step_up';
    const next = this.#needsLogin || (isLacking && own !== 'none') ? this.#loginHint() : undefined;
    const isPending = isLacking && this.#auth.grant === 'code' && this.#parts.isPending();
    return {
      state: locked ? 'locked' : isPending ? 'pending' : own,
      needsLogin: next !== undefined,
      grant: this.#auth.grant === 'client_credentials' ? 'client_credentials' : 'code',
      refreshes: { ...this.#refreshes },
      ...(row && {
        ...shownFacts(row),
        resourceMetadata: row.facts.resourceMetadata,
        wanted: own === 'step_up' ? row.wanted : undefined,
        refreshAt: timeOf(grant?.refreshAtMs),
        lastRefreshAt: timeOf(row.facts.refreshedMs),
      }),
      ...(locked && { lastError: { reason: 'store_locked', at: this.#parts.clock.date().toISOString() } }),
      store: this.#parts.keySource,
      next: locked?.hint ?? next,
    };
  }
}

function stateOf(grant: Grant | undefined): AuthDescription['state'] {
  if (!grant) return 'none';
  if (grant.row.state === 'dead') return 'dead';
  if (grant.isRefreshing) return 'refreshing';
  return hasScopes(grant.row, grant.row.wanted) ? 'granted' : 'step_up';
}

const hasScopes = (row: GrantRow | undefined, asked: readonly string[]): boolean =>
  asked.every((scope) => row?.scopes.includes(scope));

const unionOf = ({ scopes, wanted }: GrantRow, asked: readonly string[]): string[] => [
  ...new Set([...scopes, ...wanted, ...asked]),
];

const adviceKey = (scopes: readonly string[]): string => `scopes ${scopes.join(' ')}`;
