/**
 * Parses the table `keys` of the configuration: the hash and the rights of each key.
 * Not here: checking a presented key (gateway/keys/keyring.ts), the local key (gateway/keys/local-key.ts).
 * Invariants: errors never quote values, because a user may have pasted the key instead of its hash. An invalid entry grants no
 * access.
 */
import { hash, randomBytes } from 'node:crypto';
import * as z from 'zod/mini';
import { HostError } from '../kernel/errors.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { copyConfig, UnusableEntry } from './copy-config.js';
import { firstIssue, invalidSpec } from './schema-issues.js';
import { everyMailbox, hostMailbox, mailboxPattern } from './values.js';

const keyPrefix = 'hk_';
const keyBytes = 32;

export const newKey = (): string => `${keyPrefix}${randomBytes(keyBytes).toString('base64url')}`;

/** The same encoding as in `KeyEntry.digest`. */
export const digestOf = (key: string): string => hash('sha256', key, 'base64url');

export interface KeyEntry {
  /** SHA-256 of the key, in base64url without padding; undefined for a key that only NATS checks. */
  readonly digest: string | undefined;
  readonly role: string | undefined;
  /** Wall-clock time in ms since 1970. */
  readonly expiresAtMs: number | undefined;
  /** Set for keys of workers and remote hosts. Only the broker accepts such a key. */
  readonly mail: MailRights | undefined;
}

interface MailRights {
  readonly mailbox: string;
  /** Mailboxes to which the key may send; `*` means all. */
  readonly destinations: readonly string[];
  /** Public key that NATS checks. */
  readonly nkey: string | undefined;
}

/** Only a host may send to all mailboxes. */
export const isHostKey = ({ destinations }: MailRights): boolean => destinations.includes(everyMailbox);

/** A key that the gateway accepts. */
type ClientKey = KeyEntry & { readonly digest: string };
export const isClientKey = (entry: KeyEntry): entry is ClientKey =>
  entry.mail === undefined && entry.digest !== undefined;

/** Entries by name. The name is also the id of the principal. */
export type Keys = ReadonlyMap<string, KeyEntry>;

/** The principal id of the embedder (policy/operation.ts). */
export const reservedKeyName = 'embedder';

export const nkeyPattern = /^U[A-Z2-7]{55}$/;

const keysMax = 10_000;
const shownChars = 64;
const keyName = /^[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}$/;
/** SHA-256 in hex or base64url. In base64url, two bits of the last of 43 characters are unused and must be 0. */
const writtenHash = /^sha256:(?:[0-9A-Fa-f]{64}|[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]=?)$/;
const hexChars = 64;
const digestChars = 43;
const wrongHash = 'must be sha256: and the SHA-256 of the key in hex or base64url';
const hashHint = `make one with: printf %s "$KEY" | sha256sum`;

const hostMailboxReserved = `the mailbox '${hostMailbox}' is for hosts`;
const anotherMailbox = 'give a worker another mailbox';

const mailbox = z
  .string('must be a name')
  .check(z.regex(mailboxPattern, 'must be small letters, digits, dots, dashes and underscores'));
const destination = z.union([mailbox, z.literal(everyMailbox)], 'must be a mailbox, or *');

/** The configuration never contains the key itself. */
export const keyEntry = z.strictObject(
  {
    hash: z.optional(z.string(wrongHash).check(z.regex(writtenHash, wrongHash))),
    role: z.optional(
      z
        .string('must be the name of a role')
        .check(z.minLength(1, 'must not be blank'), z.maxLength(128, 'is too long')),
    ),
    expires: z.optional(z.string('must be a date like 2027-01-31 or 2027-01-31T12:00:00Z')),
    mailbox: z.optional(mailbox),
    destinations: z.optional(
      z.array(destination, 'must be a list of mailboxes').check(z.maxLength(16, 'has more than 16 entries')),
    ),
    nkey: z.optional(
      z.string('must be a public nkey').check(z.regex(nkeyPattern, 'must be the public nkey of a user')),
    ),
  },
  'must be an object with a hash',
);

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
  for (const [member, name] of [
    ...shared(whole, ({ digest }) => digest).map((name) => ['hash', name] as const),
    ...withDisputedMailbox(whole).map((name) => ['mailbox', name] as const),
    ...shared(whole, ({ mail }) => mail?.nkey).map((name) => ['nkey', name] as const),
  ]) {
    if (!keys.delete(name)) continue;
    const what =
      member === 'mailbox'
        ? 'is also used by a key with other rights: neither key grants access'
        : 'is also used by another key: neither key grants access';
    const hint =
      member === 'mailbox' ? 'give both the same role and destinations, or two mailboxes' : 'give each its own';
    onProblem(invalidSpec(`keys.${name}.${member}`, what, hint));
  }
  return keys;
}

