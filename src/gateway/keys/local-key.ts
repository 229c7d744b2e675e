/**
 * The local key: a file in the data directory, created by the first start. Its readers have the rights of the embedder.
 * Not here: authentication (keys.ts).
 * Invariants: concurrent first starts create one key, and all of them use it. A symbolic link, or a file that other users could
 * read, is refused and not repaired: another user may already know the key.
 */
import {
  closeSync,
  constants,
  copyFileSync,
  fstatSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import path from 'node:path';
import { newKey } from '../../config/keys.js';
import { HostError } from '../../kernel/errors.js';
import { newId } from '../../kernel/random.js';
import { requireTrusted } from '../../transports/stdio/state-dir.js';

const fileName = 'key';
const fileBytesMax = 1_024;
/** The operator may write the key file by hand, so any bearer token of 32 to 512 characters is accepted. */
const usableKey = /^[A-Za-z0-9._~+/-]{32,512}=*$/;
const othersMayUse = 0o077;

export interface LocalKey {
  readonly key: string;
  readonly isNew: boolean;
}

/** Throws a HostError if the file is not trusted or cannot be created. */
export function readOrCreateLocalKey(dataDir: string): LocalKey {
  const file = path.join(dataDir, fileName);
  try {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw unusable(file, 'cannot be created', 'choose a data directory that Hostler may write to', cause);
  }
  requireTrusted(dataDir);
  const found = read(file);
  if (found !== undefined) return { key: found, isNew: false };
  const key = newKey();
  if (create(file, key)) return { key, isNew: true };
  const others = read(file);
  if (others === undefined) throw unusable(file, 'cannot be created', 'start Hostler again');
  return { key: others, isNew: false };
}

/** Undefined: the file does not exist. */
function read(file: string): string | undefined {
  let descriptor: number;
  try {
    descriptor = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (cause) {
    if (codeOf(cause) === 'ENOENT') return undefined;
    if (codeOf(cause) === 'ELOOP')
      throw unusable(
        file,
        'is a symbolic link',
        'replace it by a file with the key, or remove it: the next start creates one',
        cause,
      );
    throw unusable(file, 'cannot be read', 'give it to the user that Hostler runs as', cause);
  }
  try {
    mustBePrivate(file, descriptor);
    const key = readFileSync(descriptor, 'latin1').trim();
    if (!usableKey.test(key)) throw unusable(file, 'holds no key', 'remove it: the next start creates one');
    return key;
  } finally {
    closeSync(descriptor);
  }
}

function mustBePrivate(file: string, descriptor: number): void {
  const facts = fstatSync(descriptor);
  const ownUid = process.getuid?.();
  if (!facts.isFile()) throw unusable(file, 'is not a file', 'remove it: the next start creates one');
  if (facts.size > fileBytesMax)
    throw unusable(file, 'is too large for a key', 'remove it: the next start creates one');
  // Windows has no file owner and mode to check.
  if (ownUid === undefined) return;
  if (facts.uid !== ownUid)
    throw unusable(file, 'belongs to another user', 'choose a data directory that no other user shares');
  if ((facts.mode & othersMayUse) !== 0)
    throw unusable(file, 'can be read by others', `chmod 600 ${file}, or remove it if another user may have read it`);
}

/** False: another process created the file first. A link makes the file appear complete, so no reader sees half a key. */
function create(file: string, key: string): boolean {
  const draft = `${file}.${newId()}`;
  try {
    write(draft, key);
    try {
      // Not a rename, which would replace a key that another process has created since.
      linkSync(draft, file);
    } catch (error) {
      if (codeOf(error) === 'EEXIST') return false;
      // Some file systems do not support hard links.
      copyFileSync(draft, file, constants.COPYFILE_EXCL);
    }
    return true;
  } catch (cause) {
    if (codeOf(cause) === 'EEXIST') return false;
    throw unusable(file, 'cannot be created', 'let Hostler write to its data directory', cause);
  } finally {
    remove(draft);
  }
}

function write(file: string, key: string): void {
  const { O_CREAT, O_EXCL, O_WRONLY, O_NOFOLLOW } = constants;
  const descriptor = openSync(file, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW, 0o600);
  try {
    writeSync(descriptor, `${key}\n`);
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function remove(file: string): void {
  try {
    unlinkSync(file);
  } catch {
    // The file was never created.
  }
}

const codeOf = (error: unknown): string => String((error as { code?: unknown } | null)?.code ?? '');

const unusable = (file: string, what: string, hint: string, cause?: unknown): HostError =>
  new HostError('invalid_spec', `the key file ${file} ${what}`, { field: 'dataDir', reason: 'key_file', hint, cause });
