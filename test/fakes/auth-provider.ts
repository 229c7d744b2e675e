/**
 * A scripted provider of tokens that counts its calls. Each test sets the result of a recovery.
 */
import type { AuthProvider, RecoverContext } from '../../src/session/auth/auth-provider.js';
import type { AuthToken } from '../../src/transports/http/auth-token.js';

export const bearer = (value: string): AuthToken => ({ header: ['authorization', `Bearer ${value}`] });

export class FakeAuthProvider implements AuthProvider {
  token: AuthToken | undefined;
  /** Called for each recovery. By default a recovery fails. */
  onRecover: (failed: AuthToken | undefined, context: RecoverContext) => Promise<boolean> = () =>
    Promise.resolve(false);
  readonly recoveries: { readonly failed: AuthToken | undefined; readonly context: RecoverContext }[] = [];
  identity?: () => string | undefined;
  hasExpired?: () => boolean;
  readonly listeners = new Set<() => void>();

  constructor(token?: AuthToken) {
    this.token = token;
  }

  current(): AuthToken | undefined {
    return this.token;
  }

  recover(failed: AuthToken | undefined, context: RecoverContext): Promise<boolean> {
    this.recoveries.push({ failed, context });
    return this.onRecover(failed, context);
  }

  onChanged(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Simulates a login. */
  login(token: AuthToken | undefined): void {
    this.token = token;
    for (const listener of [...this.listeners]) listener();
  }
}
