/**
 * The home of a sandboxed server: one folder per server name in the data directory, kept between starts, so that package
 * runners find what they downloaded.
 * Invariant: two names never share a folder, and a server can write inside its home only, so it cannot put a link in the
 * place of the home itself.
 */
import { createHash } from 'node:crypto';
import { lstat, mkdir } from 'node:fs/promises';
import path from 'node:path';
import { HostError } from '../../../kernel/errors.js';
import type { Environment } from '../../environment.js';

/** Where a server finds it. Neutral, so that it collides with no real path and says nothing about the user. */
export const homeInside = '/sandbox/home';

/** Names of a configuration stand for themselves; any other text is hashed, because it may hold `/` or be `..`. */
export const homeFolderName = (server: string): string =>
  /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/.test(server) ? server : `%${createHash('sha256').update(server).digest('hex')}`;

const othersMayWrite = 0o022;

/** Creates it where needed. */
export async function prepareHome(homes: string, server: string): Promise<string> {
  const own = path.join(homes, homeFolderName(server));
  const home = path.join(own, 'home');
  try {
    await mkdir(home, { recursive: true, mode: 0o700 });
    for (const folder of [homes, own, home]) {
      const facts = await lstat(folder);
      if (!facts.isDirectory()) throw unusable(server, folder, 'is not a folder');
      if (facts.uid !== process.getuid?.()) throw unusable(server, folder, 'belongs to another user');
      // The server itself may have opened its home to others, who cannot reach it inside the data directory.
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
  new HostError('connect_failed', `server '${server}': the folder of its sandbox ${folder} ${what}`, {
    server,
    reason: 'sandbox_home',
    field: 'sandbox',
    execution: 'not_executed',
    hint: 'remove it, and check who may write to the data directory',
    ...(cause === undefined ? {} : { cause }),
  });

/** Our own environment as a sandboxed server gets it: with folders that exist inside. */
export function sandboxAmbient(ambient: Environment): Environment {
  const own = Object.entries(ambient).filter(([name]) => !name.startsWith('XDG_'));
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
