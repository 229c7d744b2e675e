/**
 * `hostler key add`: makes a key and adds its entry to the configuration.
 * Invariant: an entry that would be invalid, or would make another entry invalid, is not written, and neither is its key file.
 */
import { hash, randomBytes } from 'node:crypto';
import { realpathSync, rmSync, writeFileSync } from 'node:fs';
import { readConfigFile } from '../../config/config-file.js';
import { editConfigFile } from '../../config/edit-config.js';
import { ownDataFolder } from '../../config/folders.js';
import { newKey, parseKeys } from '../../config/keys.js';
import { unlistedRoleHint, unlistedRoles, unlistedRoleText } from '../../config/unlisted-roles.js';
import { HostError, isHostError } from '../../kernel/errors.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import type { ParsedArgs } from '../command.js';
import { EXIT } from '../exit-codes.js';
import { printJson, printText } from '../output/print.js';
import { digestOfKey } from '../trust/config-parts.js';
import { TrustStore } from '../trust/trust-store.js';
import { keyUsageError } from './key-usage.js';

/** Maximum length of an argument that an error quotes. */
const shownChars = 64;
const epochBytes = 8;

type Entries = Readonly<Record<string, unknown>>;
interface RawConfig {
  readonly keys?: Entries;
  readonly roles?: Entries;
  readonly unlistedRole?: 'deny' | 'allow';
}

export async function addKey(args: ParsedArgs, file: string, name: string): Promise<number> {
  const { role, worker, isHost } = rightsOf(args);
  const config = configOf(file);
  if (holds(config, name)) throw taken(name);
  requireListed(config, name, role);
  const made = isHost || args.has('nats') ? await pair() : secret();
  const entry = {
    ...made.entry,
    ...{ role, expires: args.text('expires'), worker },
    epoch: worker === undefined ? undefined : epochFor(config, worker),
    host: isHost || undefined,
  };
  // The check is repeated below, under the lock. This one runs before the key file is written.
  mustFit(config, name, entry);
  const out = args.text('key-file');
  if (out !== undefined) writeKey(out, made.key);
  const written: unknown = JSON.parse(JSON.stringify(entry));
  try {
    editConfigFile(file, ['keys', name], written, () => {
      // Another command may have added a key in the meantime.
      const now = configOf(file);
      if (holds(now, name)) throw taken(name);
      mustFit(now, name, entry);
      // The key is confirmed before the file is written, so a running Hostler accepts it at once.
      confirmKey(file, name, written);
    });
  } catch (error) {
    // The key was not added, so its file is useless.
    if (out !== undefined) rmSync(out, { force: true });
    throw error;
  }
  if (args.has('json'))
    printJson({ added: name, file, key: out === undefined ? made.key : null, keyFile: out ?? null });
  else if (out === undefined) printText(made.key);
  const where = out === undefined ? '; it is not shown again' : `, and written to ${out}`;
  process.stderr.write(`key '${name}' was added to ${file}${where}\n`);
  if ('nkey' in made.entry)
    process.stderr.write('nats-server refuses this key until it has the new configuration: hostler key nats\n');
  return EXIT.done;
}

function rightsOf(args: ParsedArgs) {
  const [role, worker, isHost] = [args.text('role'), args.text('worker'), args.has('host')];
  if (isHost && worker !== undefined) throw keyUsageError('--host and --worker exclude each other');
  if (isHost && role !== undefined) throw keyUsageError('--host and --role exclude each other');
  if (role !== undefined && args.has('no-role')) throw keyUsageError('--role and --no-role exclude each other');
  if (args.has('nats') && worker === undefined && !isHost)
    throw keyUsageError('--nats needs --worker or --host', 'a key of a client is checked by Hostler, not by NATS');
  if (worker !== undefined && role === undefined && !args.has('no-role'))
    throw keyUsageError('a worker needs a role', 'add --role R, or --no-role if unlistedRole is "allow"');
  return { role, worker, isHost };
}

/** Keys of one worker share its epoch. The first key of a worker gets a new epoch, even if the name was used before. */
function epochFor({ keys = {} }: RawConfig, worker: string): string {
  for (const { worker: other } of parseKeys(keys, () => {}).values()) if (other?.name === worker) return other.epoch;
  return randomBytes(epochBytes).toString('hex');
}

function requireListed({ roles, unlistedRole }: RawConfig, name: string, role: string | undefined): void {
  const listed = roles && new Map(Object.entries(roles));
  if (role === undefined || unlistedRoles({ [name]: { role } }, listed, unlistedRole).length === 0) return;
  const known = Object.keys(roles ?? {});
  throw new HostError('invalid_spec', `--role: ${unlistedRoleText(role)}: the key could use nothing`, {
    field: '--role',
    hint: known.length === 0 ? unlistedRoleHint : `listed are ${known.slice(0, 20).join(', ')}; or ${unlistedRoleHint}`,
  });
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
function mustFit({ keys = {} }: RawConfig, name: string, entry: object): void {
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

function secret() {
  const made = newKey();
  return { key: made, entry: { hash: `sha256:${hash('sha256', made)}` } };
}

async function pair() {
  const { newUserPair } = await import('../../broker/nats/nats-client.js');
  const { seed, publicKey } = await newUserPair();
  return { key: seed, entry: { nkey: publicKey } };
}

const configOf = (file: string): RawConfig => (readConfigFile(file, process.env).config ?? {}) as RawConfig;

const holds = ({ keys }: RawConfig, name: string): boolean =>
  typeof keys === 'object' && keys !== null && Object.hasOwn(keys, name);

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
