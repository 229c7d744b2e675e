/**
 * Renews the token of one server when a request was refused for it: once for everybody, whoever asks first.
 * Not here: how a token is renewed (the provider), sending the refused request again (host/), what becomes of a server that
 * has no good token (supervisor/).
 *
 * Invariants:
 * - For one token and one fault there is at most one attempt at a time, and it belongs to nobody: callers come and go.
 * - A request that was refused with a token that is no longer the current one causes no attempt: the current one may do.
 * - A token of another grant is announced (`onNewGrant`) before the first request is sent with it. In doubt the grant is another.
 * - After an attempt the token that is then current gets no other before `pauseMs` have passed, however often it is refused.
 * - Tables hold the current token only, one entry for each kind of refusal. Keys are hashes.
 */
import type { CancelSignal } from '../../kernel/cancel-signal.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import {
  type AuthToken,
  type RefusalKind,
  TokenRefused,
  type TokenSource,
  tokenHash,
} from '../../transports/http/auth-token.js';
import { checkToken } from '../../transports/http/headers.js';
import type { AuthProvider } from './auth-provider.js';

export interface AuthRecoveryOptions {
  readonly server: string;
  readonly provider: AuthProvider;
  readonly clock: Clock;
  /** What must not be shown from now on, and what no longer matters. */
  readonly secrets: { know(value: string): void; forget(value: string): void };
  readonly onProblem?: ((error: unknown) => void) | undefined;
  /** Told of each attempt: that it begins, and how it ended; also of a token that came after one had failed. */
  readonly onOutcome?: ((status: AuthStatus) => void) | undefined;
  readonly limitMs?: number;
  readonly pauseMs?: number;
}

/** Whoever asks, and how long they wait. */
export interface AuthLimits {
  readonly deadlineAtMs: number;
  readonly signal?: CancelSignal | undefined;
}

/** `needed`: the server refused the token. `recovered`: there is another one. `failed`: somebody has to log in. */
export type AuthStatus = 'needed' | 'recovered' | 'failed';

/** `renewed`: send it again. `refused`: somebody has to log in. The others: the caller did not wait for the end. */
export type RecoveryOutcome = 'renewed' | 'refused' | 'late' | 'cancelled';

/** For one attempt. */
const limitMsDefault = 15_000;
const pauseMsDefault = 10_000;
/** Requests with an older token may still be on their way, and errors that quote it. */
const tokensKnown = 4;

interface Attempt {
  readonly settled: Promise<boolean>;
  settle(isRenewed: boolean): void;
}

export class AuthRecovery implements TokenSource {
  readonly #options: AuthRecoveryOptions;
  readonly #clock: Clock;
  readonly #provider: AuthProvider;
  readonly #attempts = new Map<RefusalKind, Attempt>();
  readonly #restUntilMs = new Map<RefusalKind, number>();
  readonly #listeners = new Set<() => void>();
  readonly #grantListeners = new Set<() => void>();
  readonly #unsubscribe: () => void;
  /** What the provider last gave us, and what of it goes into requests. */
  #given: AuthToken | undefined;
  #token: AuthToken | undefined;
  #hash = tokenHash(undefined);
  #known: string[] = [];
  /** The provider throws where it must not: said once, not with every request. */
  #isFailing = false;
  /** The last attempt failed, and no other token has come since. */
  #hasFailed = false;
  #isClosed = false;

  constructor(options: AuthRecoveryOptions) {
    this.#options = options;
    this.#clock = options.clock;
    this.#provider = options.provider;
    this.#look();
    this.#unsubscribe = this.#subscribe();
  }

