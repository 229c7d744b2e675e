/**
 * Renews the token of one server when requests are refused: one renewal for all of them.
 * Not here: the renewal itself (the provider), sending the refused request again (host/), server states (supervisor/).
 *
 * Invariants:
 * - For one token and one kind of refusal at most one attempt runs at a time. Each set of missing scopes is a separate kind. An
 *   attempt continues when its caller stops waiting.
 * - A request that was refused with an older token causes no attempt: the current token may be valid.
 * - A token of another grant is announced (`onNewGrant`) before its first request. A token whose grant is unknown counts as one of
 *   another grant.
 * - No attempt begins within `pauseMs` after another of its kind, however often the current token is refused. If the lifetime of the
 *   token has ended since, the pause is a second.
 */
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { NewestSecrets, type SecretSink } from '../../kernel/newest-secrets.js';
import type { AuthStatus } from '../../policy/policy-events.js';
import {
  type AuthToken,
  headersOf,
  TokenRefused,
  type TokenSource,
  tokenHash,
} from '../../transports/http/auth-token.js';
import { missingScopes } from '../../transports/http/challenges.js';
import { checkToken } from '../../transports/http/headers.js';
import type { AuthDescription, AuthProvider } from './auth-provider.js';

export interface AuthRecoveryOptions {
  readonly server: string;
  readonly provider: AuthProvider;
  readonly clock: Clock;
  readonly secrets: SecretSink;
  readonly onProblem?: ((error: unknown) => void) | undefined;
  /** Called when an attempt begins and ends, when a token arrives after an attempt had failed, and with news of the provider. */
  readonly onOutcome?: ((status: AuthStatus) => void) | undefined;
  readonly limitMs?: number;
  readonly pauseMs?: number;
}

export interface AuthLimits {
  readonly deadlineAtMs: number;
  readonly signal?: CancelSignal | undefined;
}

/**
 * `renewed`: send the request again. `refused`: a user has to log in. `late`, `cancelled`: the caller stopped waiting. An error: no
 * token can be obtained now, and no login would help.
 */
export type RecoveryOutcome = 'renewed' | 'refused' | 'late' | 'cancelled' | HostError;

const limitMsDefault = 15_000;
const pauseMsDefault = 10_000;
const expiredPauseMs = 1_000;
/** Number of newest tokens that stay redacted: requests and errors with an older token may still arrive. */
const redactedTokens = 4;
/** A server chooses the scopes that it asks for, so their number is limited. */
const scopeSetsMax = 16;

interface Attempt {
  readonly settled: Promise<'renewed' | 'refused' | HostError>;
  settle(isRenewed: boolean, unavailable?: HostError): void;
}

export class AuthRecovery implements TokenSource {
  readonly #options: AuthRecoveryOptions;
  readonly #clock: Clock;
  readonly #provider: AuthProvider;
  /** Running attempts, and the end of the last attempt, which begins a pause. Both by `kindOf`. */
  readonly #attempts = new Map<string, Attempt>();
  readonly #endedAtMs = new Map<string, number>();
  readonly #listeners = new Set<() => void>();
  readonly #grantListeners = new Set<() => void>();
  readonly #unsubscribe: () => void;
  /** Last token of the provider. `#token` is the same, or undefined if the token is not a valid header. */
  #providerToken: AuthToken | undefined;
  #token: AuthToken | undefined;
  #hash = tokenHash(undefined);
  readonly #redacted: NewestSecrets;
  /** The provider throws. This is reported once, not with every request. */
  #isFailing = false;
  /** The last attempt failed, and no other token has arrived since. */
  #hasFailed = false;
  #isClosed = false;

  constructor(options: AuthRecoveryOptions) {
    this.#options = options;
    this.#clock = options.clock;
    this.#provider = options.provider;
    this.#redacted = new NewestSecrets(options.secrets, redactedTokens);
    this.#update(undefined, 'look');
    this.#unsubscribe = this.#subscribe();
  }

