/**
 * What a request was authorized with, and the refusal that names it: whoever renews tokens must know which one was
 * refused, or 401s that come late would renew what has just been renewed.
 * Not here: where tokens come from and how they are renewed (session/).
 *
 * Invariant: neither a token nor its hash is in what an error shows: message, details, JSON and inspection leave them out.
 */
import { createHash } from 'node:crypto';
import { HostError, type HostErrorOptions } from '../../kernel/errors.js';

/** One header of one request, the value being secret. */
export interface AuthToken {
  readonly header: readonly [name: string, value: string];
  /**
   * The grant that it was issued under: opaque, neither sent nor shown. Tokens with the same grant are of one account and one
   * login, such as those that were refreshed one from the other. A new login, or another account, is another grant. Part of the
   * token, so that the two cannot be read out of step.
   */
  readonly grant?: string | undefined;
}

/** Asked for every request, at the moment it is sent. The same object until the token changes; must not throw. */
export interface TokenSource {
  current(): AuthToken | undefined;
}

const noToken = 'none';

/** Tells tokens apart without keeping them. */
export function tokenHash(token: AuthToken | undefined): string {
  if (!token) return noToken;
  const [name, value] = token.header;
  return createHash('sha256').update(`${name.toLowerCase()}:${value}`).digest('hex');
}

/** `token`: it is not, or no longer, good for this server. `scope`: it is good, but not for this. */
export type RefusalKind = 'token' | 'scope';

interface RefusalFacts {
  readonly kind: RefusalKind;
  readonly sent: AuthToken | undefined;
  /** What the server said in `WWW-Authenticate`. */
  readonly challenge: string | undefined;
}

/** The server refused the request for its token, before it did anything. */
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

  /** Of the token that went with the request. */
  get sentHash(): string {
    return this.#sentHash;
  }

  /** The server's own words, as it sent them. */
  get challenge(): string | undefined {
    return this.#challenge;
  }
}
