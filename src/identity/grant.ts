/**
 * One grant in one process: holds the current token, refreshes it ahead of time, and shares the work with other processes by the
 * lease of identity.db.
 * Not here: 401 and 403 of a server (oauth-provider.ts), the login (login.ts).
 *
 * Invariants: one request per generation over all processes, unless a process died with the lease. A new token is durable before
 * it is used. Only the answers listed in `#settle` end a grant; any other answer leaves it as it is.
 */
import { sqliteCode } from '../catalog/store/database-file.js';
import { type Cancel, type Clock, sleep } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import type { Random } from '../kernel/random.js';
import type { AuthToken } from '../transports/http/auth-token.js';
import { scopesOf } from '../transports/http/challenges.js';
import type { GrantRow } from './grant-row.js';
import type { IdentityStore } from './identity-store.js';
import { isHolderGone, newHolder } from './lease-holder.js';
import { refreshAtMs, retryDelayMs } from './refresh-timing.js';
import type { TokenAnswer } from './token-endpoint.js';

const refusalsMax = 3;
const refusalsMsMin = 10 * 60_000;
/** Idle grants are refreshed too, because a refresh token may lapse. */
const idleRefreshMs = 24 * 3_600_000;
const waitMsMax = 15_000;
const storeMsMax = 20_000;
const redactedMax = 8;

export type RefreshResult = 'renewed' | 'current' | 'dead' | 'refused';

export interface GrantParts {
  readonly store: IdentityStore;
  readonly clock: Clock;
  readonly random: Random;
  /** Sends the request that renews this row. */
  readonly request: (row: GrantRow) => Promise<TokenAnswer>;
  readonly secrets: { know(value: string): void; forget(value: string): void };
  readonly onChange: () => void;
  readonly onRefresh: (result: string) => void;
  readonly onProblem: (error: unknown) => void;
}

export class Grant {
  readonly #parts: GrantParts;
  readonly #holder = newHolder();
  #row: GrantRow;
  #token: AuthToken | undefined;
  #refreshing: Promise<RefreshResult> | undefined;
  #refreshAtMs: number | undefined;
  #isUsed = false;
  #isDue = false;
  #cancel: Cancel = () => {};
  #known: string[] = [];
  #isClosed = false;

  constructor(row: GrantRow, parts: GrantParts) {
    this.#parts = parts;
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

  /** The token of the next request. Called for each request. */
  token(): AuthToken | undefined {
    this.#isUsed = true;
    if (this.#isDue) {
      this.#isDue = false;
      void this.refresh().catch(this.#parts.onProblem);
    }
    return this.#token;
  }

  close(): void {
    this.#isClosed = true;
    this.#cancel();
  }

  /** Reads the row again. True: there is another token. */
  reload(): boolean {
    const row = this.#parts.store.readGrant(this.#row.id);
    if (!row) return this.#drop();
    const isNew = row.gen !== this.#row.gen || row.login !== this.#row.login;
    if (isNew || row.state !== this.#row.state) this.#adopt(row);
    else this.#row = row;
    return isNew && this.#token !== undefined;
  }

  /** Renews the token. Throws `reconnecting` if the authorization server cannot be reached now. */
  refresh(): Promise<RefreshResult> {
    this.#refreshing ??= this.#refresh().finally(() => {
      this.#refreshing = undefined;
    });
    return this.#refreshing;
  }

  async #refresh(): Promise<RefreshResult> {
    const { store, clock, random } = this.#parts;
    const deadlineAtMs = clock.nowMs() + waitMsMax;
    for (;;) {
      if (this.reload()) return 'renewed';
      const row = this.#row;
      if (row.state === 'dead') return 'dead';
      if (row.facts.grantType === 'code' && row.refreshToken === undefined) return 'refused';
      const nowMs = clock.date().getTime();
      if (row.retryMs > nowMs) throw this.#unavailable(row.retryMs - nowMs);
      // A row of its own: the lease may have been left by a process that died, and only this row says so.
      const leased = this.#busy(() => store.takeLease(row, this.#holder, nowMs, isHolderGone));
      if (leased) return this.#send(leased);
      if (clock.nowMs() >= deadlineAtMs) throw this.#unavailable(undefined);
      await sleep(clock, 20 + 20 * random());
    }
  }

