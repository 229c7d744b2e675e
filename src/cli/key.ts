/**
 * `hostler key add|list|revoke|nats`: edits and lists `keys` of the configuration. A running Hostler applies a change within a
 * second. nats-server does not read this file; `hostler key nats` prints the configuration for it.
 * Not here: adding a key (key/add-key.ts), the configuration of nats-server (key/print-nats-config.ts).
 * Invariant: a key is shown once, when it is created. The configuration contains only its hash, or its public nkey.
 */
import { readConfigFile } from '../config/config-file.js';
import { editConfigFile } from '../config/edit-config.js';
import { type KeyEntry, type Keys, parseKeys } from '../config/keys.js';
import { systemClock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { type Command, jsonOption, type ParsedArgs } from './command.js';
import { commandConfig } from './config/running-hosts.js';
import { EXIT } from './exit-codes.js';
import { keyUsage, keyUsageError } from './key/key-usage.js';
import { printJson, printLines, printText } from './output/print.js';
import { screenOf } from './output/styled.js';
import { table } from './output/table.js';

/** Maximum length of an argument that an error quotes. */
const shownChars = 64;
const actions: readonly string[] = ['add', 'list', 'revoke', 'nats'];

export const key: Command = {
  name: 'key',
  usage: keyUsage,
  example: 'key add ann --role reader',
  options: {
    'role=': 'the role of the key, which decides what it may use',
    'no-role': 'for a worker without a role; needs unlistedRole: "allow"',
    'worker=': 'a key for this worker; it opens the broker only',
    host: 'for a host that serves workers over NATS',
    'expires=': 'when it expires, like 2027-01-31 or 2027-01-31T12:00Z',
    nats: 'a key pair for NATS; NATS gets only the public half',
    'key-file=': 'write the key to this new file instead of printing it',
    'config=': 'the configuration to change',
    ...jsonOption,
  },
  optionsOf: {
    nats: {
      'listen=': 'address of the NATS server; default 127.0.0.1:4222',
      'store-dir=': 'data folder of the NATS server; default /var/lib/nats',
      'tls-cert=': 'certificate of the NATS server',
      'tls-key=': 'private key of that certificate',
      sync: 'sync each write to disk first; nats-server 2.10 or newer',
      'max-store=': 'size of its data folder in MiB; default 1024',
      'monitor=': 'address of its monitoring port, like 127.0.0.1:8222',
      'output=': 'write the configuration to this file',
      'reload=': 'then tell the nats-server with this pid to reload',
    },
  },
  positionals: [1, 2],
  async run(args) {
    const [what = '', given] = args.positionals;
    if (!actions.includes(what))
      throw keyUsageError(`'${neutraliseLine(what, shownChars)}' is not one of ${actions.join(', ')}`);
    const name = what === 'add' || what === 'revoke' ? required(given) : '';
    const { file } = await commandConfig(args);
    switch (what) {
      case 'add':
        return (await import('./key/add-key.js')).addKey(args, file, name);
      case 'list':
        return list(args, file);
      case 'revoke':
        return revoke(args, file, name);
      default:
        return (await import('./key/print-nats-config.js')).printNatsConfig(args, keysOf(file));
    }
  },
};

function list(args: ParsedArgs, file: string): number {
  const now = systemClock.date().getTime();
  const rows = [...keysOf(file)].map(([name, entry]) => ({
    name,
    opens: entry.worker ? 'broker' : entry.isHost ? 'NATS' : 'gateway',
    role: entry.role ?? null,
    worker: entry.worker?.name ?? null,
    expires: entry.expiresAtMs === undefined ? null : new Date(entry.expiresAtMs).toISOString(),
    isExpired: isExpired(entry, now),
  }));
  if (args.has('json')) printJson({ keys: rows });
  else if (rows.length === 0) printText('the configuration has no keys; only the local key of this machine is valid');
  else
    printLines(
      table(
        [
          ['NAME', 'OPENS', 'ROLE', 'WORKER', 'EXPIRES'],
          ...rows.map(({ name, opens, role, worker, expires, isExpired: isOver }) => [
            ...[name, opens, role ?? '-', worker ?? '-'],
            expires === null ? 'never' : isOver ? `${expires} (expired)` : expires,
          ]),
        ],
        screenOf(process.stdout),
      ),
    );
  return EXIT.done;
}

const isExpired = ({ expiresAtMs }: KeyEntry, now: number): boolean => expiresAtMs !== undefined && expiresAtMs <= now;

function revoke(args: ParsedArgs, file: string, name: string): number {
  // `hasEntry` does not parse the entry: an invalid entry can be revoked too.
  if (!hasEntry(file, name)) throw unknown(name);
  let isPair = false;
  editConfigFile(file, ['keys', name], undefined, (config) => {
    isPair = entryOf(config, name)?.nkey !== undefined;
  });
  if (args.has('json')) printJson({ revoked: name, file, isNatsPair: isPair });
  process.stderr.write(
    isPair
      ? `key '${name}' was removed from ${file}; nats-server accepts it until you install the output of hostler key nats\n`
      : `key '${name}' was removed from ${file} and is no longer accepted\n`,
  );
  return EXIT.done;
}

function keysOf(file: string): Keys {
  const { config } = readConfigFile(file, process.env);
  return parseKeys((config as { keys?: unknown }).keys ?? {}, () => {});
}

const hasEntry = (file: string, name: string): boolean => holds(readConfigFile(file, process.env).config, name);

function holds(config: unknown, name: string): boolean {
  const { keys } = (config ?? {}) as { keys?: unknown };
  return typeof keys === 'object' && keys !== null && Object.hasOwn(keys, name);
}

/** The entry is not parsed: it may be invalid. */
const entryOf = (config: unknown, name: string): { nkey?: unknown } | undefined =>
  holds(config, name)
    ? ((config as { keys: Record<string, { nkey?: unknown } | null> }).keys[name] ?? undefined)
    : undefined;

function required(name: string | undefined): string {
  if (name === undefined) throw keyUsageError('the name of the key is missing');
  return name;
}

const unknown = (name: string): HostError =>
  new HostError('invalid_spec', `there is no key '${neutraliseLine(name, shownChars)}'`, {
    field: `keys.${neutraliseLine(name, shownChars)}`,
    hint: 'hostler key list shows the keys',
  });