  current(): AuthToken | undefined {
    if (this.#update(undefined, 'use')) this.#changed();
    return this.#token;
  }

  /** The account at the server. Undefined: the provider does not name one, or throws. */
  identity(): string | undefined {
    const name: unknown = this.#ask(() => this.#provider.identity?.());
    return typeof name === 'string' && name !== '' ? name : undefined;
  }

  /** Undefined: the tokens come from the configuration or from an embedder. */
  describe(): AuthDescription | undefined {
    return this.#ask(() => this.#provider.describe?.());
  }

  /** The error for the caller, with the advice of the provider. */
  explain(refused: TokenRefused): HostError {
    const advice = this.#ask(() => this.#provider.advice?.(refused.kind, refused.challenge));
    if (!advice) return refused;
    const { hint, reason } = advice;
    const message = `${refused.message}; ${hint}`;
    return refused.with({ message, hint, ...(reason === undefined ? {} : { reason }) });
  }

  /** Calls `listener` whenever another token is available, from a renewal or from a login. */
  onChanged(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Calls `listener` before the first request under another grant or without one, which may be another account. */
  onNewGrant(listener: () => void): () => void {
    this.#grantListeners.add(listener);
    return () => this.#grantListeners.delete(listener);
  }

  /** Resolves when the outcome of the renewal is known, or when the caller's time is over. */
  recover(refused: TokenRefused, limits: AuthLimits): Promise<RecoveryOutcome> {
    if (limits.signal?.aborted) return Promise.resolve('cancelled');
    this.current();
    if (this.#isClosed || refused.sentHash !== this.#hash) return Promise.resolve('renewed');
    const attempt = this.#attempts.get(kindOf(refused)) ?? this.#begin(refused);
    return attempt ? this.#within(attempt, limits) : Promise.resolve('refused');
  }

  /** Runs `attempt`, and once more if its token was refused and could be renewed. */
  async withRenewal<T>(limits: AuthLimits, attempt: () => Promise<T>): Promise<T> {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof TokenRefused)) throw error;
      const outcome = await this.recover(error, limits);
      if (outcome !== 'renewed') throw typeof outcome === 'string' ? this.explain(error) : outcome;
    }
    return attempt().catch((error: unknown) => {
      throw error instanceof TokenRefused ? this.explain(error) : error;
    });
  }

  /**
   * Removes the listeners and ends the attempts of a removed server. Waiting requests are sent again and fail with the error
   * of the removed server; `refused` would ask the user to log in.
   */
  close(): void {
    this.#isClosed = true;
    this.#ask(() => this.#unsubscribe());
    this.#listeners.clear();
    this.#grantListeners.clear();
    for (const attempt of this.#attempts.values()) attempt.settle(true);
  }

  /** The provider of an embedder may throw. */
  #ask<T>(read: () => T): T | undefined {
    try {
      return read();
    } catch (error) {
      this.#options.onProblem?.(error);
      return undefined;
    }
  }

