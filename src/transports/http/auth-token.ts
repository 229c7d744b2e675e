/**
 * The token of a request, and the error of a refused token. The error names the token by its hash: a late 401 must not renew a token
 * that has just been renewed.
 * Not here: where tokens come from and how they are renewed (session/auth/).
 *
 * Invariant: message, details, JSON and inspection of an error contain neither a token nor its hash.
 */
import { createHash } from 'node:crypto';
import { HostError, type HostErrorOptions } from '../../kernel/errors.js';

/** One header of one request, the value being secret. */
export interface AuthToken {
  readonly header: readonly [name: string, value: string];
  /**
   * The grant that the token was issued under: opaque, neither sent nor shown. Tokens of one login and account have the same grant,
   * such as a token and its refresh. Part of the token, so that both are always read together.
   */
  readonly grant?: string | undefined;
}

/** `current` is called when a request is sent. It returns the same object until the token changes, and must not throw. */
export interface TokenSource {
  current(): AuthToken | undefined;
}

const noToken = 'none';

/** Identifies a token without storing it. */
export function tokenHash(token: AuthToken | undefined): string {
  if (!token) return noToken;
  const [name, value] = token.header;
  return createHash('sha256').update(`${name.toLowerCase()}:${value}`).digest('hex');
}

/** `token`: the token is not valid. `scope`: the token is valid, but not for this request. */
export type RefusalKind = 'token' | 'scope';

interface RefusalFacts {
  readonly kind: RefusalKind;
  readonly sent: AuthToken | undefined;
  /** The header `WWW-Authenticate`. */
  readonly challenge: string | undefined;
}

/** The server refused the request for its token, and did not execute it. */
export class TokenRefused extends HostError {
  readonly #kind: RefusalKind;
  readonly #sentHash: string;
  readonly #challenge: string | undefined;

  constructor(message: string, details: HostErrorOptions, { kind, sent, challenge }: RefusalFacts) {
    super('needs_reauth', message, { ...details, execution: 'not_executed' });
    this.#kind = kind;
    this.#sentHash = tokenHash(sent);
    this.#challenge = challenge;
  }

  get kind(): RefusalKind {
    return this.#kind;
  }

  /** The hash of the token that was sent. */
  get sentHash(): string {
    return this.#sentHash;
  }

  /** The header `WWW-Authenticate`, as the server sent it. */
  get challenge(): string | undefined {
    return this.#challenge;
  }
}
