/**
 * The table `keys` of the configuration: who may come in over the network, by the hash of the key each one holds.
 * Not here: checking a key that was presented (gateway/keys/keys.ts), the key of this machine (gateway/keys/local-key.ts).
 *
 * Invariants: no text of an entry but names of members reaches an error, since a key may stand where its hash belongs; an
 * entry that cannot be read lets nobody in.
 */
import { hash, randomBytes } from 'node:crypto';
import { z } from 'zod';
import { HostError } from '../kernel/errors.js';
import { neutraliseLine } from '../kernel/terminal-text.js';
import { copyConfig, UnusableEntry } from './plain-data.js';
import { firstIssue } from './schema-issues.js';
import { everyMailbox, hostMailbox, mailboxPattern } from './values.js';

const keyPrefix = 'hk_';
const keyBytes = 32;

export const newKey = (): string => `${keyPrefix}${randomBytes(keyBytes).toString('base64url')}`;

/** SHA-256 in base64url without padding, as `KeyEntry.digest` has it. */
export const digestOf = (key: string): string => hash('sha256', key, 'base64url');

export interface KeyEntry {
  /** SHA-256 of the key, in base64url without padding; undefined for a key that only NATS checks. */
  readonly digest: string | undefined;
  readonly role: string | undefined;
  /** By the wall, in ms since 1970. */
  readonly expiresAtMs: number | undefined;
  /** A worker's, or a host's on another machine: it opens the broker, and nothing else. */
  readonly mail: MailRights | undefined;
}

export interface MailRights {
  readonly mailbox: string;
  /** Mailboxes that it may send to; `*` for all. */
  readonly destinations: readonly string[];
  /** The public half of a key pair, by which NATS knows it. */
  readonly nkey: string | undefined;
}

/** It takes requests and answers whoever sent them. */
export const isHostKey = ({ destinations }: MailRights): boolean => destinations.includes(everyMailbox);

/** A key that opens the gateway. */
export type ClientKey = KeyEntry & { readonly digest: string };
export const isClientKey = (entry: KeyEntry): entry is ClientKey =>
  entry.mail === undefined && entry.digest !== undefined;

/** By name, which is also the id of whoever holds the key. */
export type Keys = ReadonlyMap<string, KeyEntry>;

/** The id of whoever embeds the host (host/host-interface.ts), which no other may have. */
export const reservedKeyName = 'embedder';

/** The public half of a pair, as NATS writes that of a user. */
export const nkeyPattern = /^U[A-Z2-7]{55}$/;

const keysMax = 10_000;
const shownChars = 64;
const keyName = /^[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}$/;
/** In hex, or in base64url: of 32 bytes the last of 43 characters has two bits to spare. */
const writtenHash = /^sha256:(?:[0-9A-Fa-f]{64}|[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]=?)$/;
const hexChars = 64;
const digestChars = 43;
const wrongHash = 'must be sha256: and the SHA-256 of the key in hex or base64url';
const hashHint = `make one with: printf %s "$KEY" | sha256sum`;

const ofHosts = `the mailbox '${hostMailbox}' is that of hosts`;
const anotherMailbox = 'give a worker another mailbox';

const mailbox = z
  .string('must be a name')
  .regex(mailboxPattern, 'must be small letters, digits, dots, dashes and underscores');
const destination = z.union([mailbox, z.literal(everyMailbox)], 'must be a mailbox, or *');

/** Rights of a key. The configuration has only the hash of the key. */
export const keyEntry = z.strictObject(
  {
    hash: z.string(wrongHash).regex(writtenHash, wrongHash).optional(),
    role: z.string('must be the name of a role').min(1, 'must not be blank').max(128, 'is too long').optional(),
    expires: z.string('must be a date like 2027-01-31 or 2027-01-31T12:00:00Z').optional(),
    mailbox: mailbox.optional(),
    destinations: z.array(destination, 'must be a list of mailboxes').max(16, 'has more than 16 entries').optional(),
    nkey: z.string('must be a public nkey').regex(nkeyPattern, 'must be the public nkey of a user').optional(),
  },
  'must be an object with a hash',
);

/** Throws when there is no table; what is wrong with one entry is told, and the entry left out. */
export function parseKeys(given: unknown, onProblem: (problem: HostError) => void): Keys {
  const { keys: input } = copyConfig({ keys: given }) as { readonly keys: unknown };
  if (typeof input !== 'object' || input === null || Array.isArray(input)) throw wrong('keys', 'must be an object');
  const entries = Object.entries(input);
  if (entries.length > keysMax) throw wrong('keys', `has more than ${keysMax} entries`);
  const keys = new Map<string, KeyEntry>();
  for (const [name, entry] of entries) {
    const read = parseKey(`keys.${neutraliseLine(name, shownChars)}`, name, entry);
    if (read instanceof HostError) onProblem(read);
    else keys.set(name, read);
  }
  const whole = [...keys];
  for (const [member, name] of [
    ...shared(whole, ({ digest }) => digest).map((name) => ['hash', name] as const),
    ...disputed(whole).map((name) => ['mailbox', name] as const),
    ...shared(whole, ({ mail }) => mail?.nkey).map((name) => ['nkey', name] as const),
  ]) {
    if (!keys.delete(name)) continue;
    const what = 'is also that of another key: neither lets anybody in';
    onProblem(wrong(`keys.${name}.${member}`, what, 'give each its own'));
  }
  return keys;
}

