/**
 * One grant in one process: holds the current token, refreshes it ahead of time, and shares the work with other processes by the
 * lease of identity.db.
 * Not here: 401 and 403 of a server (oauth-provider.ts), the login (login.ts).
 *
 * Invariants: one request per generation (grant-row.ts) over all processes, unless a process died with the lease. A new token is
 * durable before it is used, unless the disk refuses it for 20 s; then it is stored as soon as possible. Only the answers listed in
 * `#settle` end a grant; any other answer leaves it as it is. After an error of `refresh`, another attempt is always planned.
 */
import { type Cancel, type Clock, sleep } from '../kernel/clock.js';
import { type HostError, isHostError } from '../kernel/errors.js';
import { NewestSecrets, type SecretSink } from '../kernel/newest-secrets.js';
import type { Random } from '../kernel/random.js';
import type { AuthToken } from '../transports/http/auth-token.js';
import { scopesOf } from '../transports/http/challenges.js';
import type { GrantRow, GrantTokens } from './grant-row.js';
import { noTokenNow } from './identity-errors.js';
import type { IdentityStore } from './identity-store.js';
import { isHolderGone, newHolder } from './lease-holder.js';
import { isBusy, storePatiently } from './open-store.js';
import { refreshAtMs, retryDelayMs, retryWaitMs } from './refresh-timing.js';
import { isClientRefusal, type TokenAnswer } from './token-endpoint.js';

const refusalsMax = 3;
const refusalsMsMin = 10 * 60_000;
/** Idle grants are refreshed too, because a refresh token may lapse. */
const idleRefreshMs = 24 * 3_600_000;
const waitMsMax = 15_000;
const storeMsMax = 20_000;
/** Time between two attempts to store a token that the disk refused, and to take a lease that another process holds. */
const againMs = 2_000;
/** A configured client that was refused is not asked for again within this time, so calls do not repeat it. */
const clientRefusedMs = 60_000;
const redactedMax = 8;

/** `refused`: the grant cannot be renewed. `client_refused`: the client of the configuration is wrong; the grant stays as it is. */
export type RefreshResult = 'renewed' | 'dead' | 'refused' | 'client_refused';

export interface GrantParts {
  readonly store: IdentityStore;
  readonly clock: Clock;
  readonly random: Random;
  /** Sends the request that renews this row. */
  readonly request: (row: GrantRow) => Promise<TokenAnswer>;
  /** Revokes tokens that have arrived for this row. */
  readonly revoke: (row: GrantRow, tokens: Pick<GrantTokens, 'accessToken' | 'refreshToken'>) => Promise<unknown>;
  readonly secrets: SecretSink;
  readonly onChange: () => void;
  readonly onRefresh: (result: string) => void;
  readonly onProblem: (error: unknown) => void;
}

export class Grant {
  readonly #parts: GrantParts;
  readonly #holder = newHolder();
  readonly #redacted: NewestSecrets;
  #row: GrantRow;
  #token: AuthToken | undefined;
  #refreshing: Promise<RefreshResult> | undefined;
  /** The refresh under way has a caller whose token was refused. */
  #isRefused = false;
  #refreshAtMs: number | undefined;
  #isUsed = false;
  #isDue = false;
  #cancel: Cancel = () => {};
  #isClosed = false;
  /** Stores the token that only this process has. */
  #unsaved: (() => boolean) | undefined;
  #clientRefusedUntilMs = 0;

  constructor(row: GrantRow, parts: GrantParts) {
    this.#parts = parts;
    this.#redacted = new NewestSecrets(parts.secrets, redactedMax);
    this.#row = row;
    this.#adopt(row);
  }

  get row(): GrantRow {
    return this.#row;
  }

  get isRefreshing(): boolean {
    return this.#refreshing !== undefined;
  }

  get refreshAtMs(): number | undefined {
    return this.#refreshAtMs;
  }

  /** The lifetime of the current token is over. */
  get hasExpired(): boolean {
    const { expiresMs } = this.#row;
    return expiresMs !== undefined && expiresMs <= this.#parts.clock.date().getTime();
  }

