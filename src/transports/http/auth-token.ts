/**
 * The token of a request, and the error for a refused token.
 * Not here: obtaining and renewing tokens (session/auth/).
 * Invariant: message, details, JSON and inspection of an error contain neither a token nor its hash.
 */
import { createHash } from 'node:crypto';
import { HostError, type HostErrorOptions } from '../../kernel/errors.js';

/** The headers that authorize one request: almost always one. The values are secret. */
export interface AuthToken {
  readonly header: readonly [name: string, value: string];
  /** Further headers that change together with it. Their values are secret too. */
  readonly others?: readonly (readonly [name: string, value: string])[] | undefined;
  /**
   * Opaque grant that the token was issued under, neither sent nor shown. A token and its refresh have the same grant. Token
   * and grant are one object, so both are read together.
   */
  readonly grant?: string | undefined;
}

/** `current` is called when a request is sent. It returns the same object until the token changes, and must not throw. */
export interface TokenSource {
  current(): AuthToken | undefined;
}

const noToken = 'none';

export function tokenHash(token: AuthToken | undefined): string {
  if (!token) return noToken;
  const lines = headersOf(token).map(([name, value]) => `${name.toLowerCase()}:${value}`);
  return createHash('sha256').update(lines.join('\n')).digest('hex');
}

export const headersOf = ({ header, others = [] }: AuthToken): readonly AuthToken['header'][] => [header, ...others];

/** `token`: the token is not valid. `scope`: the token is valid, but not for this request. */
export type RefusalKind = 'token' | 'scope';

interface RefusalFacts {
  readonly kind: RefusalKind;
  readonly sent: AuthToken | undefined;
  readonly challenge: string | undefined;
}

/** The server refused the request because of its token, and did not execute it. */
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

  /** Hash of the token that was sent. A late 401 must not renew a token that was renewed after the request was sent. */
  get sentHash(): string {
    return this.#sentHash;
  }

  get challenge(): string | undefined {
    return this.#challenge;
  }
}
