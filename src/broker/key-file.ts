/**
 * The key of a worker or a host, from a file that holds nothing else.
 * Invariants: no error quotes what is in the file; a key file that other users of this machine can read is refused.
 */
import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs';
import { HostError } from '../kernel/errors.js';

const keyBytesMax = 4_096;
/** Permission bits of the group and of other users. */
const ofOthers = 0o077;

/** `field`: the option or setting that named the file. */
export function readKeyFile(file: string, field: '--key-file' | 'keyFile' | 'broker.keyFile'): string {
  const unusable = (what: string, hint = 'write the key into it, and nothing else', cause?: unknown): HostError =>
    new HostError('invalid_spec', `the key file ${file} ${what}`, {
      ...{ field, reason: 'key_file', execution: 'not_executed', hint },
      ...(cause === undefined ? {} : { cause }),
    });
  let text: string;
  try {
    const opened = openSync(file, 'r');
    try {
      const facts = fstatSync(opened);
      // On Windows, and for a pipe, the mode does not tell which users can read it.
      if (facts.isFile() && process.platform !== 'win32' && (facts.mode & ofOthers) !== 0)
        throw unusable('can be read or changed by others', `run chmod 600 ${file}`);
      if (facts.size > keyBytesMax) throw unusable(`is larger than ${keyBytesMax} bytes`);
      text = readFileSync(opened, 'utf8').trim();
    } finally {
      closeSync(opened);
    }
  } catch (cause) {
    if (cause instanceof HostError) throw cause;
    const { code } = cause as NodeJS.ErrnoException;
    throw unusable(`cannot be read (${code ?? 'unknown'})`, 'see that Hostler may read it', cause);
  }
  if (text === '') throw unusable('is empty');
  if (/\s/.test(text)) throw unusable('holds more than one word');
  return text;
}
