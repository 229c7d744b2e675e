/**
 * Token source for headers with references to secrets: the next request uses a rotated secret, without a restart of the
 * server.
 * Not here: the values (config/secrets/secret-values.ts), the first resolution before a connect (connector.ts).
 * Invariant: each reference is checked at most once in 5 s, and only while requests are sent. After a refusal, all are
 * resolved again.
 */
import { hasReference } from '../../config/secrets/references.js';
import type { SecretValues } from '../../config/secrets/secret-values.js';
import type { Clock } from '../../kernel/clock.js';
import { type AuthToken, headersOf } from '../../transports/http/auth-token.js';
import type { AuthProvider } from './auth-provider.js';

export interface ReferencedHeadersOptions {
  readonly server: string;
  /** Headers as configured: `${file:...}` and `${exec:...}` in them are not resolved yet. */
  readonly headers: Readonly<Record<string, string>>;
  readonly secrets: Pick<SecretValues, 'resolve' | 'peek' | 'revision'>;
  readonly clock: Clock;
  readonly onProblem?: ((error: unknown) => void) | undefined;
}

type Header = readonly [name: string, value: string];

const lookMs = 5_000;

export const hasReferences = (texts: Readonly<Record<string, string | null>>): boolean =>
  Object.values(texts).some((text) => text !== null && hasReference(text));

export class ReferencedHeaders implements AuthProvider {
  readonly #options: ReferencedHeadersOptions;
  /** The header that identifies the caller is first. */
  readonly #names: readonly string[];
  readonly #listeners = new Set<() => void>();
  #token: AuthToken | undefined;
  #revision = -1;
  #lookAtMs: number;

  constructor(options: ReferencedHeadersOptions) {
    this.#options = options;
    const names = Object.keys(options.headers).filter((name) => hasReference(options.headers[name] ?? ''));
    const isFirst = (name: string) => name.toLowerCase() === 'authorization';
    this.#names = [...names.filter(isFirst), ...names.filter((name) => !isFirst(name))];
    this.#lookAtMs = options.clock.nowMs() + lookMs;
  }

  current(): AuthToken | undefined {
    const { secrets, clock } = this.#options;
    const nowMs = clock.nowMs();
    if (nowMs >= this.#lookAtMs) {
      this.#lookAtMs = nowMs + lookMs;
      void this.#resolve(false).then((isChanged) => isChanged && this.#changed());
    }
    if (this.#revision !== secrets.revision) this.#update();
    return this.#token;
  }

  recover(): Promise<boolean> {
    return this.#resolve(true);
  }

  onChanged(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** True: a value has changed. */
  async #resolve(isFresh: boolean): Promise<boolean> {
    const { server, headers, secrets, onProblem } = this.#options;
    const before = this.#token;
    try {
      for (const name of this.#names)
        await secrets.resolve(headers[name] ?? '', `mcpServers.${server}.headers.${name}`, { isFresh });
    } catch (error) {
      // The previous values may still be valid.
      onProblem?.(error);
    }
    this.#update();
    return this.#token !== before;
  }

  #update(): void {
    const { headers, secrets } = this.#options;
    this.#revision = secrets.revision;
    const values = this.#names.map((name): Header | undefined => {
      const value = secrets.peek(headers[name] ?? '');
      return value === undefined ? undefined : [name.toLowerCase(), value.trim()];
    });
    const [header, ...others] = values.filter((each) => each !== undefined);
    if (!header || others.length + 1 < values.length) return;
    // Stays the same object as long as nothing has changed, so that headers are not built again.
    const token = { header, others };
    if (JSON.stringify(token) !== JSON.stringify(this.#token)) this.#token = token;
  }

  #changed(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}

/**
 * Adds the referenced headers of a definition to the tokens of `provider`. After a refused token the secrets are read again
 * first; `provider` renews its token only if no secret has changed.
 */
export function withReferences(provider: AuthProvider, references: AuthProvider): AuthProvider {
  let parts: readonly [AuthToken | undefined, AuthToken | undefined] = [undefined, undefined];
  let joined: AuthToken | undefined;
  const join = (own: AuthToken | undefined): AuthToken | undefined => {
    const added = references.current();
    // Stays the same object as long as nothing has changed, so that headers are not built again.
    if (own === parts[0] && added === parts[1]) return joined;
    parts = [own, added];
    joined = own && added ? { ...own, others: [...(own.others ?? []), ...headersBeside(own, added)] } : (own ?? added);
    return joined;
  };
  return {
    current: () => join(provider.current()),
    peek: () => join(provider.peek ? provider.peek() : provider.current()),
    async recover(failed, context) {
      if (context.kind === 'token' && (await references.recover(failed, context))) return true;
      const isOwn = failed && parts[0]?.header[1] === failed.header[1];
      return provider.recover(isOwn ? failed : undefined, context);
    },
    onChanged(listener) {
      const offs = [provider.onChanged(listener), references.onChanged(listener)];
      return () => {
        for (const off of offs) off();
      };
    },
    onNews: (listener) => provider.onNews?.(listener),
    hasExpired: () => provider.hasExpired?.() === true,
    identity: () => provider.identity?.(),
    describe: () => provider.describe?.(),
    advice: (kind, challenge) => provider.advice?.(kind, challenge),
  };
}

/** The token replaces a configured header of the same name. */
const headersBeside = (own: AuthToken, added: AuthToken) => {
  const names = new Set(headersOf(own).map(([name]) => name.toLowerCase()));
  return headersOf(added).filter(([name]) => !names.has(name));
};
