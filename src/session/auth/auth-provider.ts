/**
 * Supplies the tokens of a server. An auth method is one implementation of AuthProvider; put a new one beside this file.
 * Not here: the time of a renewal (auth-recovery.ts), sending a token (transports/http/headers.ts).
 *
 * Private answers of one account must not reach another: a token of another grant (`AuthToken.grant`) drops all cached data of
 * the server. If grants have no names, every token counts as a new grant. A token from `recover` is the exception: it has the
 * grant of the refused token.
 */
import type { AuthStatus } from '../../policy/policy-events.js';
import type { AuthToken } from '../../transports/http/auth-token.js';

export interface RecoverContext {
  /** `token`: the token is not valid. `scope`: the token is valid, but not for this request. */
  readonly kind: 'token' | 'scope';
  /** Header `WWW-Authenticate` as the server sent it: untrusted; only its length is limited. */
  readonly challenge: string | undefined;
  /** Aborts when the attempt is over: settled, too late, or obsolete because of a new token. */
  readonly signal: AbortSignal;
  /** On the host's clock. A token that arrives later still counts as a new token. */
  readonly deadlineAtMs: number;
}

/** Facts about the tokens of a server, for status and `why`. Never contains a secret. Times are ISO 8601. */
export interface AuthDescription {
  /**
   * `none`: no login yet. `pending`: a login waits for the user. `granted`: a token exists. `step_up`: a call needs more scopes.
   * `dead`: the grant has ended. `locked`: the store cannot be opened.
   */
  readonly state: 'none' | 'pending' | 'granted' | 'refreshing' | 'step_up' | 'dead' | 'locked';
  /** True if a person has to log in before all calls work. */
  readonly needsLogin: boolean;
  readonly grant: 'code' | 'client_credentials';
  readonly issuer?: string | undefined;
  readonly resource?: string | undefined;
  readonly resourceMetadata?: string | undefined;
  readonly registration?: string | undefined;
  readonly clientId?: string | undefined;
  readonly identity?: string | undefined;
  readonly scopes?: readonly string[] | undefined;
  readonly wanted?: readonly string[] | undefined;
  readonly expiresAt?: string | undefined;
  readonly refreshAt?: string | undefined;
  readonly lastRefreshAt?: string | undefined;
  readonly lastError?: { readonly reason: string; readonly at: string } | undefined;
  /** What seals the stored tokens: a key file beside them, which protects copies only, or a key that the operator keeps elsewhere. */
  readonly store?: 'file' | 'operator' | undefined;
  /** Refresh requests of this host by result: `ok`, the error of the authorization server, or `unavailable`. */
  readonly refreshes: Readonly<Record<string, number>>;
  /** What to do next; undefined: nothing. */
  readonly next?: string | undefined;
}

export interface AuthAdvice {
  /** More exact cause, such as `scope_denied`. */
  readonly reason?: string | undefined;
  readonly hint: string;
}

export interface AuthProvider {
  /** Returns the token of the next request. Called for each request, so it must return at once, from memory. */
  current(): AuthToken | undefined;
  /** The same token, but it does not count as used. Default: `current`. */
  peek?(): AuthToken | undefined;
  /**
   * Called when the server refused `failed`. True: `current()` now returns another token. With `kind: "token"` that token is a
   * refresh of `failed`, with the same grant unless it names another. False or a rejection: a user has to log in. A rejection
   * with the code `reconnecting` is passed to the callers: no login is needed. Not called again for the same token before
   * `signal` aborts, except for other scopes.
   */
  recover(failed: AuthToken | undefined, context: RecoverContext): Promise<boolean>;
  /** True: the lifetime of the current token is over, so its refusal does not count against the login. Default: false. */
  hasExpired?(): boolean;
  /** Calls `listener` when a token arrived in another way, such as a login. Returns the function that removes the listener. */
  onChanged(listener: () => void): () => void;
  /** Calls `listener` with what happened to the login, for events. Called once, before the first request. */
  onNews?(listener: (news: AuthStatus) => void): void;
  /** Name of the account at the server, for people; never part of a token. Called for every status row. */
  identity?(): string | undefined;
  describe?(): AuthDescription | undefined;
  /** Text for the error of a refused request with this challenge. Undefined: the text of the transport. */
  advice?(kind: RecoverContext['kind'], challenge?: string | undefined): AuthAdvice | undefined;
}

/** Provider of the `authorization` header in the configuration, which cannot be renewed. */
export function staticHeaderProvider(headers: Readonly<Record<string, string>>): AuthProvider {
  const entry = Object.entries(headers).find(([name]) => name.toLowerCase() === 'authorization');
  const token: AuthToken | undefined = entry && { header: ['authorization', entry[1].trim()] };
  return {
    current: () => token,
    recover: () => Promise.resolve(false),
    onChanged: () => () => {},
  };
}