  /** The provider of an embedder may be faulty; without events it still supplies tokens. */
  #subscribe(): () => void {
    const { server, onProblem } = this.#options;
    try {
      this.#provider.onNews?.((news) => this.#isClosed || this.#options.onOutcome?.(news));
      const off: unknown = this.#provider.onChanged(() => {
        if (!this.#isClosed && this.#update(undefined, 'look')) this.#changed();
      });
      if (typeof off === 'function') return off as () => void;
      onProblem?.(noUnsubscribe(server));
    } catch (error) {
      onProblem?.(error);
    }
    return () => {};
  }

  /** Undefined during the pause after an attempt, and while too many different sets of scopes are requested. */
  #begin(refused: TokenRefused): Attempt | undefined {
    const { kind, challenge } = refused;
    const own = kindOf(refused);
    const nowMs = this.#clock.nowMs();
    const { pauseMs = pauseMsDefault } = this.#options;
    for (const [each, endedAtMs] of this.#endedAtMs) if (endedAtMs + pauseMs <= nowMs) this.#endedAtMs.delete(each);
    const isMany = kind === 'scope' && this.#endedAtMs.size + this.#attempts.size >= scopeSetsMax;
    const endedAtMs = this.#endedAtMs.get(own);
    const isExpired = kind === 'token' && this.#ask(() => this.#provider.hasExpired?.()) === true;
    if (isMany || (endedAtMs !== undefined && !(isExpired && nowMs >= endedAtMs + expiredPauseMs))) return undefined;
    const failed = this.#token;
    const failedHash = this.#hash;
    const abort = new AbortController();
    const deadlineAtMs = nowMs + (this.#options.limitMs ?? limitMsDefault);
    let resolve: (outcome: 'renewed' | 'refused' | HostError) => void = () => {};
    const settled = new Promise<'renewed' | 'refused' | HostError>((settle) => {
      resolve = settle;
    });
    const settle = (isRenewed: boolean, unavailable?: HostError) => {
      if (this.#attempts.get(own) !== attempt) return;
      this.#attempts.delete(own);
      cancelLimit();
      abort.abort();
      // The pause also applies to the new token: if it is refused too, a third token would hardly help. A provider that cannot
      // reach its authorization server has a pause of its own. The first token of a server is not a renewal: a refusal of it is
      // worth an attempt.
      const isFirst = isRenewed && failed === undefined;
      if (!isFirst && (isRenewed || !unavailable)) this.#endedAtMs.set(own, this.#clock.nowMs());
      if (isRenewed || !unavailable) this.#report(isRenewed ? 'recovered' : 'failed');
      resolve(isRenewed ? 'renewed' : (unavailable ?? 'refused'));
    };
    const attempt: Attempt = { settled, settle };
    const cancelLimit: Cancel = this.#clock.at(deadlineAtMs, () => settle(this.#hash !== failedHash));
    this.#attempts.set(own, attempt);
    this.#report('needed');
    void this.#recover(failed, { kind, challenge, signal: abort.signal, deadlineAtMs }).then((outcome) => {
      const isRenewed = outcome === true;
      // The token decides, not the result of the provider, even if the token arrives too late for this attempt.
      // A new login may have granted more rights (`scope`), so such a token does not count as a refresh.
      if (this.#update(isRenewed && kind === 'token' ? failedHash : undefined, 'look')) this.#changed();
      settle(this.#hash !== failedHash, typeof outcome === 'boolean' ? undefined : outcome);
    });
    return attempt;
  }

  async #recover(...args: Parameters<AuthProvider['recover']>): Promise<boolean | HostError> {
    try {
      return (await this.#provider.recover(...args)) === true;
    } catch (error) {
      if (isHostError(error) && error.code === 'reconnecting') return error;
      this.#options.onProblem?.(error);
      return false;
    }
  }

  #within({ settled }: Attempt, { deadlineAtMs, signal }: AuthLimits): Promise<RecoveryOutcome> {
    return new Promise((resolve) => {
      const leave = (outcome: RecoveryOutcome) => {
        cancel();
        signal?.removeEventListener('abort', onAbort);
        resolve(outcome);
      };
      const onAbort = () => leave('cancelled');
      const cancel = this.#clock.at(deadlineAtMs, () => leave('late'));
      signal?.addEventListener('abort', onAbort, { once: true });
      void settled.then(leave);
    });
  }

  /** True: the provider has another token. `refreshed`: hash of the token that was refreshed, if any. */
  #update(refreshed: string | undefined, purpose: 'use' | 'look'): boolean {
    const given = this.#readProvider(purpose);
    if (isSame(given, this.#providerToken)) return false;
    const before = this.#providerToken;
    this.#providerToken = given && copyOf(given);
    this.#token = this.#usable(this.#providerToken);
    // A login may have replaced the token during the refresh; the new token is then not a refresh of the old one.
    if (!isSameGrant(before, this.#providerToken, refreshed === this.#hash))
      for (const listener of [...this.#grantListeners]) listener();
    const hash = tokenHash(this.#token);
    if (hash === this.#hash) return false;
    this.#hash = hash;
    // A token that an attempt for scopes obtained does not end the pauses for scopes. Otherwise a server could ask for other scopes
    // with each request.
    if ([...this.#attempts.keys()].some((each) => each !== 'token')) this.#endedAtMs.delete('token');
    else this.#endedAtMs.clear();
    // The values of `others` come from references, which are redacted when they are resolved.
    if (this.#token) this.#redacted.add(withoutScheme(this.#token.header[1]));
    return true;
  }

  #readProvider(purpose: 'use' | 'look'): AuthToken | undefined {
    try {
      const isLook = purpose === 'look' && this.#provider.peek !== undefined;
      const token = isLook ? this.#provider.peek?.() : this.#provider.current();
      if (token && !isToken(token)) throw invalidToken(this.#options.server);
      this.#isFailing = false;
      return token;
    } catch (error) {
      if (!this.#isFailing) this.#options.onProblem?.(error);
      this.#isFailing = true;
      return undefined;
    }
  }

  /** A token that is not a valid header is not sent; the server then answers 401. */
  #usable(token: AuthToken | undefined): AuthToken | undefined {
    const fault = token && checkToken(this.#options.server, token);
    if (fault) this.#options.onProblem?.(fault);
    return fault ? undefined : token;
  }

  #changed(): void {
    // An attempt for scopes continues: the token may be for the scopes of another call.
    this.#attempts.get('token')?.settle(true);
    if (this.#hasFailed && this.#token) this.#report('recovered');
    for (const listener of [...this.#listeners]) listener();
  }

  #report(status: 'needed' | 'recovered' | 'failed'): void {
    if (this.#isClosed) return;
    if (status !== 'needed') this.#hasFailed = status === 'failed';
    this.#options.onOutcome?.(status);
  }
}

/** Two tools may need different scopes: the refusal of one must not hide that of the other. */
const kindOf = ({ kind, challenge }: TokenRefused): string =>
  kind === 'token' ? kind : `${kind} ${missingScopes(challenge).join(' ')}`;

export const withoutScheme = (value: string): string => value.replace(/^(?:bearer|basic|token)\s+/i, '');

const isToken = (token: AuthToken): boolean =>
  Array.isArray(token.others ?? []) &&
  headersOf(token).every((each) => Array.isArray(each) && typeof each[0] === 'string' && typeof each[1] === 'string');

const copyOf = (token: AuthToken): AuthToken => ({
  header: [token.header[0], token.header[1]],
  ...(token.others === undefined ? {} : { others: token.others.map(([name, value]) => [name, value] as const) }),
  grant: grantOf(token),
});

const invalidToken = (server: string): HostError =>
  new HostError('invalid_spec', `server '${server}': its auth provider returned a token without a header`, {
    server,
    field: 'header',
    hint: 'return { header: [name, value] } with two strings from current()',
  });

const noUnsubscribe = (server: string): HostError =>
  new HostError('invalid_spec', `server '${server}': onChanged of its auth provider returned no function`, {
    server,
    field: 'onChanged',
    hint: 'return the function that removes the listener',
  });

const isSame = (a: AuthToken | undefined, b: AuthToken | undefined): boolean =>
  a === b ||
  (a?.header[0] === b?.header[0] &&
    a?.header[1] === b?.header[1] &&
    grantOf(a) === grantOf(b) &&
    (a?.others === b?.others || JSON.stringify(a?.others) === JSON.stringify(b?.others)));

/** Only a non-empty string names a grant. */
const grantOf = (token: AuthToken | undefined): string | undefined =>
  typeof token?.grant === 'string' && token.grant !== '' ? token.grant : undefined;

/** If grants have no names, only a refresh is known to have the same grant. */
function isSameGrant(before: AuthToken | undefined, now: AuthToken | undefined, isRefresh: boolean): boolean {
  if (!before || !now) return false;
  return before.grant === undefined && now.grant === undefined ? isRefresh : before.grant === now.grant;
}
