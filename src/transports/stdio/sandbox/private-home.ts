/**
 * The home of a sandboxed server: one folder per server name in the state directory. Later starts reuse it, so that package
 * runners find their downloads.
 * Invariant: two names never share a folder. A server can write only inside its home, so it cannot replace the home by a link.
 */
import { createHash } from 'node:crypto';
import { lstat } from 'node:fs/promises';
import path from 'node:path';
import { HostError } from '../../../kernel/errors.js';
import { makeFolders } from '../../../kernel/make-folders.js';
import type { Environment } from '../../environment.js';

/** Path of the home inside the sandbox. No real path collides with it, and it does not contain the name of the user. */
export const homeInside = '/sandbox/home';

/** A valid server name is used unchanged. Any other text is hashed, because it may contain `/` or be `..`. */
export const homeFolderName = (server: string): string =>
  /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/.test(server) ? server : `%${createHash('sha256').update(server).digest('hex')}`;

const othersMayWrite = 0o022;

export async function prepareHome(homes: string, server: string): Promise<string> {
  const own = path.join(homes, homeFolderName(server));
  const home = path.join(own, 'home');
  try {
    makeFolders(home);
    for (const folder of [homes, own, home]) {
      const facts = await lstat(folder);
      if (!facts.isDirectory()) throw unusable(server, folder, 'is not a folder');
      if (facts.uid !== process.getuid?.()) throw unusable(server, folder, 'belongs to another user');
      // The server may have made its home writable for others, but they cannot reach it inside the state directory.
      if (folder !== home && (facts.mode & othersMayWrite) !== 0)
        throw unusable(server, folder, 'can be written by others');
    }
  } catch (error) {
    if (error instanceof HostError) throw error;
    throw unusable(server, home, `cannot be created (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`, error);
  }
  return home;
}

const unusable = (server: string, folder: string, what: string, cause?: unknown): HostError =>
  new HostError('connect_failed', `server '${server}': its sandbox folder ${folder} ${what}`, {
    server,
    reason: 'sandbox_home',
    field: 'sandbox',
    execution: 'not_executed',
    hint: 'remove it, and check the permissions of the data directory',
    ...(cause === undefined ? {} : { cause }),
  });

/** Environment for a sandboxed server, with folders that exist inside the sandbox. */
export function sandboxAmbient(ambient: Environment): Environment {
  const own = Object.entries(ambient).filter(([name, value]) => !name.startsWith('XDG_') && isVisible(name, value));
  return {
    ...Object.fromEntries(own),
    HOME: homeInside,
    TMPDIR: '/tmp',
    XDG_CACHE_HOME: `${homeInside}/.cache`,
    XDG_CONFIG_HOME: `${homeInside}/.config`,
    XDG_DATA_HOME: `${homeInside}/.local/share`,
    XDG_STATE_HOME: `${homeInside}/.local/state`,
  };
}

/** The sandbox shows only certificate authorities of the system. A variable that names another file would break TLS. */
const isVisible = (name: string, value = ''): boolean =>
  (name !== 'SSL_CERT_FILE' && name !== 'NODE_EXTRA_CA_CERTS') || /^\/(?:etc|usr)\//.test(value);
