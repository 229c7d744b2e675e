/**
 * The key of this machine: a file in the data directory, made on the first start. Whoever can read the directory is the
 * operator, and comes in as whoever embeds the host.
 * Not here: checking a key (keys.ts).
 *
 * Invariants: however many first starts there are at once, one key is made and all of them have it; a file that somebody else
 * could have read, or that leads elsewhere, is refused and not repaired, since its key may be known already.
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
/** As a header can carry it, and no shorter than 32 characters: somebody may have put a key of their own there. */
const usableKey = /^[A-Za-z0-9._~+/-]{32,512}=*$/;
const othersMayUse = 0o077;

export interface LocalKey {
  readonly key: string;
  readonly isNew: boolean;
}

/** Throws when there is a file that cannot be trusted, or none can be made. */
export function readOrMakeLocalKey(dataDir: string): LocalKey {
  const file = path.join(dataDir, fileName);
  try {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw unusable(file, 'cannot be made', 'give a data directory that Hostler may write to', cause);
  }
  requireTrusted(dataDir);
  const found = read(file);
  if (found !== undefined) return { key: found, isNew: false };
  const key = newKey();
  if (make(file, key)) return { key, isNew: true };
  const others = read(file);
  if (others === undefined) throw unusable(file, 'cannot be made', 'start Hostler again');
  return { key: others, isNew: false };
}

/** Undefined when there is none. */
function read(file: string): string | undefined {
  let descriptor: number;
  try {
    descriptor = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (cause) {
    if (codeOf(cause) === 'ENOENT') return undefined;
    if (codeOf(cause) === 'ELOOP')
      throw unusable(file, 'is a symbolic link', 'put the key itself there, or remove it: a new one is made', cause);
    throw unusable(file, 'cannot be read', 'see that it belongs to the user Hostler runs as', cause);
  }
  try {
    mustBePrivate(file, descriptor);
    const key = readFileSync(descriptor, 'latin1').trim();
    if (!usableKey.test(key)) throw unusable(file, 'holds no key', 'remove it: a new one is made at the next start');
    return key;
  } finally {
    closeSync(descriptor);
  }
}

function mustBePrivate(file: string, descriptor: number): void {
  const facts = fstatSync(descriptor);
  const ownUid = process.getuid?.();
  if (!facts.isFile()) throw unusable(file, 'is not a file', 'remove it: a new one is made at the next start');
  if (facts.size > fileBytesMax) throw unusable(file, 'is too large for a key', 'remove it: a new one is made');
  // Where there are no users, there is nothing to check.
  if (ownUid === undefined) return;
  if (facts.uid !== ownUid) throw unusable(file, 'belongs to another user', 'give Hostler a data directory of its own');
  if ((facts.mode & othersMayUse) !== 0)
    throw unusable(file, 'can be read by others', `chmod 600 ${file}, or remove it if somebody may have read it`);
}

/** False when somebody else was faster. Whole or not at all: nobody can read half a key. */
function make(file: string, key: string): boolean {
  const draft = `${file}.${newId()}`;
  try {
    write(draft, key);
    try {
      // Not by renaming, which would replace the key of somebody who was faster.
      linkSync(draft, file);
    } catch (error) {
      if (codeOf(error) === 'EEXIST') return false;
      // File systems without links.
      copyFileSync(draft, file, constants.COPYFILE_EXCL);
    }
    return true;
  } catch (cause) {
    if (codeOf(cause) === 'EEXIST') return false;
    throw unusable(file, 'cannot be made', 'see that Hostler may write to its data directory', cause);
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
    // It was never made.
  }
}

const codeOf = (error: unknown): string => String((error as { code?: unknown } | null)?.code ?? '');

const unusable = (file: string, what: string, hint: string, cause?: unknown): HostError =>
  new HostError('invalid_spec', `the key file ${file} ${what}`, { field: 'dataDir', reason: 'key_file', hint, cause });
