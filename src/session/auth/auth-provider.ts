/**
 * Supplies the tokens of a server. An auth method is one implementation of AuthProvider; put a new one beside this file.
 * Not here: when a token is renewed (auth-recovery.ts), sending it (transports/http/headers.ts).
 *
 * Private answers of one account must not reach another: with a token of another grant (`AuthToken.grant`) all cached data of the
 * server is dropped. Without names of grants, every token has a new grant, except one that `recover` brought for a refused token.
 */
import type { AuthToken } from '../../transports/http/auth-token.js';

export interface RecoverContext {
  /** `token`: the token is not valid. `scope`: the token is valid, but not for this request. */
  readonly kind: 'token' | 'scope';
  /** The header `WWW-Authenticate`, as the server sent it: untrusted, and only bounded in length. */
  readonly challenge: string | undefined;
  /** Aborts when the attempt is over: settled, too late, or obsolete because of a new token. */
  readonly signal: AbortSignal;
  /** On the host's clock. A later result still counts as a new token. */
  readonly deadlineAtMs: number;
}

export interface AuthProvider {
  /** The token of the next request. Called for each request, so it must return at once, from memory. */
  current(): AuthToken | undefined;
  /**
   * The server refused `failed`. True: `current()` is another token now; with `kind: "token"` it is a refresh of `failed`, of the
   * same grant unless it names another. False, or a rejection: it cannot be renewed, and a user has to log in. Not called again for
   * the same token before `signal` has aborted.
   */
  recover(failed: AuthToken | undefined, context: RecoverContext): Promise<boolean>;
  /** Calls `listener` when a token came from elsewhere, such as a login. Returns the function that removes the listener. */
  onChanged(listener: () => void): () => void;
  /** The account at the server, for people; never part of a token. Called with every status. */
  identity?(): string | undefined;
}

/** The header of the configuration, which cannot be renewed. */
export function staticHeaderProvider(headers: Readonly<Record<string, string>>): AuthProvider {
  const entry = Object.entries(headers).find(([name]) => name.toLowerCase() === 'authorization');
  const token: AuthToken | undefined = entry && { header: ['authorization', entry[1].trim()] };
  return {
    current: () => token,
    recover: () => Promise.resolve(false),
    onChanged: () => () => {},
  };
}
