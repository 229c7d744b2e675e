/**
 * `hostler key add|list|revoke|nats`: keys of clients, workers and hosts, in the configuration.
 * The file is watched: what is added or taken away counts within a second, without a restart. NATS knows only its own
 * configuration, which `nats` prints.
 *
 * Invariants: a key is shown once, when it is made, and stored nowhere but where it was asked for; the configuration holds its
 * hash, or of a pair its public half.
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
import type { Words } from './command.js';
import { EXIT } from './exit-codes.js';
import { findConfig } from './find-config.js';
import { printJson, printText } from './print.js';
import { textTable } from './text-table.js';
import { digestOfKey } from './trust/config-parts.js';
import { TrustStore } from './trust/trust-store.js';

/** Where nats-server listens and keeps its files, unless somebody says otherwise. */
const natsListenDefault = '127.0.0.1:4222';
const natsStoreDirDefault = '/var/lib/nats';
/** Of what was typed, in an error. */
const shownChars = 64;

export async function key(words: Words): Promise<number> {
  const [what, name] = words.positionals;
  const { file } = findConfig({ given: words.text('config'), env: process.env, cwd: process.cwd() });
  switch (what) {
    case 'add':
      return add(words, file, named(name));
    case 'list':
      return list(words, file);
    case 'revoke':
      return revoke(file, named(name));
    case 'nats':
      return nats(words, file);
    default:
      throw usage(`'${neutraliseLine(String(what), shownChars)}' is none of add, list, revoke, nats`);
  }
}

async function add(words: Words, file: string, name: string): Promise<number> {
  if (keysOf(file).has(name)) throw taken(name);
  const isHost = words.has('host');
  if (isHost && words.has('worker')) throw usage('--host and --worker cannot both be given');
  if (!isHost && [name, words.text('mailbox')].includes(hostMailbox)) throw ofHosts();
  const made = words.has('nats') ? await pair() : secret();
  const mailbox = words.text('mailbox') ?? (isHost ? hostMailbox : words.has('worker') ? name : undefined);
  const entry = {
    ...made.entry,
    role: words.text('role'),
    expires: words.text('expires'),
    mailbox,
    destinations: isHost && mailbox !== hostMailbox ? [everyMailbox] : undefined,
  };
  // As it will be read: what would be wrong with it is said before anything is written.
  mustFit(file, name, entry);
  const out = words.text('key-file');
  if (out !== undefined) writeKey(out, made.key);
  const written: unknown = JSON.parse(JSON.stringify(entry));
  try {
    editConfigFile(file, ['keys', name], written, (config) => {
      // Another command may have been quicker.
      if (holds(config, name)) throw taken(name);
      mustFit(file, name, entry);
      // Before the file is written, so that a Hostler that watches the file accepts the new key at once.
      confirmKey(file, name, written);
    });
  } catch (error) {
    // A key that opens nothing.
    if (out !== undefined) rmSync(out, { force: true });
    throw error;
  }
  if (out === undefined) printText(made.key);
  process.stderr.write(
    `key '${name}' was added to ${file}${out === undefined ? '; it is not shown again' : `, and written to ${out}`}\n`,
  );
  return EXIT.done;
}

/** In a confirmed file the new key is confirmed too: the user who runs this command could confirm it. Other parts are not. */
function confirmKey(file: string, name: string, entry: unknown): void {
  const folder = ownDataFolder(process.env);
  if (folder === undefined) return;
  try {
    new TrustStore(folder).extend(realpathSync(file), digestOfKey(name, entry));
  } catch (error) {
    // The key is written all the same, and waits for hostler trust, which reports what is wrong with the folder.
    if (!isHostError(error)) throw error;
  }
}

