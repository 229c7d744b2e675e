/**
 * The key of a worker, from a file that holds nothing else.
 * Invariant: no error quotes what is in the file.
 */
import { readFileSync, statSync } from 'node:fs';
import { HostError } from '../../kernel/errors.js';

const keyBytesMax = 4_096;

export function readKeyFile(file: string): string {
  let text: string;
  try {
    if (statSync(file).size > keyBytesMax) throw unusable(file, `is larger than ${keyBytesMax} bytes`);
    text = readFileSync(file, 'utf8').trim();
  } catch (cause) {
    if (cause instanceof HostError) throw cause;
    throw unusable(file, `cannot be read (${(cause as NodeJS.ErrnoException).code ?? 'unknown'})`);
  }
  if (text === '') throw unusable(file, 'is empty');
  if (/\s/.test(text)) throw unusable(file, 'holds more than one word');
  return text;
}

const unusable = (file: string, what: string): HostError =>
  new HostError('invalid_spec', `the key file ${file} ${what}`, {
    field: '--key-file',
    reason: 'key_file',
    execution: 'not_executed',
    hint: 'write the key of this worker into it, and nothing else',
  });
