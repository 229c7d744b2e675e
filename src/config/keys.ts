/**
 * Parses the table `keys` of the configuration: the hash and the rights of each key.
 * Not here: checking a presented key and the local key (gateway/keys/keyring.ts).
 * Invariants: errors never quote values, because a user may have pasted the key instead of its hash. An invalid entry grants no
 * access.
 */
import { hash, randomBytes } from 'node:crypto';
import * as z from 'zod/mini';
import { HostError } from '../kernel/errors.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { copyConfig, UnusableEntry } from './copy-config.js';
import { invalidSpec } from './invalid-spec.js';
import { firstIssue } from './schema-issues.js';
import { epochPattern, workerPattern } from './values.js';

const keyPrefix = 'hk_';
const keyBytes = 32;

export const newKey = (): string => `${keyPrefix}${randomBytes(keyBytes).toString('base64url')}`;

/** The same encoding as in `KeyEntry.digest`. */
export const digestOf = (key: string): string => hash('sha256', key, 'base64url');

export interface KeyEntry {
  /** SHA-256 of the key, in base64url without padding; undefined for a key that only NATS checks. */
  readonly digest: string | undefined;
  /** Public key that NATS checks. */
  readonly nkey: string | undefined;
  readonly role: string | undefined;
  /** Wall-clock time in ms since 1970. */
  readonly expiresAtMs: number | undefined;
  /** Set for a key of a worker. Only the broker accepts it. */
  readonly worker: WorkerName | undefined;
  /** A key with which a host connects to NATS. */
  readonly isHost: boolean;
}

interface WorkerName {
  readonly name: string;
  /** Distinguishes the successive holders of one worker name. A later holder sees nothing of an earlier one. */
  readonly epoch: string;
}

/** A key that the gateway accepts. */
type ClientKey = KeyEntry & { readonly digest: string };
export const isClientKey = (entry: KeyEntry): entry is ClientKey =>
  entry.worker === undefined && !entry.isHost && entry.digest !== undefined;

/** Entries by name. The name is also the id of the principal. */
export type Keys = ReadonlyMap<string, KeyEntry> & {
  /** Names of workers in entries with a mistake. Their calls are kept, because a mistake does not revoke a worker. */
  readonly refusedWorkers?: ReadonlySet<string>;
};

/** The principal id of the embedder (policy/operation.ts). */
export const reservedKeyName = 'embedder';

const nkeyPattern = /^U[A-Z2-7]{55}$/;

const keysMax = 10_000;
const shownChars = 64;
const keyName = /^[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}$/;
/** SHA-256 in hex or base64url. In base64url, two bits of the last of 43 characters are unused and must be 0. */
const writtenHash = /^sha256:(?:[0-9A-Fa-f]{64}|[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]=?)$/;
const hexChars = 64;
const digestChars = 43;
const wrongHash = 'must be sha256: and the SHA-256 of the key in hex or base64url';
const hashHint = `make one with: printf %s "$KEY" | sha256sum`;

/** The configuration never contains the key itself. */
export const keyEntry = z.strictObject(
  {
    hash: z.optional(z.string(wrongHash).check(z.regex(writtenHash, wrongHash))),
    nkey: z.optional(
      z.string('must be a public nkey').check(z.regex(nkeyPattern, 'must be the public nkey of a user')),
    ),
    role: z.optional(
      z
        .string('must be the name of a role')
        .check(z.minLength(1, 'must not be blank'), z.maxLength(128, 'is too long')),
    ),
    expires: z.optional(z.string('must be a date like 2027-01-31 or 2027-01-31T12:00:00Z')),
    worker: z.optional(
      z
        .string('must be a name')
        .check(z.regex(workerPattern, 'must be 1 to 64 small letters, digits, dashes and underscores')),
    ),
    epoch: z.optional(
      z.string('must be a text').check(z.regex(epochPattern, 'must be 1 to 32 letters, digits and underscores')),
    ),
    host: z.optional(z.literal(true, 'must be true, or left out')),
  },
  'must be an object with a hash',
);

/** Members of earlier versions, and what to write instead. */
const removedMembers: Readonly<Record<string, string>> = {
  mailbox: 'write "worker": "NAME" for a worker, or "host": true for a host on NATS',
  destinations: 'remove it; a worker calls the hosts and nothing else',
};

/** Throws if the value is not an object. Reports a mistake in one entry, and leaves that entry out. */
export function parseKeys(given: unknown, onProblem: (problem: HostError) => void): Keys {
  const { keys: input } = copyConfig({ keys: given }) as { readonly keys: unknown };
  if (typeof input !== 'object' || input === null || Array.isArray(input))
    throw invalidSpec('keys', 'must be an object');
  const entries = Object.entries(input);
  if (entries.length > keysMax) throw invalidSpec('keys', `has more than ${keysMax} entries`);
  const keys = new Map<string, KeyEntry>();
  for (const [name, entry] of entries) {
    const read = parseKey(`keys.${neutraliseLine(name, shownChars)}`, name, entry);
    if (read instanceof HostError) onProblem(read);
    else keys.set(name, read);
  }
  const whole = [...keys];
  const problems = [
    ...shared(whole, ({ digest }) => digest).map((name) => [name, 'hash', ...usedTwice] as const),
    ...shared(whole, ({ nkey }) => nkey).map((name) => [name, 'nkey', ...usedTwice] as const),
    ...differing(whole).map((name) => [name, 'worker', ...differs] as const),
  ];
  for (const [name, member, what, hint] of problems)
    if (keys.delete(name)) onProblem(invalidSpec(`keys.${name}.${member}`, what, hint));
  const refusedWorkers = new Set<string>();
  for (const [name, entry] of entries) {
    const { worker } = (entry ?? {}) as { readonly worker?: unknown };
    if (!keys.has(name) && typeof worker === 'string') refusedWorkers.add(worker);
  }
  return Object.assign(keys, { refusedWorkers });
}