  /** A locked database is the same as a lease of another process: the caller looks again. */
  #busy<T>(change: () => T): T | undefined {
    try {
      return change();
    } catch (error) {
      if (sqliteCode(error).startsWith('SQLITE_BUSY')) return undefined;
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
    if (answer.kind === 'tokens') return this.#store(row, answer, nowMs);
    const reason = answer.kind === 'refused' ? answer.error : answer.reason;
    onRefresh(answer.kind === 'refused' ? answer.error : 'unavailable');
    if (reason === 'invalid_grant') return this.#end(row, row.isInterrupted ? 'refresh_interrupted' : 'grant_revoked');
    if (reason === 'invalid_client' || reason === 'unauthorized_client') {
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
    const isInterrupted = row.isInterrupted || (answer.kind === 'unavailable' && answer.isSent);
    await this.#persist(() =>
      this.#parts.store.noteFailure(row, this.#holder, {
        ...{ failures, retryMs: Math.ceil(nowMs + delayMs), refusedMs, isInterrupted },
        lastError: { reason, atMs: nowMs },
      }),
    );
    this.reload();
    this.#plan(nowMs + delayMs);
    throw this.#unavailable(delayMs);
  }

  async #store(row: GrantRow, answer: TokenAnswer & { kind: 'tokens' }, nowMs: number): Promise<RefreshResult> {
    const { accessToken, refreshToken = row.refreshToken, expiresInS, scope } = answer;
    for (const secret of [accessToken, refreshToken]) if (secret) this.#redact(secret);
    const tokens = {
      accessToken,
      refreshToken,
      scopes: scope === undefined ? row.scopes : scopesOf(scope),
      issuedMs: nowMs,
      // A token that cannot be used has ended already: the next use refreshes again.
      expiresMs: accessToken === '' ? nowMs : expiresInS === undefined ? undefined : nowMs + expiresInS * 1_000,
    };
    const { lastError: _gone, ...facts } = row.facts;
    // The new refresh token counts, but the next request waits as after any other failure.
    const failures = accessToken === '' ? row.failures + 1 : 0;
    const retryMs = failures === 0 ? 0 : Math.ceil(nowMs + retryDelayMs(failures, undefined, this.#parts.random));
    const isStored = await this.#persist(() =>
      this.#parts.store.advance(row, tokens, { ...facts, refreshedMs: nowMs }, { failures, retryMs }),
    );
    // Not stored, although the disk was tried again and again: the old refresh token is spent, so this one must be used.
    if (isStored === undefined) this.#adopt({ ...row, ...tokens, gen: row.gen + 1 });
    else this.reload();
    this.#parts.onRefresh(accessToken === '' ? 'unavailable' : 'ok');
    this.#parts.onChange();
    if (this.#token) return 'renewed';
    throw this.#unavailable(undefined);
  }

  async #end(row: GrantRow, reason: string): Promise<RefreshResult> {
    const nowMs = this.#parts.clock.date().getTime();
    const isDead = await this.#persist(() => this.#parts.store.markDead(row, reason, nowMs));
    const isNewer = this.reload();
    this.#parts.onChange();
    return isNewer && isDead !== true ? 'renewed' : 'dead';
  }

  /** Writes until it succeeds. Undefined: it never did. */
  async #persist<T>(change: () => T): Promise<T | undefined> {
    const { clock, random, onProblem } = this.#parts;
    const deadlineAtMs = clock.nowMs() + storeMsMax;
    for (;;) {
      try {
        return change();
      } catch (error) {
        if (clock.nowMs() >= deadlineAtMs) {
          onProblem(error);
          return undefined;
        }
      }
      await sleep(clock, 25 + 25 * random());
    }
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
    for (const secret of [row.accessToken, row.refreshToken]) if (secret) this.#redact(secret);
    this.#refreshAtMs = row.state === 'dead' ? undefined : refreshAtMs(row.issuedMs, row.expiresMs, random);
    const canRefresh = row.facts.grantType === 'client_credentials' || row.refreshToken !== undefined;
    if (this.#refreshAtMs === undefined || !canRefresh) return;
    this.#isUsed = false;
    this.#plan(Math.max(this.#refreshAtMs, row.retryMs));
  }

  #plan(atWallMs: number): void {
    const { clock } = this.#parts;
    if (this.#isClosed) return;
    this.#cancel();
    const delayMs = Math.max(0, atWallMs - clock.date().getTime());
    this.#cancel = clock.at(clock.nowMs() + delayMs, () => this.#due());
  }

  /** A token that no request has used since is refreshed by the next use, or after a day. */
  #due(): void {
    if (this.#isUsed) return void this.refresh().catch(() => {});
    this.#isDue = true;
    const { clock } = this.#parts;
    const idleAtMs = this.#row.issuedMs + idleRefreshMs;
    const delayMs = Math.max(60_000, idleAtMs - clock.date().getTime());
    this.#cancel = clock.at(clock.nowMs() + delayMs, () => void this.refresh().catch(() => {}));
  }

  #drop(): boolean {
    this.#token = undefined;
    this.#cancel();
    this.#row = { ...this.#row, state: 'dead', reason: 'logged_out' };
    return false;
  }

  #redact(secret: string): void {
    if (this.#known.includes(secret)) return;
    this.#parts.secrets.know(secret);
    this.#known.push(secret);
    for (const old of this.#known.splice(0, this.#known.length - redactedMax)) this.#parts.secrets.forget(old);
  }

  #unavailable(retryAfterMs: number | undefined): HostError {
    return new HostError('reconnecting', 'the authorization server cannot be reached to renew the token', {
      reason: 'auth_server',
      execution: 'not_executed',
      retryAfterMs: Math.ceil(retryAfterMs ?? 2_000),
      hint: 'try again after the given time; no login is needed',
    });
  }
}
