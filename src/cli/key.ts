/**
 * `hostler key add|list|revoke|nats`: edits and lists `keys` of the configuration. A running Hostler applies a change within a
 * second. nats-server does not read this file; `hostler key nats` prints the configuration for it.
 * Invariant: a key is shown once, when it is created. The configuration contains only its hash, or its public nkey.
 */
import { hash } from 'node:crypto';
import { realpathSync, rmSync, writeFileSync } from 'node:fs';
import { readConfigFile } from '../config/config-file.js';
import { editConfigFile } from '../config/edit-config.js';
import { ownDataFolder } from '../config/folders.js';
import { isHostKey, type KeyEntry, type Keys, newKey, parseKeys } from '../config/keys.js';
import { everyMailbox, hostMailbox } from '../config/values.js';
import { systemClock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { type Command, jsonOption, type ParsedArgs, usageError } from './command.js';
import { findConfig } from './config/find-config.js';
import { EXIT } from './exit-codes.js';
import { printJson, printText, textTable } from './output/print.js';
import { digestOfKey } from './trust/config-parts.js';
import { TrustStore } from './trust/trust-store.js';

const natsListenDefault = '127.0.0.1:4222';
const natsStoreDirDefault = '/var/lib/nats';
/** Maximum length of an argument that an error quotes. */
const shownChars = 64;

export const key: Command = {
  name: 'key',
  usage:
    'add NAME [--role R] [--worker|--host] [--mailbox M] [--expires DATE] [--nats] [--key-file FILE] | list [--json] | revoke NAME | nats',
  options: {
    'role=': 'the role of the key, which decides what it may use',
    worker: 'for a worker on another machine: it opens the broker and nothing else',
    host: 'for a host that serves the broker of another machine',
    'mailbox=': 'its mailbox at the broker; by default the name of the key',
    'expires=': 'when it expires, like 2027-01-31 or 2027-01-31T12:00:00Z',
    nats: 'a key pair for NATS, whose server knows only the public half',
    'key-file=': 'write the key into this new file instead of printing it',
    'listen=': 'with nats: address of the NATS server, 127.0.0.1:4222',
    'store-dir=': 'with nats: data folder of the NATS server, /var/lib/nats',
    'config=': 'the configuration to change',
    ...jsonOption,
  },
  positionals: [1, 2],
  async run(args) {
    const [what, name] = args.positionals;
    const { file } = findConfig({ given: args.text('config'), env: process.env, cwd: process.cwd() });
    switch (what) {
      case 'add':
        return add(args, file, required(name));
      case 'list':
        return list(args, file);
      case 'revoke':
        return revoke(file, required(name));
      case 'nats':
        return nats(args, file);
      default:
        throw usageError(key, `'${neutraliseLine(String(what), shownChars)}' is not one of add, list, revoke, nats`);
    }
  },
};

async function add(args: ParsedArgs, file: string, name: string): Promise<number> {
  if (keysOf(file).has(name)) throw taken(name);
  const isHost = args.has('host');
  if (isHost && args.has('worker')) throw usageError(key, '--host and --worker exclude each other');
  if (!isHost && [name, args.text('mailbox')].includes(hostMailbox)) throw reservedMailbox();
  const made = args.has('nats') ? await pair() : secret();
  const mailbox = args.text('mailbox') ?? (isHost ? hostMailbox : args.has('worker') ? name : undefined);
  const entry = {
    ...made.entry,
    role: args.text('role'),
    expires: args.text('expires'),
    mailbox,
    destinations: isHost && mailbox !== hostMailbox ? [everyMailbox] : undefined,
  };
  // The check is repeated below, under the lock. This one runs before the key file is written.
  checkNewEntry(file, name, entry);
  const out = args.text('key-file');
  if (out !== undefined) writeKey(out, made.key);
  const written: unknown = JSON.parse(JSON.stringify(entry));
  try {
    editConfigFile(file, ['keys', name], written, (config) => {
      // Another command may have added the key in the meantime.
      if (holds(config, name)) throw taken(name);
      checkNewEntry(file, name, entry);
      // The key is confirmed before the file is written, so a running Hostler accepts it at once.
      confirmKey(file, name, written);
    });
  } catch (error) {
    // The key was not added, so its file is useless.
    if (out !== undefined) rmSync(out, { force: true });
    throw error;
  }
  if (out === undefined) printText(made.key);
  process.stderr.write(
    `key '${name}' was added to ${file}${out === undefined ? '; it is not shown again' : `, and written to ${out}`}\n`,
  );
  return EXIT.done;
}

/** Confirms the new key of a confirmed file: the user of this command could also run `hostler trust`. */
function confirmKey(file: string, name: string, entry: unknown): void {
  const folder = ownDataFolder(process.env);
  if (folder === undefined) return;
  try {
    new TrustStore(folder).extend(realpathSync(file), digestOfKey(name, entry));
  } catch (error) {
    // The key is written anyway. It waits for `hostler trust`, which reports this problem.
    if (!isHostError(error)) throw error;
  }
}

/** Throws the first problem that the entry adds; a new entry can also make another entry invalid. */
function checkNewEntry(file: string, name: string, entry: object): void {
  const { keys = {} } = readConfigFile(file, process.env).config as { keys?: object };
  const known = new Set(problemsOf(keys).map(({ message }) => message));
  const own = `keys.${neutraliseLine(name, shownChars)}`;
  const made = problemsOf({ ...keys, [name]: entry }).filter(({ message }) => !known.has(message));
  const [first] = made;
  if (first) throw made.find(({ details }) => String(details.field).startsWith(own)) ?? first;
}

function problemsOf(keys: unknown): HostError[] {
  const problems: HostError[] = [];
  parseKeys(keys, (problem) => problems.push(problem));
  return problems;
}

function list(args: ParsedArgs, file: string): number {
  const now = systemClock.date().getTime();
  const rows = [...keysOf(file)].map(([name, entry]) => ({
    name,
    opens: entry.mail === undefined ? 'gateway' : 'broker',
    role: entry.role ?? null,
    mailbox: entry.mail?.mailbox ?? null,
    expires: entry.expiresAtMs === undefined ? null : new Date(entry.expiresAtMs).toISOString(),
    isExpired: isExpired(entry, now),
  }));
  if (args.has('json')) printJson(rows);
  else if (rows.length === 0) printText('the configuration has no keys; only the local key of this machine is valid');
  else
    printText(
      textTable([
        ['NAME', 'OPENS', 'ROLE', 'MAILBOX', 'EXPIRES'],
        ...rows.map(({ name, opens, role, mailbox, expires, isExpired: isOver }) => [
          ...[name, opens, role ?? '-', mailbox ?? '-'],
          expires === null ? 'never' : isOver ? `${expires} (expired)` : expires,
        ]),
      ]),
    );
  return EXIT.done;
}

const isExpired = ({ expiresAtMs }: KeyEntry, now: number): boolean => expiresAtMs !== undefined && expiresAtMs <= now;

function revoke(file: string, name: string): number {
  // `hasEntry` does not parse the entry: an invalid entry can be revoked too.
  if (!hasEntry(file, name)) throw unknown(name);
  let isPair = false;
  editConfigFile(file, ['keys', name], undefined, (config) => {
    isPair = entryOf(config, name)?.nkey !== undefined;
  });
  process.stderr.write(
    isPair
      ? `key '${name}' was removed from ${file}; nats-server accepts it until you install the output of hostler key nats\n`
      : `key '${name}' was removed from ${file} and is no longer accepted\n`,
  );
  return EXIT.done;
}

/** Prints the configuration of nats-server with the rights of each public key. */
async function nats(args: ParsedArgs, file: string): Promise<number> {
  const { natsServerConfig } = await import('../broker/nats/nats-server-config.js');
  const hosts: string[] = [];
  const workers = new Map<string, { mailbox: string; publicKey: string }>();
  const now = systemClock.date().getTime();
  for (const entry of keysOf(file).values()) {
    const { mail } = entry;
    // nats-server cannot expire a key, so expired keys are left out.
    if (mail?.nkey === undefined || isExpired(entry, now)) continue;
    if (isHostKey(mail)) hosts.push(mail.nkey);
    else workers.set(mail.nkey, { mailbox: mail.mailbox, publicKey: mail.nkey });
  }
  const storeDir = args.text('store-dir') ?? natsStoreDirDefault;
  const listen = args.text('listen') ?? natsListenDefault;
  printText(natsServerConfig({ listen, storeDir, hosts, workers: [...workers.values()] }).trimEnd());
  return EXIT.done;
}

function secret() {
  const made = newKey();
  return { key: made, entry: { hash: `sha256:${hash('sha256', made)}` } };
}

async function pair() {
  const { newUserPair } = await import('../broker/nats/user-pair.js');
  const { seed, publicKey } = await newUserPair();
  return { key: seed, entry: { nkey: publicKey } };
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
  if (name === undefined) throw usageError(key, 'the name of the key is missing');
  return name;
}

/** Never replaces a file, because it may contain another key. */
function writeKey(file: string, text: string): void {
  try {
    writeFileSync(file, `${text}\n`, { mode: 0o600, flag: 'wx' });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new HostError('invalid_spec', `the key cannot be written to ${file} (${code ?? 'unwritable'})`, {
      field: '--key-file',
      hint: code === 'EEXIST' ? 'give the name of a new file' : 'give a file in a folder that you may write to',
    });
  }
}

const taken = (name: string): HostError =>
  new HostError('invalid_spec', `the key '${neutraliseLine(name, shownChars)}' already exists`, {
    field: `keys.${neutraliseLine(name, shownChars)}`,
    hint: 'revoke it first, or choose another name',
  });

const reservedMailbox = (): HostError =>
  usageError(
    key,
    `the mailbox '${hostMailbox}' is reserved for hosts`,
    'choose another name, or add --host if the key is for a host, which may send to every mailbox',
  );

const unknown = (name: string): HostError =>
  new HostError('invalid_spec', `there is no key '${neutraliseLine(name, shownChars)}'`, {
    field: `keys.${neutraliseLine(name, shownChars)}`,
    hint: 'hostler key list shows the keys',
  });