const usedTwice = ['is also used by another key: neither key grants access', 'give each key its own'] as const;
const differs = [
  'is also named by a key with another role or epoch: neither key grants access',
  'give all keys of a worker the same role and epoch, or name two workers',
] as const;

function parseKey(at: string, name: string, entry: unknown): KeyEntry | HostError {
  if (entry instanceof UnusableEntry) return entry.error;
  if (!keyName.test(name))
    return invalidSpec(at, 'is not a valid key name', 'use 1 to 64 letters, digits, dots, dashes, underscores or @');
  if (name === reservedKeyName) return invalidSpec(at, 'is a reserved name', 'choose another name');
  const parsed = keyEntry.safeParse(entry);
  if (!parsed.success) {
    const { field, what, isUnknownKey } = firstIssue(parsed.error, at);
    const removed = isUnknownKey ? removedMembers[field.slice(at.length + 1)] : undefined;
    if (removed !== undefined) return invalidSpec(field, 'is not used any more', removed);
    return invalidSpec(field, what, isUnknownKey ? `known are ${Object.keys(keyEntry.shape).join(', ')}` : hashHint);
  }
  const { hash, nkey, role, expires, worker, epoch, host: isHost = false } = parsed.data;
  const isForBroker = worker !== undefined || isHost;
  if (hash === undefined && !(isForBroker && nkey !== undefined)) return invalidSpec(`${at}.hash`, wrongHash, hashHint);
  if (isHost) {
    if (nkey === undefined) return invalidSpec(`${at}.nkey`, 'is missing', 'make one with hostler key add NAME --host');
    const extra = Object.entries({ hash, role, worker, epoch }).find(([, value]) => value !== undefined);
    if (extra) return invalidSpec(`${at}.${extra[0]}`, 'must be left out of the key of a host', onlyHost);
  }
  if (nkey !== undefined && !isForBroker)
    return invalidSpec(`${at}.worker`, 'is missing', 'name the worker of the nkey');
  if (epoch !== undefined && worker === undefined)
    return invalidSpec(`${at}.worker`, 'is missing', 'epoch needs the name of its worker');
  if (worker === reservedKeyName) return invalidSpec(`${at}.worker`, 'is a reserved name', 'call it something else');
  const expiresAtMs = expires === undefined ? undefined : dateOf(expires);
  if (Number.isNaN(expiresAtMs))
    return invalidSpec(`${at}.expires`, 'must be a date like 2027-01-31 or 2027-01-31T12:00:00Z');
  const digest = hash === undefined ? undefined : digestIn(hash);
  return Object.freeze({
    ...{ digest, nkey, role, expiresAtMs, isHost },
    worker: worker === undefined ? undefined : { name: worker, epoch: epoch ?? epochOf(digest ?? nkey ?? '') },
  });
}

const onlyHost = 'the key of a host may have only nkey, host and expires';
const epochChars = 10;

/** Default of `epoch`, made from the key: if no epoch is written, a new key counts as a new holder of the worker name. */
const epochOf = (id: string): string => hash('sha256', id, 'base64url').slice(0, epochChars).replaceAll('-', '_');

/** Converts a written hash to the encoding of `digestOf`. */
function digestIn(hash: string): string {
  const text = hash.slice('sha256:'.length);
  return text.length === hexChars ? Buffer.from(text, 'hex').toString('base64url') : text.slice(0, digestChars);
}

/** A date without a time means 00:00 UTC. A time needs a zone, or it would differ between machines. */
const isoDate = /^\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:\d{2}))?$/;
function dateOf(text: string): number {
  const atMs = isoDate.test(text) ? Date.parse(text) : Number.NaN;
  // Date.parse accepts the 31st of every month.
  return Number(text.slice(8, 10)) === dayOf(text) ? atMs : Number.NaN;
}

const dayOf = (text: string): number => new Date(`${text.slice(0, 10)}T00:00:00Z`).getUTCDate();

/**
 * Names of keys whose worker also has a key with a different role or epoch. Keys with equal role and epoch may share a worker, for
 * rotation.
 */
function differing(keys: readonly [string, KeyEntry][]): string[] {
  const found = new Map<string, Set<string>>();
  for (const [, { role, worker }] of keys)
    if (worker) found.set(worker.name, (found.get(worker.name) ?? new Set()).add(JSON.stringify([role, worker.epoch])));
  return keys.flatMap(([name, { worker }]) => (worker && (found.get(worker.name)?.size ?? 0) > 1 ? [name] : []));
}

function shared(keys: readonly [string, KeyEntry][], of: (entry: KeyEntry) => string | undefined): string[] {
  const names = new Map<string, string[]>();
  for (const [name, entry] of keys) {
    const value = of(entry);
    if (value !== undefined) names.set(value, [...(names.get(value) ?? []), name]);
  }
  return [...names.values()].filter(({ length }) => length > 1).flat();
}