  /** The token of the next request. */
  current(): AuthToken | undefined {
    if (this.#look()) this.#tell();
    return this.#token;
  }

  /** As whom the server knows us, as the provider says it; undefined when it does not, or fails. */
  identity(): string | undefined {
    try {
      const name: unknown = this.#provider.identity?.();
      return typeof name === 'string' && name !== '' ? name : undefined;
    } catch (error) {
      this.#options.onProblem?.(error);
      return undefined;
    }
  }

  /** Told whenever there is another token, wherever it came from. */
  onChanged(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Told whenever the next request goes out under another grant, or none: as another account, as far as is known. */
  onNewGrant(listener: () => void): () => void {
    this.#grantListeners.add(listener);
    return () => this.#grantListeners.delete(listener);
  }

  /** Resolves when it is known whether the refused request is worth sending again, or when the caller's time is over. */
  recover(refused: TokenRefused, limits: AuthLimits): Promise<RecoveryOutcome> {
    if (limits.signal?.aborted) return Promise.resolve('cancelled');
    this.current();
    if (this.#isClosed || refused.sentHash !== this.#hash) return Promise.resolve('renewed');
    const attempt = this.#attempts.get(refused.kind) ?? this.#begin(refused);
    return attempt ? this.#within(attempt, limits) : Promise.resolve('refused');
  }

  /** Runs `attempt`, and once more if it was refused for a token that could be renewed. */
  async withRenewal<T>(limits: AuthLimits, attempt: () => Promise<T>): Promise<T> {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof TokenRefused) || (await this.recover(error, limits)) !== 'renewed') throw error;
    }
    return attempt();
  }

