/**
 * Validates the options of `hostler up`, and sets every default that does not depend on the configuration.
 * Invariant: without keys Hostler listens on loopback only.
 */
import path from 'node:path';
import type { ListenSettings } from '../../config/listen-settings.js';
import { isLoopback } from '../../config/values.js';
import { HostError } from '../../kernel/errors.js';
import type { ParsedArgs } from '../command.js';
import { dataDirOf, givenDataDir } from '../config/data-dir.js';
import { type ConfigLocation, findConfig } from '../config/find-config.js';

/** Tells a process that a relay started it. Servers do not get this variable. */
export const RELAYED_VARIABLE = 'HOSTLER_RELAYED';

export interface UpOptions {
  readonly config: string;
  readonly isFoundInFolder: ConfigLocation['isFoundInFolder'];
  readonly host: string | undefined;
  readonly port: number | undefined;
  readonly dataDir: string;
  readonly auth: 'key' | 'none';
  readonly isStdio: boolean;
  /** True: a relay started this process as the host of its data directory. */
  readonly isRelayed: boolean;
  readonly isJson: boolean;
  /** True: the JSON line contains the local key on every start, not only when it was just created. */
  readonly showsKey: boolean;
}

export function upOptions(args: ParsedArgs, env: NodeJS.ProcessEnv, cwd: string): UpOptions {
  const auth = args.text('auth') ?? 'key';
  if (auth !== 'key' && auth !== 'none') throw usage('--auth', `'${auth.slice(0, 40)}' is neither key nor none`);
  const port = portOf(args.text('port'));
  const isStdio = args.has('stdio');
  // A client starts --stdio in the working folder of its user, which may be an untrusted repository.
  const location = findConfig({ given: args.text('config'), env, cwd, searchesFolder: !isStdio });
  // The path is absolute, because a Hostler in another folder compares it with its own (relay-admission.ts).
  const config = path.resolve(cwd, location.file);
  return {
    config,
    isFoundInFolder: location.isFoundInFolder,
    host: args.text('host'),
    port,
    dataDir: path.resolve(cwd, givenDataDir(args, env) ?? dataDirOf(config, env)),
    auth,
    isStdio,
    isRelayed: env[RELAYED_VARIABLE] !== undefined,
    isJson: args.has('json'),
    showsKey: args.has('show-key'),
  };
}

function portOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (port <= 65_535) return port;
  throw usage('--port', `'${text.slice(0, 40)}' is not a number from 0 to 65535`);
}

/** Options of the command line override the configuration. */
export function listenOf(configured: ListenSettings, { host, port, auth, config }: UpOptions): ListenSettings {
  const below = (file: string) => path.resolve(path.dirname(config), file);
  const { cert, key } = configured.tls ?? {};
  const tls = cert !== undefined && key !== undefined ? { cert: below(cert), key: below(key) } : undefined;
  const listen = {
    ...configured,
    tls,
    ...(host === undefined ? {} : { host }),
    ...(port === undefined ? {} : { port }),
  };
  if (auth === 'none' && !isLoopback(listen.host)) {
    throw usage(
      '--auth',
      `'none' would accept every client that can reach ${listen.host}`,
      'leave --auth out, or listen on 127.0.0.1 only',
    );
  }
  return listen;
}

const usage = (field: string, what: string, hint = 'hostler up --help shows the usage'): HostError =>
  new HostError('invalid_spec', `${field}: ${what}`, { field, reason: 'usage', hint });
