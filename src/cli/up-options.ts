/**
 * The words of `hostler up`, checked, with every default that does not depend on the configuration.
 * Invariant: who may come in without a key must already be on this machine.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { configFolder } from '../config/folders.js';
import type { ListenSettings } from '../config/listen-settings.js';
import { isLoopback } from '../config/loopback.js';
import { HostError } from '../kernel/errors.js';
import type { Words } from './command.js';
import { dataDirOf } from './running.js';

export interface UpOptions {
  readonly config: string;
  readonly host: string | undefined;
  readonly port: number | undefined;
  readonly dataDir: string;
  readonly auth: 'key' | 'none';
  readonly isStdio: boolean;
  readonly isJson: boolean;
  /** The JSON line has the local key also when it was not just created. */
  readonly showsKey: boolean;
}

const fileName = 'hostler.json';

export function upOptions(words: Words, env: NodeJS.ProcessEnv, cwd: string): UpOptions {
  const auth = words.text('auth') ?? 'key';
  if (auth !== 'key' && auth !== 'none') throw usage('--auth', `'${auth.slice(0, 40)}' is neither key nor none`);
  const port = portOf(words.text('port'));
  return {
    config: words.text('config') ?? findConfig(env, cwd),
    host: words.text('host'),
    port,
    dataDir: path.resolve(cwd, dataDirOf(words, env)),
    auth,
    isStdio: words.has('stdio'),
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

export function findConfig(env: NodeJS.ProcessEnv, cwd: string): string {
  const folder = configFolder(env);
  const places = [path.join(cwd, fileName), ...(folder === undefined ? [] : [path.join(folder, fileName)])];
  const found = places.find((place) => existsSync(place));
  if (found !== undefined) return found;
  throw new HostError('invalid_spec', `there is no configuration: looked for ${places.join(' and ')}`, {
    field: '--config',
    reason: 'no_config',
    hint: `write one, such as {"mcpServers": {"memory": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]}}}, or give a file with --config`,
  });
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
