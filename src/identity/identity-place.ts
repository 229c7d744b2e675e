/**
 * Where the tokens of this user are stored, and the key of the store.
 * Invariant: `identity` counts only in the user's own configuration; another file must not choose where tokens are stored.
 */
import { existsSync } from 'node:fs';
import { readConfigFile } from '../config/config-file.js';
import { ownConfigFile, userDataFolder } from '../config/folders.js';
import { parseServing } from '../config/host-config.js';

export interface IdentityPlace {
  /** Undefined: there is no home directory. */
  readonly folder: string | undefined;
  /** Undefined: a key file beside the store. */
  readonly key: string | undefined;
}

export function identityPlace(env: NodeJS.ProcessEnv): IdentityPlace {
  const file = ownConfigFile(env);
  const settings =
    file !== undefined && existsSync(file) ? parseServing(readConfigFile(file, env).config).identity : undefined;
  return { folder: settings?.dir ?? userDataFolder(env), key: settings?.key };
}