function parseKey(at: string, name: string, entry: unknown): KeyEntry | HostError {
  if (entry instanceof UnusableEntry) return entry.error;
  if (!keyName.test(name))
    return wrong(at, 'is no name for a key', 'use 1 to 64 letters, digits, dots, dashes, underscores or @');
  if (name === reservedKeyName) return wrong(at, 'is a reserved name', 'call it something else');
  const parsed = keyEntry.safeParse(entry);
  if (!parsed.success) {
    const { field, what, isUnknownKey } = firstIssue(parsed.error, at);
    return wrong(field, what, isUnknownKey ? `known are ${Object.keys(keyEntry.shape).join(', ')}` : hashHint);
  }
  const { hash, role, expires, mailbox, destinations, nkey } = parsed.data;
  const isPair = mailbox !== undefined && nkey !== undefined;
  if (hash === undefined && !isPair) return wrong(`${at}.hash`, wrongHash, hashHint);
  if (mailbox === reservedKeyName) return wrong(`${at}.mailbox`, 'is a reserved name', 'call it something else');
  if (mailbox === undefined && (nkey ?? destinations) !== undefined)
    return wrong(`${at}.mailbox`, 'is missing', 'a key of a worker or a host names its mailbox');
  // Whoever has this mailbox takes everybody's calls: that must not come from a worker's words with the wrong name.
  if (mailbox === hostMailbox && destinations !== undefined && !destinations.includes(everyMailbox))
    return wrong(`${at}.destinations`, `must be *, or left out: ${ofHosts}`, anotherMailbox);
  if (mailbox === hostMailbox && role !== undefined)
    return wrong(`${at}.role`, `must be left out: ${ofHosts}`, anotherMailbox);
  const expiresAtMs = expires === undefined ? undefined : dateOf(expires);
  if (Number.isNaN(expiresAtMs))
    return wrong(`${at}.expires`, 'must be a date like 2027-01-31 or 2027-01-31T12:00:00Z');
  const mail = mailbox === undefined ? undefined : mailOf(mailbox, destinations, nkey);
  return Object.freeze({ digest: hash === undefined ? undefined : digestIn(hash), role, expiresAtMs, mail });
}

/** A worker sends to the host, and the host to whoever asked. */
const mailOf = (
  mailbox: string,
  destinations: readonly string[] = [mailbox === hostMailbox ? everyMailbox : hostMailbox],
  nkey: string | undefined,
): MailRights => Object.freeze({ mailbox, destinations: Object.freeze(destinations), nkey });

/** In the encoding of `digestOf`. */
function digestIn(hash: string): string {
  const text = hash.slice('sha256:'.length);
  return text.length === hexChars ? Buffer.from(text, 'hex').toString('base64url') : text.slice(0, digestChars);
}

/** A day alone is its first instant in UTC; a time without a zone would mean another instant on each machine. */
const isoDate = /^\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:\d{2}))?$/;
function dateOf(text: string): number {
  const atMs = isoDate.test(text) ? Date.parse(text) : Number.NaN;
  // Date.parse takes the 31st of every month.
  return Number(text.slice(8, 10)) === dayOf(text) ? atMs : Number.NaN;
}

const dayOf = (text: string): number => new Date(`${text.slice(0, 10)}T00:00:00Z`).getUTCDate();

/** Two keys of one mailbox are how a key is changed without a gap. They must say the same of it, or nobody knows whose it is. */
function disputed(keys: readonly [string, KeyEntry][]): string[] {
  const rights = new Map<string, Set<string>>();
  const said = ({ role, mail }: KeyEntry) => JSON.stringify([role, mail?.destinations]);
  for (const [, entry] of keys) {
    const { mailbox } = entry.mail ?? {};
    if (mailbox !== undefined) rights.set(mailbox, (rights.get(mailbox) ?? new Set()).add(said(entry)));
  }
  return keys.flatMap(([name, { mail }]) => (mail && (rights.get(mail.mailbox)?.size ?? 0) > 1 ? [name] : []));
}

/** Names of entries that have the same one. */
function shared(keys: readonly [string, KeyEntry][], of: (entry: KeyEntry) => string | undefined): string[] {
  const names = new Map<string, string[]>();
  for (const [name, entry] of keys) {
    const value = of(entry);
    if (value !== undefined) names.set(value, [...(names.get(value) ?? []), name]);
  }
  return [...names.values()].filter(({ length }) => length > 1).flat();
}

const wrong = (field: string, what: string, hint = 'correct the configuration and try again'): HostError =>
  new HostError('invalid_spec', `${field}: ${what}`, { field, execution: 'not_executed', hint });
