/**
 * Finds the entries of a configuration that start or reach Hostler with this same configuration. The file of a connected client has
 * such an entry beside its servers. If Hostler used it, each list would contain Hostler's own tools once more.
 * Not here: a second check when a relay connects (cli/up/relay-admission.ts).
 * Invariant: only the entry itself is refused. The refusal is a note, not a fault of the file.
 */
import { realpathSync } from 'node:fs';
import { hostname, networkInterfaces } from 'node:os';
import path from 'node:path';
import { noteReason } from './client-config.js';
import { UnusableEntry } from './copy-config.js';
import { type Environment, ownConfigFile } from './folders.js';
import { invalidSpec } from './invalid-spec.js';
import { isLoopback } from './values.js';

type Table = Readonly<Record<string, unknown>>;

/** Programs that run another program or a script. Not `ssh` and `docker`: they run it on another machine or in a container. */
const launcher = /(?:^|[\\/])(?:node(?:js)?|npx|npm|pnpm|pnpx|yarn|bunx?|env|cmd)(?:\.exe|\.cmd)?$/i;
const wildcards: ReadonlySet<string> = new Set(['0.0.0.0', '::', '']);
const ownProgram = /(?:^|[\\/])(?:hostler(?:@[\w.^~-]+)?(?:\.cmd)?|dist[\\/]cli[\\/]main\.c?js)$/;

/** `file`: the configuration. Refuses entries that start `hostler up --stdio` with it. */
export const refuseOwnCommands = (config: unknown, file: string, env: Environment): unknown =>
  refuse(config, (entry) => isOwnCommand(entry, file, env));

/** `url`: an endpoint of this Hostler; undefined if it opened no port. `host`: the address at which it listens. */
export const refuseOwnUrls = <T>(config: T, url: string | undefined, host: string): T =>
  url === undefined ? config : (refuse(config, (entry) => isOwnUrl(entry.url, url, host)) as T);

/** True if the entry starts `hostler up --stdio` with the configuration `file`; without `file`, with any configuration. */
export function isOwnCommand(
  { command, args = [], cwd, env: declared }: Table,
  file?: string,
  env?: Environment,
): boolean {
  if (!Array.isArray(args)) return false;
  const words = [command, ...args].map(String);
  const last = launcher.test(String(command)) ? words.length - 1 : 0;
  return words.some((word, i) => {
    if (i > last || !isOwnProgram(word)) return false;
    const [name, ...options] = words.slice(i + 1).filter((each) => each !== '--');
    if (name !== 'up' || !options.includes('--stdio')) return false;
    if (file === undefined) return true;
    // Without --config the relay uses the user's own file. It does not search its working folder.
    const given = configOf(options) ?? ownConfigFile({ ...env, ...(isTable(declared) ? declared : {}) } as Environment);
    const folder = typeof cwd === 'string' ? cwd : '';
    return given !== undefined && isSame(path.resolve(path.dirname(file), folder, given), file);
  });
}

const isOwnProgram = (word: string): boolean =>
  ownProgram.test(word) || (path.isAbsolute(word) && isSame(word, process.argv[1] ?? ''));

function configOf(options: readonly string[]): string | undefined {
  const joined = options.find((each) => each.startsWith('--config='));
  const at = options.indexOf('--config');
  return joined?.slice('--config='.length) ?? (at < 0 ? undefined : options[at + 1]);
}

function isOwnUrl(given: unknown, url: string, host: string): boolean {
  if (typeof given !== 'string' || !URL.canParse(given)) return false;
  const [theirs, ours] = [new URL(given), new URL(url)];
  if (theirs.port !== ours.port || theirs.protocol !== ours.protocol) return false;
  const [name, own] = [theirs, ours].map(({ hostname: host }) => host.replace(/^\[|\]$/g, '')) as [string, string];
  // A connection to a wildcard address reaches loopback.
  const isLocal = isLoopback(name) || wildcards.has(name);
  const isEverywhere = wildcards.has(host);
  return name === own || ((isEverywhere || isLoopback(own)) && isLocal) || (isEverywhere && isOfMachine(name));
}

const isOfMachine = (name: string): boolean =>
  name === hostname().toLowerCase() ||
  Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === name));

function refuse(config: unknown, isOwn: (entry: Table) => boolean): unknown {
  if (!isTable(config) || !isTable(config.mcpServers)) return config;
  const entries = Object.entries(config.mcpServers).map(([name, given]): [string, unknown] => {
    // Another fault of such an entry, such as a variable that is not set, does not matter.
    const entry = given instanceof UnusableEntry ? given.entry : given;
    if (!isTable(entry) || !isOwn(entry)) return [name, given];
    const label = typeof entry.label === 'string' ? { label: entry.label } : {};
    return [name, new UnusableEntry(ownEntry(name), label)];
  });
  return Object.assign(Object.create(null), config, { mcpServers: Object.fromEntries(entries) });
}

const ownEntry = (name: string) =>
  invalidSpec(
    `mcpServers.${name}`,
    'is Hostler itself, which would list its own tools again; it is left out',
    'leave the entry for the client of this file; the other servers run',
    { reason: noteReason },
  );

function isSame(one: string, other: string): boolean {
  try {
    return realpathSync(one) === realpathSync(other);
  } catch {
    return path.resolve(one) === path.resolve(other);
  }
}

const isTable = (value: unknown): value is Table =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