/** Throws what the entry would make wrong in the whole of the keys: also with another, which it would lock out. */
function mustFit(file: string, name: string, entry: object): void {
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

function list(words: Words, file: string): number {
  const now = systemClock.date().getTime();
  const rows = [...keysOf(file)].map(([name, entry]) => ({
    name,
    opens: entry.mail === undefined ? 'gateway' : 'broker',
    role: entry.role ?? null,
    mailbox: entry.mail?.mailbox ?? null,
    expires: entry.expiresAtMs === undefined ? null : new Date(entry.expiresAtMs).toISOString(),
    isExpired: isExpired(entry, now),
  }));
  if (words.has('json')) printJson(rows);
  else if (rows.length === 0) printText('no keys but the one of this machine');
  else
    printText(
      textTable([
        ['NAME', 'OPENS', 'ROLE', 'MAILBOX', 'EXPIRES'],
        ...rows.map(({ name, opens, role, mailbox, expires, isExpired: isOver }) => [
          ...[name, opens, role ?? '-', mailbox ?? '-'],
          expires === null ? 'never' : isOver ? `${expires} (over)` : expires,
        ]),
      ]),
    );
  return EXIT.done;
}

const isExpired = ({ expiresAtMs }: KeyEntry, now: number): boolean => expiresAtMs !== undefined && expiresAtMs <= now;

function revoke(file: string, name: string): number {
  // Also an entry that cannot be used: it is there, and it is to go.
  if (!hasEntry(file, name)) throw unknown(name);
  let isPair = false;
  editConfigFile(file, ['keys', name], undefined, (config) => {
    isPair = entryOf(config, name)?.nkey !== undefined;
  });
  process.stderr.write(
    isPair
      ? `key '${name}' was taken out of ${file}; nats-server lets it in until it has the new configuration: give it what hostler key nats prints\n`
      : `key '${name}' was taken out of ${file}: whoever holds it is cut off\n`,
  );
  return EXIT.done;
}

/** For nats-server: who may do what, by the public halves. */
async function nats(words: Words, file: string): Promise<number> {
  const { natsServerConfig } = await import('../broker/nats/nats-server-config.js');
  const hosts: string[] = [];
  const workers = new Map<string, { mailbox: string; publicKey: string }>();
  const now = systemClock.date().getTime();
  for (const entry of keysOf(file).values()) {
    const { mail } = entry;
    // NATS knows nothing of the end of a key.
    if (mail?.nkey === undefined || isExpired(entry, now)) continue;
    if (isHostKey(mail)) hosts.push(mail.nkey);
    else workers.set(mail.nkey, { mailbox: mail.mailbox, publicKey: mail.nkey });
  }
  const storeDir = words.text('store-dir') ?? natsStoreDirDefault;
  const listen = words.text('listen') ?? natsListenDefault;
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

/** Whatever it is: it may be one that cannot be used. */
const entryOf = (config: unknown, name: string): { nkey?: unknown } | undefined =>
  holds(config, name)
    ? ((config as { keys: Record<string, { nkey?: unknown } | null> }).keys[name] ?? undefined)
    : undefined;

function named(name: string | undefined): string {
  if (name === undefined) throw usage('the name of the key is missing');
  return name;
}

/** Never over a file that is there: it may be somebody's key. */
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

const usage = (what: string): HostError =>
  new HostError('invalid_spec', `key: ${what}`, { reason: 'usage', hint: 'hostler key --help says how it is used' });

const taken = (name: string): HostError =>
  new HostError('invalid_spec', `there is a key '${neutraliseLine(name, shownChars)}' already`, {
    field: `keys.${neutraliseLine(name, shownChars)}`,
    hint: 'revoke it first, or take another name',
  });

const ofHosts = (): HostError =>
  new HostError('invalid_spec', `key: '${hostMailbox}' is the mailbox of hosts`, {
    reason: 'usage',
    hint: 'take another name, or give --host if it is for a host, which may send to everybody',
  });

const unknown = (name: string): HostError =>
  new HostError('invalid_spec', `there is no key '${neutraliseLine(name, shownChars)}'`, {
    field: `keys.${neutraliseLine(name, shownChars)}`,
    hint: 'hostler key list shows those that there are',
  });