  /**
   * The server goes: nobody is told of tokens any more, attempts are called off. Whoever waited goes on, to be told by the
   * supervisor what happened; a refusal would send them to log in.
   */
  close(): void {
    this.#isClosed = true;
    try {
      this.#unsubscribe();
    } catch (error) {
      this.#options.onProblem?.(error);
    }
    this.#listeners.clear();
    this.#grantListeners.clear();
    for (const attempt of this.#attempts.values()) attempt.settle(true);
  }

  /** Providers are written by others: one that tells of no changes is still asked for its token. */
  #subscribe(): () => void {
    const { server, onProblem } = this.#options;
    try {
      const off: unknown = this.#provider.onChanged(() => {
        if (!this.#isClosed && this.#look()) this.#tell();
      });
      if (typeof off === 'function') return off as () => void;
      onProblem?.(unsubscribable(server));
    } catch (error) {
      onProblem?.(error);
    }
    return () => {};
  }

  /** Undefined while the token rests. */
  #begin({ kind, challenge }: TokenRefused): Attempt | undefined {
    const nowMs = this.#clock.nowMs();
    if (nowMs < (this.#restUntilMs.get(kind) ?? nowMs)) return undefined;
    const failed = this.#token;
    const failedHash = this.#hash;
    const abort = new AbortController();
    const deadlineAtMs = nowMs + (this.#options.limitMs ?? limitMsDefault);
    const attempt = newAttempt((isRenewed) => {
      cancelLimit();
      abort.abort();
      if (this.#attempts.get(kind) === attempt) this.#attempts.delete(kind);
      const { pauseMs = pauseMsDefault } = this.#options;
      // Also the successor of a token that was renewed: if it is refused too, another one would hardly do.
      this.#restUntilMs.set(kind, this.#clock.nowMs() + pauseMs);
      this.#say(isRenewed ? 'recovered' : 'failed');
    });
    const cancelLimit: Cancel = this.#clock.at(deadlineAtMs, () => attempt.settle(false));
    this.#attempts.set(kind, attempt);
    this.#say('needed');
    void this.#ask(failed, { kind, challenge, signal: abort.signal, deadlineAtMs }).then((isRenewed) => {
      // The word of the provider is not enough: what counts is the token. Also when it comes too late for this attempt.
      // More rights (`scope`) may have been granted in a new login: that is no refresh.
      if (this.#look(isRenewed && kind === 'token' ? failedHash : undefined)) this.#tell();
      attempt.settle(this.#hash !== failedHash);
    });
    return attempt;
  }

  async #ask(...args: Parameters<AuthProvider['recover']>): Promise<boolean> {
    try {
      return await this.#provider.recover(...args);
    } catch (error) {
      this.#options.onProblem?.(error);
      return false;
    }
  }

  /** The attempt goes on when the caller leaves. */
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
      void settled.then((isRenewed) => leave(isRenewed ? 'renewed' : 'refused'));
    });
  }

  /** True: there is another token than when we last looked. `refreshed`: the hash of the one it was refreshed from, if it was. */
  #look(refreshed?: string): boolean {
    const given = this.#readProvider();
    if (isSame(given, this.#given)) return false;
    const before = this.#given;
    this.#given = given && { header: [given.header[0], given.header[1]], grant: grantOf(given) };
    this.#token = this.#usable(this.#given);
    // A login may have overtaken the refresh: then the token is no refresh of the one that was current.
    if (!isSameGrant(before, this.#given, refreshed === this.#hash))
      for (const listener of [...this.#grantListeners]) listener();
    const hash = tokenHash(this.#token);
    if (hash === this.#hash) return false;
    this.#hash = hash;
    this.#restUntilMs.clear();
    if (this.#token) this.#learn(this.#token);
    return true;
  }

  #readProvider(): AuthToken | undefined {
    try {
      const token = this.#provider.current();
      if (token && !isToken(token)) throw shapeless(this.#options.server);
      this.#isFailing = false;
      return token;
    } catch (error) {
      if (!this.#isFailing) this.#options.onProblem?.(error);
      this.#isFailing = true;
      return undefined;
    }
  }

  /** What cannot stand in a header is not sent; the server then asks for authorization. */
  #usable(token: AuthToken | undefined): AuthToken | undefined {
    const fault = token && checkToken(this.#options.server, token);
    if (fault) this.#options.onProblem?.(fault);
    return fault ? undefined : token;
  }

  #learn({ header: [, value] }: AuthToken): void {
    const { secrets } = this.#options;
    const secret = withoutScheme(value);
    secrets.know(secret);
    this.#known = [...this.#known.filter((other) => other !== secret), secret];
    for (const old of this.#known.splice(0, this.#known.length - tokensKnown)) secrets.forget(old);
  }

  #tell(): void {
    for (const attempt of [...this.#attempts.values()]) attempt.settle(true);
    if (this.#hasFailed && this.#token) this.#say('recovered');
    for (const listener of [...this.#listeners]) listener();
  }

  /** Of a server that goes nobody wants to know. */
  #say(status: AuthStatus): void {
    if (this.#isClosed) return;
    if (status !== 'needed') this.#hasFailed = status === 'failed';
    this.#options.onOutcome?.(status);
  }
}

/** What is secret of a header's value. */
export const withoutScheme = (value: string): string => value.replace(/^(?:bearer|basic|token)\s+/i, '');

/** Providers are written by others. */
const isToken = ({ header }: AuthToken): boolean =>
  Array.isArray(header) && typeof header[0] === 'string' && typeof header[1] === 'string';

const shapeless = (server: string): HostError =>
  new HostError('invalid_spec', `server '${server}': its provider gave a token without a header`, {
    server,
    field: 'header',
    hint: 'a token is { header: [name, value] }, both of them text',
  });

const unsubscribable = (server: string): HostError =>
  new HostError('invalid_spec', `server '${server}': onChanged of its provider returned no function`, {
    server,
    field: 'onChanged',
    hint: 'return the function that takes the listener off again',
  });

const isSame = (a: AuthToken | undefined, b: AuthToken | undefined): boolean =>
  a === b || (a?.header[0] === b?.header[0] && a?.header[1] === b?.header[1] && grantOf(a) === grantOf(b));

/** Providers are written by others: anything but a text names no grant. */
const grantOf = (token: AuthToken | undefined): string | undefined =>
  typeof token?.grant === 'string' && token.grant !== '' ? token.grant : undefined;

/** Without a name of the grant on either side, only a refresh is known to be of the same one. */
function isSameGrant(before: AuthToken | undefined, now: AuthToken | undefined, isRefresh: boolean): boolean {
  if (!before || !now) return false;
  return before.grant === undefined && now.grant === undefined ? isRefresh : before.grant === now.grant;
}

function newAttempt(onSettled: (isRenewed: boolean) => void): Attempt {
  let resolve: (isRenewed: boolean) => void = () => {};
  let isSettled = false;
  const settled = new Promise<boolean>((settle) => {
    resolve = settle;
  });
  return {
    settled,
    settle(isRenewed) {
      if (isSettled) return;
      isSettled = true;
      onSettled(isRenewed);
      resolve(isRenewed);
    },
  };
}
