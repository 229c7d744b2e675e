/** Where the running Hostler of a data directory is spoken to. */
import path from 'node:path';
import { HostError } from '../../kernel/errors.js';

/** What fits into the address of a socket: 108 bytes on Linux, 104 on macOS, each with a NUL at the end. */
const pathBytesMax = process.platform === 'linux' ? 107 : 103;

export function controlPath(dataDir: string): string {
  const file = path.join(path.resolve(dataDir), 'control.sock');
  const bytes = Buffer.byteLength(file);
  if (bytes <= pathBytesMax) return file;
  throw new HostError('invalid_spec', `the data directory ${dataDir} has too long a path for a socket in it`, {
    field: '--data-dir',
    reason: 'too_long',
    limit: pathBytesMax,
    actual: bytes,
    hint: 'give a shorter one with --data-dir',
  });
}
