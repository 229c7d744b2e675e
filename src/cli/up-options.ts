/**
 * The words of `hostler up`, checked, with every default that does not depend on the configuration.
 * Invariant: who may come in without a key must already be on this machine.
 */
import path from 'node:path';
import type { ListenSettings } from '../config/listen-settings.js';
import { isLoopback } from '../config/values.js';
import { HostError } from '../kernel/errors.js';
import type { Words } from './command.js';
import { type ConfigPlace, findConfig } from './find-config.js';
import { dataDirOf } from './running.js';

export interface UpOptions {
  readonly config: string;
  readonly isFoundInFolder: ConfigPlace['isFoundInFolder'];
  readonly host: string | undefined;
  readonly port: number | undefined;
  readonly dataDir: string;
  readonly auth: 'key' | 'none';
  readonly isStdio: boolean;
  readonly isJson: boolean;
  /** The JSON line has the local key also when it was not just created. */
  readonly showsKey: boolean;
}

export function upOptions(words: Words, env: NodeJS.ProcessEnv, cwd: string): UpOptions {
  const auth = words.text('auth') ?? 'key';
  if (auth !== 'key' && auth !== 'none') throw usage('--auth', `'${auth.slice(0, 40)}' is neither key nor none`);
  const port = portOf(words.text('port'));
  const isStdio = words.has('stdio');
  // A client starts it in the folder of whatever its user works on: a stranger's repository, too.
  const place = findConfig({ given: words.text('config'), env, cwd, searchesFolder: !isStdio });
  return {
    // Absolute: a Hostler in another folder that is told of it compares it with its own (join-running.ts).
    config: path.resolve(cwd, place.file),
    isFoundInFolder: place.isFoundInFolder,
    host: words.text('host'),
    port,
    dataDir: path.resolve(cwd, dataDirOf(words, env)),
    auth,
    isStdio,
    isJson: words.has('json'),
    showsKey: words.has('show-key'),
  };
}

export function portOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (port <= 65_535) return port;
  throw usage('--port', `'${text.slice(0, 40)}' is not a number from 0 to 65535`);
}

/** What the command line says counts more than the configuration. */
export function listenOf(configured: ListenSettings, { host, port, auth }: UpOptions): ListenSettings {
  const listen = { ...configured, ...(host === undefined ? {} : { host }), ...(port === undefined ? {} : { port }) };
  if (auth === 'none' && !isLoopback(listen.host)) {
    throw usage(
      '--auth',
      `none would let everybody in who reaches ${listen.host}`,
      'leave --auth out, or listen at 127.0.0.1 only',
    );
  }
  return listen;
}

const usage = (field: string, what: string, hint = 'hostler up --help shows how it is used'): HostError =>
  new HostError('invalid_spec', `${field}: ${what}`, { field, reason: 'usage', hint });
