/**
 * The table `keys` of the configuration: who may come in over the network, by the hash of the key each one holds.
 * Not here: checking a key that was presented (gateway/keys/keys.ts), the key of this machine (gateway/keys/local-key.ts).
 *
 * Invariants: no text of an entry but names of members reaches an error, since a key may stand where its hash belongs; an
 * entry that cannot be read lets nobody in.
 */
import { z } from 'zod';
import { HostError } from '../kernel/errors.js';
import { madeOnce } from '../kernel/made-once.js';
import { neutraliseLine } from '../kernel/terminal-text.js';

export interface KeyEntry {
  /** SHA-256 of the key, in base64url without padding. */
  readonly digest: string;
  readonly role: string | undefined;
  /** By the wall, in ms since 1970. */
  readonly expiresAtMs: number | undefined;
}

/** By name, which is also the id of whoever holds the key. */
export type Keys = ReadonlyMap<string, KeyEntry>;

/** The id of whoever embeds the host (host/host-interface.ts), which no other may have. */
export const reservedKeyName = 'embedder';

const keysMax = 10_000;
const shownChars = 64;
const keyName = /^[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}$/;
const hexDigest = /^[0-9a-f]{64}$/i;
/** 32 bytes: the last of 43 characters has two bits to spare. */
const base64Digest = /^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]=?$/;
const wrongHash = 'must be sha256: and the SHA-256 of the key in hex or base64url';
const hashHint = `make one with: printf %s "$KEY" | sha256sum`;

const keyEntry = madeOnce(() =>
  z.strictObject(
    {
      hash: z.string(wrongHash),
      role: z.string('must be the name of a role').min(1, 'must not be blank').max(128, 'is too long').optional(),
      expires: z.string('must be a date like 2027-01-31 or 2027-01-31T12:00:00Z').optional(),
    },
    'must be an object with a hash',
  ),
);

/** Throws when there is no table; what is wrong with one entry is told, and the entry left out. */
export function parseKeys(input: unknown, onProblem: (problem: HostError) => void): Keys {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) throw wrong('keys', 'must be an object');
  const entries = Object.entries(input);
  if (entries.length > keysMax) throw wrong('keys', `has more than ${keysMax} entries`);
  const keys = new Map<string, KeyEntry>();
  for (const [name, entry] of entries) {
    const read = parseKey(`keys.${neutraliseLine(name, shownChars)}`, name, entry);
    if (read instanceof HostError) onProblem(read);
    else keys.set(name, read);
  }
  for (const name of shared(keys)) {
    keys.delete(name);
    onProblem(
      wrong(`keys.${name}.hash`, 'is also that of another key: neither lets anybody in', 'give each its own key'),
    );
  }
  return keys;
}

function parseKey(at: string, name: string, entry: unknown): KeyEntry | HostError {
  if (!keyName.test(name))
    return wrong(at, 'is no name for a key', 'use 1 to 64 letters, digits, dots, dashes, underscores or @');
  if (name === reservedKeyName) return wrong(at, 'is a reserved name', 'call it something else');
  const parsed = keyEntry().safeParse(entry);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    if (issue?.code === 'unrecognized_keys')
      return wrong(
        `${at}.${neutraliseLine(String(issue.keys[0]), shownChars)}`,
        'is not known',
        'known are hash, role, expires',
      );
    return wrong([at, ...(issue?.path ?? [])].join('.'), issue?.message ?? 'is not valid', hashHint);
  }
  const { hash, role, expires } = parsed.data;
  const digest = digestOf(hash);
  if (digest === undefined) return wrong(`${at}.hash`, wrongHash, hashHint);
  const expiresAtMs = expires === undefined ? undefined : dateOf(expires);
  if (Number.isNaN(expiresAtMs))
    return wrong(`${at}.expires`, 'must be a date like 2027-01-31 or 2027-01-31T12:00:00Z');
  return Object.freeze({ digest, role, expiresAtMs });
}

function digestOf(hash: string): string | undefined {
  const [kind, text, ...rest] = hash.split(':');
  if (kind !== 'sha256' || text === undefined || rest.length > 0) return undefined;
  if (hexDigest.test(text)) return Buffer.from(text, 'hex').toString('base64url');
  return base64Digest.test(text) ? text.slice(0, 43) : undefined;
}

/** A day alone is its first instant in UTC; a time without a zone would mean another instant on each machine. */
const isoDate = /^\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:\d{2}))?$/;
function dateOf(text: string): number {
  const atMs = isoDate.test(text) ? Date.parse(text) : Number.NaN;
  // Date.parse takes the 31st of every month.
  return Number(text.slice(8, 10)) === dayOf(text) ? atMs : Number.NaN;
}

const dayOf = (text: string): number => new Date(`${text.slice(0, 10)}T00:00:00Z`).getUTCDate();

function shared(keys: Keys): string[] {
  const names = new Map<string, string[]>();
  for (const [name, { digest }] of keys) names.set(digest, [...(names.get(digest) ?? []), name]);
  return [...names.values()].filter(({ length }) => length > 1).flat();
}

const wrong = (field: string, what: string, hint = 'correct the configuration and try again'): HostError =>
  new HostError('invalid_spec', `${field}: ${what}`, { field, execution: 'not_executed', hint });
