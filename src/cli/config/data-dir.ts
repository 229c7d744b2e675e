/** Chooses the data directory and makes sure that it is private and writable before it is used. */
import { accessSync, chmodSync, constants, mkdirSync, statSync } from 'node:fs';
import { dataFolder } from '../../config/folders.js';
import { HostError } from '../../kernel/errors.js';
import { requireTrusted } from '../../transports/stdio/state-dir.js';
import type { ParsedArgs } from '../command.js';

export function dataDirOf(args: ParsedArgs, env: NodeJS.ProcessEnv = process.env): string {
  const folder = args.text('data-dir') ?? dataFolder(env);
  if (folder !== undefined) return folder;
  throw new HostError('invalid_spec', 'there is no data directory: HOME is not set', {
    field: '--data-dir',
    reason: 'no_home',
    hint: 'choose one with --data-dir',
  });
}

export function prepareDataDir(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw unusable(folder, 'cannot be created', error);
  }
  if (!statSync(folder).isDirectory()) throw unusable(folder, 'is not a folder', undefined);
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
      hint: 'choose a folder that you may write to with --data-dir',
    },
  );
}