function parseKey(at: string, name: string, entry: unknown): KeyEntry | HostError {
  if (entry instanceof UnusableEntry) return entry.error;
  if (!keyName.test(name))
    return invalidSpec(at, 'is not a valid key name', 'use 1 to 64 letters, digits, dots, dashes, underscores or @');
  if (name === reservedKeyName) return invalidSpec(at, 'is a reserved name', 'choose another name');
  const parsed = keyEntry.safeParse(entry);
  if (!parsed.success) {
    const { field, what, isUnknownKey } = firstIssue(parsed.error, at);
    return invalidSpec(field, what, isUnknownKey ? `known are ${Object.keys(keyEntry.shape).join(', ')}` : hashHint);
  }
  const { hash, role, expires, mailbox, destinations, nkey } = parsed.data;
  const isPair = mailbox !== undefined && nkey !== undefined;
  if (hash === undefined && !isPair) return invalidSpec(`${at}.hash`, wrongHash, hashHint);
  if (mailbox === reservedKeyName) return invalidSpec(`${at}.mailbox`, 'is a reserved name', 'choose another name');
  if (mailbox === undefined && (nkey ?? destinations) !== undefined)
    return invalidSpec(`${at}.mailbox`, 'is missing', 'a key of a worker or a host names its mailbox');
  // This mailbox receives the calls of all workers. A typing mistake in the entry of a worker must not grant it.
  if (mailbox === hostMailbox && destinations !== undefined && !destinations.includes(everyMailbox))
    return invalidSpec(`${at}.destinations`, `must be *, or left out: ${hostMailboxReserved}`, anotherMailbox);
  if (mailbox === hostMailbox && role !== undefined)
    return invalidSpec(`${at}.role`, `must be left out: ${hostMailboxReserved}`, anotherMailbox);
  const expiresAtMs = expires === undefined ? undefined : dateOf(expires);
  if (Number.isNaN(expiresAtMs))
    return invalidSpec(`${at}.expires`, 'must be a date like 2027-01-31 or 2027-01-31T12:00:00Z');
  const mail = mailbox === undefined ? undefined : mailOf(mailbox, destinations, nkey);
  return Object.freeze({ digest: hash === undefined ? undefined : digestIn(hash), role, expiresAtMs, mail });
}

/** By default a worker may send to the host, and a host to all mailboxes. */
const mailOf = (
  mailbox: string,
  destinations: readonly string[] = [mailbox === hostMailbox ? everyMailbox : hostMailbox],
  nkey: string | undefined,
): MailRights => Object.freeze({ mailbox, destinations: Object.freeze(destinations), nkey });

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

/** Names of keys whose mailbox has another key with other rights. Keys with equal rights may share it, for rotation. */
function withDisputedMailbox(keys: readonly [string, KeyEntry][]): string[] {
  const rights = new Map<string, Set<string>>();
  const rightsText = ({ role, mail }: KeyEntry) => JSON.stringify([role, mail?.destinations]);
  for (const [, entry] of keys) {
    const { mailbox } = entry.mail ?? {};
    if (mailbox !== undefined) rights.set(mailbox, (rights.get(mailbox) ?? new Set()).add(rightsText(entry)));
  }
  return keys.flatMap(([name, { mail }]) => (mail && (rights.get(mail.mailbox)?.size ?? 0) > 1 ? [name] : []));
}

function shared(keys: readonly [string, KeyEntry][], of: (entry: KeyEntry) => string | undefined): string[] {
  const names = new Map<string, string[]>();
  for (const [name, entry] of keys) {
    const value = of(entry);
    if (value !== undefined) names.set(value, [...(names.get(value) ?? []), name]);
  }
  return [...names.values()].filter(({ length }) => length > 1).flat();
}