  /** The token of the next request. Called for each request. */
  token(): AuthToken | undefined {
    this.#isUsed = true;
    if (this.#isDue) {
      this.#isDue = false;
      void this.refresh(true).catch(this.#parts.onProblem);
    }
    return this.#token;
  }

  /** The token of the next request, without counting as a use of the token. */
  peek(): AuthToken | undefined {
    return this.#token;
  }

  close(): void {
    this.#isClosed = true;
    this.#cancel();
    this.#saveAgain();
  }

  /** Reads the row again. True: there is another token. */
  reload(): boolean {
    const before = this.#row;
    if (this.#unsaved) this.#saveAgain();
    const row = this.#parts.store.readGrant(before.id);
    if (!row) return this.#drop();
    const isLogin = row.login !== before.login;
    // The refresh token on the disk is spent.
    if (this.#unsaved && !isLogin && row.gen < before.gen) return false;
    this.#unsaved = undefined;
    const isToken = isLogin || row.accessToken !== before.accessToken;
    if (isToken || row.gen !== before.gen || row.state !== before.state) this.#adopt(row);
    else this.#row = row;
    return isToken && this.#token !== undefined;
  }

  /** Renews the token. Throws `reconnecting` if no token can be obtained now. `isAhead`: no request was refused with the token. */
  refresh(isAhead = false): Promise<RefreshResult> {
    if (!isAhead) this.#isRefused = true;
    this.#refreshing ??= this.#refresh()
      .catch((error: unknown) => {
        if (isHostError(error)) throw error;
        // The disk may be full, for example: a login would not help.
        this.#parts.onProblem(error);
        throw this.#later(againMs);
      })
      .finally(() => {
        this.#refreshing = undefined;
        this.#isRefused = false;
      });
    return this.#refreshing;
  }

  async #refresh(): Promise<RefreshResult> {
    const { store, clock, random } = this.#parts;
    const deadlineAtMs = clock.nowMs() + waitMsMax;
    const { gen } = this.#row;
    for (;;) {
      if (this.reload()) return 'renewed';
      const row = this.#row;
      // Another process has refreshed, and its answer had the same access token, which is still valid.
      if (row.gen !== gen && row.state === 'live' && !this.#isRefused) return 'renewed';
      if (row.state === 'dead') return 'dead';
      if (row.facts.grantType === 'code' && row.refreshToken === undefined) return 'refused';
      const nowMs = clock.date().getTime();
      if (this.#unsaved) throw this.#later(againMs);
      const waitMs = retryWaitMs(row.retryMs, nowMs);
      if (waitMs > 0) throw this.#later(waitMs);
      if (this.#clientRefusedUntilMs > clock.nowMs()) return 'client_refused';
      // Send the row that `takeLease` returns: only this row says whether a process has left its lease behind.
      const leased = this.#busy(() => store.takeLease(row, this.#holder, nowMs, isHolderGone));
      if (leased) return this.#send(leased);
      if (clock.nowMs() >= deadlineAtMs) throw this.#later(againMs);
      await sleep(clock, 20 + 20 * random());
    }
  }

  /** Undefined: the database is locked. The caller tries again, as with a lease of another process. */
  #busy<T>(change: () => T): T | undefined {
    try {
      return change();
    } catch (error) {
      if (isBusy(error)) return undefined;
      throw error;
    }
  }

  async #send(row: GrantRow): Promise<RefreshResult> {
    const { request } = this.#parts;
    const answer = await request(row).catch((error: unknown): TokenAnswer => {
      this.#parts.onProblem(error);
      return { kind: 'unavailable', reason: 'request_failed', isSent: false, retryAfterMs: undefined };
    });
    return this.#settle(row, answer);
  }

  async #settle(row: GrantRow, answer: TokenAnswer): Promise<RefreshResult> {
    const { clock, onRefresh } = this.#parts;
    const nowMs = clock.date().getTime();
    if (answer.kind === 'tokens' && (answer.accessToken || answer.refreshToken)) return this.#store(row, answer, nowMs);
    const isEmpty = answer.kind === 'tokens';
    const reason = isEmpty ? 'token_invalid' : answer.kind === 'refused' ? answer.error : answer.reason;
    // An answer without a token, such as JSON of a proxy, may have used the refresh token all the same.
    const isSent = isEmpty || (answer.kind === 'unavailable' && answer.isSent);
    onRefresh(answer.kind === 'refused' ? answer.error : 'unavailable');
    if (reason === 'invalid_grant') return this.#end(row, row.isInterrupted ? 'refresh_interrupted' : 'grant_revoked');
    if (isClientRefusal(answer)) {
      if (row.facts.way === 'configured') return this.#refuseClient(row, reason, nowMs);
      this.#parts.store.clientGone(row.issuer, row.clientId);
      return this.#end(row, 'client_gone');
    }
    const refusedMs = answer.kind === 'refused' ? (row.refusedMs ?? nowMs) : row.refusedMs;
    const failures = row.failures + 1;
    const isLive = row.expiresMs !== undefined && row.expiresMs > nowMs;
    if (
      answer.kind === 'refused' &&
      !isLive &&
      failures >= refusalsMax &&
      nowMs - (refusedMs ?? nowMs) >= refusalsMsMin
    )
      return this.#end(row, 'grant_refused');
    const retryAfterMs = answer.kind === 'unavailable' ? answer.retryAfterMs : undefined;
    const delayMs = retryDelayMs(failures, retryAfterMs, this.#parts.random);
    const isInterrupted = row.isInterrupted || isSent;
    await this.#persist(() =>
      this.#parts.store.noteFailure(row, this.#holder, {
        ...{ failures, retryMs: Math.ceil(nowMs + delayMs), refusedMs, isInterrupted },
        lastError: { reason, atMs: nowMs },
      }),
    );
    this.reload();
    throw this.#later(delayMs);
  }

