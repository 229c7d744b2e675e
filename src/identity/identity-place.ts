/**
 * Where the tokens of this user are stored, and the key of the store.
 * Invariants: `identity` has an effect only in the user's own configuration; another file must not choose where tokens are stored.
 * A fault in the user's own configuration locks the store, but does not stop the host: most servers need no login.
 */
import { existsSync } from 'node:fs';
import { readConfigFile } from '../config/config-file.js';
import { ownConfigFile, userDataFolder } from '../config/folders.js';
import { parseServing } from '../config/host-config.js';
import { type HostError, isHostError } from '../kernel/errors.js';

export interface IdentityPlace {
  /** Undefined: there is no home directory. */
  readonly folder: string | undefined;
  /** Undefined: a key file beside the store. */
  readonly key?: string | undefined;
  /** Why the settings cannot be read. They may name another folder or key, so the store must not be opened. */
  readonly error?: HostError | undefined;
}

/** What seals the tokens. */
export const keySourceOf = ({ key }: Pick<IdentityPlace, 'key'>): 'file' | 'operator' =>
  key === undefined ? 'file' : 'operator';

export const keyTexts = {
  file: 'a key file beside the store: it protects copies of the store, not this account',
  operator: 'identity.key',
};

export function identityPlace(env: NodeJS.ProcessEnv): IdentityPlace {
  const file = ownConfigFile(env);
  const folder = userDataFolder(env);
  if (file === undefined || !existsSync(file)) return { folder };
  try {
    const { identity } = parseServing(readConfigFile(file, env).config);
    return { folder: identity?.dir ?? folder, key: identity?.key };
  } catch (error) {
    if (!isHostError(error)) throw error;
    const message = `your own configuration cannot be used, so the stored tokens stay locked: ${error.message}`;
    const hint = `correct ${file} (${error.message}), then restart Hostler`;
    return { folder, error: error.with({ message, reason: 'store_locked', hint }) };
  }
}
