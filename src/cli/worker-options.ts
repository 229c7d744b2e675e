/**
 * The words of `hostler worker`, checked.
 * Invariant: the key is never a word of the command line, where others of this machine can read it.
 */
import { readKeyFile } from '../broker/key-file.js';
import { parseDuration } from '../config/values.js';
import { HostError } from '../kernel/errors.js';
import type { Words } from './command.js';

export interface WorkerOptions {
  readonly broker: string;
  readonly key: string;
  readonly callMs: number;
  readonly insecure: boolean;
  readonly isJson: boolean;
}

const callDefault = '60s';

export function workerOptions(words: Words, env: NodeJS.ProcessEnv): WorkerOptions {
  const broker = words.text('broker');
  if (broker === undefined) throw usage('--broker', 'is missing', 'give the address that the broker shows');
  return {
    broker,
    key: keyOf(words.text('key-file') ?? (env.HOSTLER_KEY_FILE || undefined), env.HOSTLER_KEY?.trim()),
    callMs: parseDuration(words.text('timeout') ?? callDefault, '--timeout'),
    insecure: words.has('insecure'),
    isJson: words.has('json'),
  };
}

function keyOf(file: string | undefined, key: string | undefined): string {
  if (file !== undefined) return readKeyFile(file, '--key-file');
  if (key) return key;
  throw usage('--key-file', 'is missing', 'give the file that holds the key of this worker, or set HOSTLER_KEY_FILE');
}

const usage = (field: string, what: string, hint: string): HostError =>
  new HostError('invalid_spec', `${field} ${what}`, { field, reason: 'usage', hint });
