/**
 * The key of a worker, or of a host at a broker elsewhere, from a file that holds nothing else.
 * Not here: making one (cli/key.ts), keys that open the gateway (gateway/keys/).
 *
 * Invariant: no error quotes what is in the file.
 */
import { readFileSync, statSync } from 'node:fs';
import { HostError } from '../kernel/errors.js';

const keyBytesMax = 4_096;

/** `field`: where whoever reads the error named the file. */
export function readKeyFile(file: string, field: '--key-file' | 'keyFile' | 'broker.keyFile'): string {
  let text: string;
  try {
    if (statSync(file).size > keyBytesMax) throw unusable(file, field, `is larger than ${keyBytesMax} bytes`);
    text = readFileSync(file, 'utf8').trim();
  } catch (cause) {
    if (cause instanceof HostError) throw cause;
    const { code } = cause as NodeJS.ErrnoException;
    throw unusable(file, field, `cannot be read (${code ?? 'unknown'})`, 'see that it is there and may be read', cause);
  }
  if (text === '') throw unusable(file, field, 'is empty');
  if (/\s/.test(text)) throw unusable(file, field, 'holds more than one word');
  return text;
}

const unusable = (
  file: string,
  field: string,
  what: string,
  hint = 'write the key into it, and nothing else',
  cause?: unknown,
): HostError =>
  new HostError('invalid_spec', `the key file ${file} ${what}`, {
    field,
    reason: 'key_file',
    execution: 'not_executed',
    hint,
    cause,
  });
