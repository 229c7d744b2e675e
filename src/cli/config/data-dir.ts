/**
 * Chooses the data directory, and makes sure that it is private and writable before it is used.
 * Each configuration file has a data directory of its own, so that two projects can run at once. The configuration of the user uses
 * the data folder itself.
 */
import { createHash } from 'node:crypto';
import { accessSync, chmodSync, constants, statSync } from 'node:fs';
import path from 'node:path';
import { dataFolder, ownConfigFile, userDataFolder } from '../../config/folders.js';
import { HostError } from '../../kernel/errors.js';
import { isFolder, makeFolders } from '../../kernel/make-folders.js';
import { requireTrusted } from '../../transports/stdio/state-dir.js';
import type { ParsedArgs } from '../command.js';
import { realPath } from './find-config.js';

type Environment = NodeJS.ProcessEnv;

const hashChars = 10;
const labelCharsMax = 16;
/** Longest directory that leaves room for `/control.sock` in a socket address of 103 bytes. */
const dirBytesMax = 90;

/** The data directory that `--data-dir` or HOSTLER_DATA_DIR names. */
export const givenDataDir = (args: ParsedArgs, env: Environment): string | undefined =>
  args.text('data-dir') ?? (env.HOSTLER_DATA_DIR ? dataFolder(env) : undefined);

/** The data directory of a configuration file that is used without `--data-dir`; without a file, the data folder of the user. */
export function dataDirOf(config: string | undefined, env: Environment): string {
  const base = userDataFolder(env);
  if (base === undefined) throw noHome();
  if (config === undefined) return base;
  const own = ownConfigFile(env);
  const real = realPath(config);
  if (own !== undefined && real === realPath(own)) return base;
  const projects = path.join(base, 'projects');
  const room = dirBytesMax - Buffer.byteLength(projects) - 2 - hashChars;
  const label = path
    .basename(path.dirname(real))
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .slice(0, Math.max(0, Math.min(labelCharsMax, room)));
  return path.join(projects, `${label}-${shortHash(real)}`.replace(/^-+/, ''));
}

export const shortHash = (text: string): string => createHash('sha256').update(text).digest('hex').slice(0, hashChars);

const noHome = (): HostError =>
  new HostError('invalid_spec', 'there is no data directory: HOME is not set', {
    field: '--data-dir',
    reason: 'no_home',
    hint: 'choose one with --data-dir',
  });

export function prepareDataDir(folder: string): void {
  try {
    makeFolders(path.resolve(folder));
  } catch (error) {
    throw unusable(folder, 'cannot be created', error);
  }
  if (!isFolder(folder)) throw unusable(folder, 'is not a folder', undefined);
  requireTrusted(folder);
  try {
    accessSync(folder, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    throw unusable(folder, 'cannot be read and written', error);
  }
  // Without this, other users can read the names of servers and sockets.
  if ((statSync(folder).mode & 0o077) !== 0) chmodSync(folder, 0o700);
}

function unusable(folder: string, what: string, error: unknown): HostError {
  const { code } = (error ?? {}) as NodeJS.ErrnoException;
  return new HostError(
    'invalid_spec',
    `the data directory ${folder} ${what}${code === undefined ? '' : ` (${code})`}`,
    {
      field: '--data-dir',
      reason: code ?? 'data_dir',
      hint: 'with --data-dir, choose a folder that you may write to',
    },
  );
}
