/** A store in a folder of its own, and logins in this process at the hostile authorization server. */
import { rmSync } from 'node:fs';
import path from 'node:path';
import type Database from 'libsql';
import { loadedLibsql } from '../../src/catalog/store/libsql.js';
import { authEntry } from '../../src/config/auth-settings.js';
import type { IdentityStore } from '../../src/identity/identity-store.js';
import { type LoginOptions, type LoginResult, login } from '../../src/identity/login.js';
import { createOAuthHttp } from '../../src/identity/oauth-http.js';
import { openStore } from '../../src/identity/open-store.js';
import { systemClock } from '../../src/kernel/clock.js';
import { isHostError } from '../../src/kernel/errors.js';
import { systemRandom } from '../../src/kernel/random.js';
import { createRedactor } from '../../src/kernel/redact.js';
import { logIn } from '../fixtures/identity/browser.js';
import { memoryFolder } from '../memory-folder.js';

export interface Shown {
  readonly url: URL;
  readonly redirectUri: string;
  readonly port: number;
  paste(text: string): void;
}

export type RigLogin = Partial<Omit<LoginOptions, 'auth'>> & {
  readonly url: string;
  readonly auth?: Record<string, unknown>;
  /** Action of the user with the URL. Default: logs in. */
  readonly person?: (shown: Shown) => unknown;
  readonly confirms?: boolean;
};

export class LoginRig {
  readonly folder = memoryFolder('hostler-login-');
  readonly store: IdentityStore = openStore({ folder: this.folder, onProblem: () => {} });
  readonly shown: Shown[] = [];
  readonly asked: string[] = [];
  pastesRefused = 0;

  login(given: RigLogin): Promise<LoginResult> {
    const { auth: entry = {}, person = ({ url }: Shown) => logIn(url.href), confirms = false, ...rest } = given;
    const auth = authEntry.parse(entry);
    const { url } = given;
    let onText: (text: string) => void = () => {};
    return login({
      server: 'docs',
      headers: {},
      store: this.store,
      http: createOAuthHttp({ server: 'docs', clock: systemClock, random: systemRandom, url, issuer: auth.issuer }),
      clock: systemClock,
      redactor: createRedactor(),
      timeoutMs: 20_000,
      signal: new AbortController().signal,
      ui: {
        show: ({ url, redirectUri, port }) => {
          const shown = { url: new URL(url), redirectUri, port, paste: (text: string) => onText(text) };
          this.shown.push(shown);
          void person(shown);
        },
        onPaste: (listener) => {
          onText = listener;
        },
        askAgain: () => this.pastesRefused++,
        confirm: async (question) => {
          this.asked.push(question);
          return confirms;
        },
      },
      ...rest,
      auth,
    });
  }

  /** The reason of a refused login; undefined: it was granted. */
  async reason(given: RigLogin): Promise<string | undefined> {
    try {
      await this.login(given);
      return undefined;
    } catch (error) {
      if (!isHostError(error)) throw error;
      return error.details.reason;
    }
  }

  /** A login in another process changes the data version of the store; one in this process does not. */
  touch(): void {
    this.elsewhere((database) => database.exec("INSERT OR REPLACE INTO store VALUES ('touched', randomblob(8))"));
  }

  /** Changes the store as another process would. */
  elsewhere(change: (database: Database.Database) => void): void {
    const database = new (loadedLibsql())(path.join(this.folder, 'identity.db'));
    change(database);
    database.close();
  }

  /** Locks the store, as a write of another process does, until the returned function is called. */
  lock(): () => void {
    const database = new (loadedLibsql())(path.join(this.folder, 'identity.db'));
    database.exec('BEGIN IMMEDIATE');
    return () => {
      if (!database.open) return;
      database.exec('ROLLBACK');
      database.close();
    };
  }

  end(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
