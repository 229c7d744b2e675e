/**
 * The data directory: there, private and writable before anything is put into it.
 */
import { accessSync, chmodSync, constants, mkdirSync, statSync } from 'node:fs';
import { HostError } from '../kernel/errors.js';
import { requireTrusted } from '../transports/stdio/state-dir.js';

export function prepareDataDir(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw unusable(folder, 'cannot be made', error);
  }
  if (!statSync(folder).isDirectory()) throw unusable(folder, 'is not a folder', undefined);
  requireTrusted(folder);
  try {
    accessSync(folder, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    throw unusable(folder, 'cannot be read and written', error);
  }
  // Others could see names of servers and sockets; they could not write, which was checked above.
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
      hint: 'give a folder that you may write to with --data-dir',
    },
  );
}