  /** The secret may be wrong in this configuration only, or may just be rotated: other processes keep the grant as it is. */
  async #refuseClient(row: GrantRow, reason: string, nowMs: number): Promise<RefreshResult> {
    const { clock } = this.#parts;
    this.#clientRefusedUntilMs = clock.nowMs() + clientRefusedMs;
    const lastError = { reason, atMs: nowMs };
    await this.#persist(() => this.#parts.store.noteFailure(row, this.#holder, { ...row, lastError }));
    this.reload();
    this.#plan(this.#clientRefusedUntilMs - clock.nowMs());
    return 'client_refused';
  }

  async #store(row: GrantRow, answer: TokenAnswer & { kind: 'tokens' }, nowMs: number): Promise<RefreshResult> {
    const { accessToken, refreshToken = row.refreshToken, expiresInS, scope } = answer;
    for (const secret of [accessToken, refreshToken]) if (secret) this.#redacted.add(secret);
    const isUsable = accessToken !== '';
    // Without a new access token the one before is used until it ends.
    const tokens: GrantTokens = {
      ...{ accessToken: isUsable ? accessToken : row.accessToken, refreshToken },
      scopes: isUsable && scope !== undefined ? scopesOf(scope) : row.scopes,
      issuedMs: isUsable ? nowMs : row.issuedMs,
      expiresMs: isUsable ? expiresInS && nowMs + expiresInS * 1_000 : row.expiresMs,
    };
    const { lastError: _gone, ...facts } = row.facts;
    // Without a usable access token, the refresh token is stored, but the next request waits as after any other failure.
    const failures = isUsable ? 0 : row.failures + 1;
    const delayMs = isUsable ? 0 : retryDelayMs(failures, undefined, this.#parts.random);
    const retryMs = isUsable ? 0 : Math.ceil(nowMs + delayMs);
    const write = () => {
      const { store, revoke, onProblem } = this.#parts;
      if (store.advance(row, tokens, { ...facts, refreshedMs: nowMs }, { failures, retryMs })) return true;
      // After a logout, which could revoke only the earlier tokens. Not after another login: this could end the new login too.
      if (!store.readGrant(row.id)) void revoke(row, answer).catch(onProblem);
      return false;
    };
    if ((await this.#persist(write)) === undefined) {
      // The old refresh token is spent, so this one must be used.
      this.#unsaved = write;
      this.#adopt({ ...row, ...tokens, ...{ gen: row.gen + 1, state: 'live', reason: undefined, failures, retryMs } });
      this.#saveLater();
    } else this.reload();
    this.#parts.onRefresh(isUsable ? 'ok' : 'unavailable');
    this.#parts.onChange();
    if (isUsable && this.#token) return 'renewed';
    throw this.#later(Math.max(delayMs, againMs));
  }

  #saveAgain(): void {
    try {
      this.#unsaved?.();
      this.#unsaved = undefined;
    } catch {
      // Reported once, by `#persist`.
    }
  }

  #saveLater(): void {
    const { clock } = this.#parts;
    clock.at(clock.nowMs() + againMs, () => {
      if (this.#isClosed || !this.#unsaved) return;
      this.#saveAgain();
      this.#saveLater();
    });
  }

  async #end(row: GrantRow, reason: string): Promise<RefreshResult> {
    const nowMs = this.#parts.clock.date().getTime();
    const isDead = await this.#persist(() => this.#parts.store.markDead(row, this.#holder, reason, nowMs));
    const isNewer = this.reload();
    this.#parts.onChange();
    if (isNewer) return 'renewed';
    // Another process has the lease, so its answer decides.
    if (isDead === false && this.#row.state === 'live') throw this.#later(againMs);
    return 'dead';
  }

  /** Tries the write until it succeeds. Undefined: it did not succeed within `storeMsMax`. */
  #persist<T>(change: () => T): Promise<T | undefined> {
    const { clock, onProblem } = this.#parts;
    return storePatiently(clock, change, { limitMs: storeMsMax, isPassing: () => true }).catch((error: unknown) => {
      onProblem(error);
      return undefined;
    });
  }

  #adopt(row: GrantRow): void {
    const { random, clock } = this.#parts;
    const isNew = row.gen !== this.#row.gen || row.login !== this.#row.login || this.#token === undefined;
    this.#row = row;
    this.#isDue = false;
    this.#cancel();
    // A grant that cannot be renewed any more still has its token until the token ends.
    const isOver = row.state === 'dead' && (row.expiresMs ?? 0) <= clock.date().getTime();
    if (isOver || row.accessToken === '') this.#token = undefined;
    else if (isNew) this.#token = { header: ['authorization', `Bearer ${row.accessToken}`], grant: row.login };
    for (const secret of [row.accessToken, row.refreshToken]) if (secret) this.#redacted.add(secret);
    this.#refreshAtMs = row.state === 'dead' ? undefined : refreshAtMs(row.issuedMs, row.expiresMs, random);
    const canRefresh = row.facts.grantType === 'client_credentials' || row.refreshToken !== undefined;
    if (this.#refreshAtMs === undefined || !canRefresh) return;
    this.#isUsed = false;
    const nowMs = clock.date().getTime();
    this.#plan(Math.max(0, this.#refreshAtMs - nowMs, retryWaitMs(row.retryMs, nowMs)));
  }

  #plan(delayMs: number): void {
    const { clock } = this.#parts;
    if (this.#isClosed) return;
    this.#cancel();
    this.#cancel = clock.at(clock.nowMs() + delayMs, () => this.#due());
  }

  /** A token that no request has used is refreshed by its next use, or after a day. */
  #due(): void {
    if (this.#isUsed) return void this.refresh(true).catch(() => {});
    this.#isDue = true;
    const { clock } = this.#parts;
    const idleAtMs = this.#row.issuedMs + idleRefreshMs;
    const delayMs = Math.max(60_000, idleAtMs - clock.date().getTime());
    this.#cancel = clock.at(clock.nowMs() + delayMs, () => void this.refresh(true).catch(() => {}));
  }

  #drop(): boolean {
    this.#token = undefined;
    this.#cancel();
    this.#unsaved = undefined;
    this.#row = { ...this.#row, state: 'dead', reason: 'logged_out' };
    return false;
  }

  /** The error for callers. A later attempt is planned. */
  #later(delayMs: number): HostError {
    this.#plan(delayMs);
    return noTokenNow(delayMs, this.#row.facts.lastError?.reason ?? 'waiting');
  }
}
