/**
 * Where the token of a server comes from, as its owner has to provide it. A provider only knows tokens; when one is renewed,
 * and for whom, is decided in auth-recovery.ts.
 *
 * Private answers of one account must not be given to another: with a token of another grant (`AuthToken.grant`) everything that
 * is kept of the server is dropped. A provider that does not name grants is taken to have a new one with every token but those
 * that `recover` brought for a token that was refused.
 */
import type { AuthToken } from '../../transports/http/auth-token.js';

/** About a request that was refused for its token. */
export interface RecoverContext {
  /** `token`: it is not, or no longer, good. `scope`: it is good, but not for what was asked. */
  readonly kind: 'token' | 'scope';
  /** What the server said in `WWW-Authenticate`: data of a stranger, bounded in length and nothing else. */
  readonly challenge: string | undefined;
  /** Aborts when the attempt is over: settled, too late, or overtaken by a new token. */
  readonly signal: AbortSignal;
  /** On the host's clock. What comes later still counts as a new token. */
  readonly deadlineAtMs: number;
}

export interface AuthProvider {
  /** What goes with the next request. Asked for each of them, so it answers at once, from memory. */
  current(): AuthToken | undefined;
  /**
   * The server refused `failed`. True: `current()` is another token now; with `kind: "token"` it is a refresh of `failed`, of the
   * same grant unless it names another. False, or a rejection: it cannot be renewed, and a user has to log in. For the same
   * token not asked again before `signal` has aborted.
   */
  recover(failed: AuthToken | undefined, context: RecoverContext): Promise<boolean>;
  /** `listener` is called when a token came from elsewhere, such as a login. Returns what takes the listener off again. */
  onChanged(listener: () => void): () => void;
  /** As whom the server knows us, for people: the name of an account, never part of a token. Asked with every status. */
  identity?(): string | undefined;
}

/** What is written in the configuration, and cannot be renewed from here. */
export function staticHeaderProvider(headers: Readonly<Record<string, string>>): AuthProvider {
  const entry = Object.entries(headers).find(([name]) => name.toLowerCase() === 'authorization');
  const token: AuthToken | undefined = entry && { header: ['authorization', entry[1].trim()] };
  return {
    current: () => token,
    recover: () => Promise.resolve(false),
    onChanged: () => () => {},
  };
}
