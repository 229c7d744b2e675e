/**
 * The keys of the gateway, and the principal of each.
 * Not here: the configuration (config/keys.ts).
 * Keys are looked up by SHA-256. The lookup time may leak the hash of the presented key, but its sender can compute that hash.
 * The time reveals no other key, because similar keys have unrelated hashes. The header cache is a Map, with a hash seed per process.
 * Invariants: no error and no log contains a key. A key has the same Principal object until its id or role changes.
 * The principal of the local key is the embedder.
 */

import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { digestOf, isClientKey, type Keys, newKey } from '../../config/keys.js';
import { setBounded } from '../../kernel/bounded-map.js';
import type { Clock } from '../../kernel/clock.js';
import { createOnce } from '../../kernel/create-once.js';
import { HostError } from '../../kernel/errors.js';
import { makeFolders } from '../../kernel/make-folders.js';
import { embedder, type Principal } from '../../policy/operation.js';
import { requireTrusted } from '../../transports/stdio/state-dir.js';

/** Maximum length of an `Authorization` header. */
export const headerCharsMax = 1_024;
/** Maximum of cached headers: one for each client that is calling. */
const cachedMax = 4_096;
/** The header syntax of RFC 6750. */
const bearer = /^Bearer +([A-Za-z0-9._~+/-]+=*) *$/i;

interface Holder {
  readonly principal: Principal;
  readonly expiresAtMs: number | undefined;
}

export class Keyring {
  readonly #clock: Clock;
  readonly #localDigest: string | undefined;
  #byDigest: ReadonlyMap<string, Holder> = new Map();
  /** Valid headers, which save a hash for each request. */
  readonly #cached = new Map<string, Holder>();
  /** Digest of the key that authenticated each principal. The same id may have a new key later. */
  readonly #digests = new WeakMap<Principal, string>();

  /** `localKey`: the key of the operator (`LocalKey`). */
  constructor({
    clock,
    localKey,
    keys = new Map(),
  }: { readonly clock: Clock; readonly localKey?: string | undefined; readonly keys?: Keys }) {
    this.#clock = clock;
    this.#localDigest = localKey === undefined ? undefined : digestOf(localKey);
    this.replace(keys);
  }

  /** Undefined: the key is unknown or expired. */
  readonly authenticate = (header: string | undefined): Principal | undefined => {
    if (header === undefined || header.length > headerCharsMax) return undefined;
    const holder = this.#cached.get(header) ?? this.#lookUp(header);
    return holder && this.#unexpired(holder);
  };

  /** The current principal for the key that authenticated `principal`; undefined: the key was removed or has expired. */
  now(principal: Principal): Principal | undefined {
    if (principal === embedder) return embedder;
    const digest = this.#digests.get(principal);
    const holder = digest === undefined ? undefined : this.#byDigest.get(digest);
    return holder?.principal.id === principal.id ? this.#unexpired(holder) : undefined;
  }

  /** Wall-clock time of the next expiry; undefined: no valid key expires. */
  nextExpiryMs(): number | undefined {
    const now = this.#clock.date().getTime();
    let next: number | undefined;
    for (const { expiresAtMs } of this.#byDigest.values()) {
      if (expiresAtMs !== undefined && expiresAtMs > now && (next === undefined || expiresAtMs < next))
        next = expiresAtMs;
    }
    return next;
  }

  #unexpired({ principal, expiresAtMs }: Holder): Principal | undefined {
    return expiresAtMs !== undefined && this.#clock.date().getTime() >= expiresAtMs ? undefined : principal;
  }

  #lookUp(header: string): Holder | undefined {
    const key = bearer.exec(header)?.[1];
    const holder = key === undefined ? undefined : this.#byDigest.get(digestOf(key));
    if (holder) setBounded(this.#cached, header, holder, cachedMax);
    return holder;
  }

  /** Does not change the local key. */
  replace(keys: Keys): void {
    this.#cached.clear();
    const holders = new Map<string, Holder>();
    for (const [id, entry] of keys) {
      // A worker's key is valid at the broker only.
      if (!isClientKey(entry)) continue;
      const { digest, role, expiresAtMs } = entry;
      const before = this.#byDigest.get(digest)?.principal;
      const isSame = before !== undefined && before.id === id && before.role === role;
      const principal: Principal = isSame ? before : Object.freeze({ id, role, scopes: [] });
      this.#digests.set(principal, digest);
      holders.set(digest, { principal, expiresAtMs });
    }
    // The local key is set last, so that no configuration entry can replace it.
    if (this.#localDigest !== undefined) {
      holders.set(this.#localDigest, { principal: embedder, expiresAtMs: undefined });
    }
    this.#byDigest = holders;
  }
}

const fileName = 'key';
const fileBytesMax = 1_024;
/** The operator may write the key file by hand, so any bearer token of 32 to 512 characters is accepted. */
const usableKey = /^[A-Za-z0-9._~+/-]{32,512}=*$/;
const othersMayUse = 0o077;

/**
 * The local key: a file in the data directory, created by the first start. A reader of the file has the rights of the embedder.
 * Invariants: concurrent first starts create one key, and all of them use it. A symbolic link, or a file that other users could
 * read, is refused and not repaired: another user may already know the key.
 */
export interface LocalKey {
  readonly key: string;
  readonly isNew: boolean;
}

/** Throws a HostError if the file is not trusted or cannot be created. */
export function readOrCreateLocalKey(dataDir: string): LocalKey {
  const file = path.join(dataDir, fileName);
  try {
    makeFolders(dataDir);
  } catch (cause) {
    throw unusable(file, 'cannot be created', 'choose a data directory that Hostler may write to', cause);
  }
  requireTrusted(dataDir);
  const found = read(file);
  if (found !== undefined) return { key: found, isNew: false };
  const key = newKey();
  if (create(file, key)) return { key, isNew: true };
  const others = read(file);
  if (others === undefined) throw unusable(file, 'cannot be created', 'start Hostler again');
  return { key: others, isNew: false };
}

/** Undefined: the file does not exist. */
function read(file: string): string | undefined {
  let descriptor: number;
  try {
    descriptor = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (cause) {
    if (codeOf(cause) === 'ENOENT') return undefined;
    if (codeOf(cause) === 'ELOOP')
      throw unusable(
        file,
        'is a symbolic link',
        'replace it by a file with the key, or remove it: the next start creates one',
        cause,
      );
    throw unusable(file, 'cannot be read', 'make the user that runs Hostler its owner', cause);
  }
  try {
    mustBePrivate(file, descriptor);
    const key = readFileSync(descriptor, 'latin1').trim();
    if (!usableKey.test(key)) throw unusable(file, 'holds no key', 'remove it: the next start creates one');
    return key;
  } finally {
    closeSync(descriptor);
  }
}

function mustBePrivate(file: string, descriptor: number): void {
  const facts = fstatSync(descriptor);
  const ownUid = process.getuid?.();
  if (!facts.isFile()) throw unusable(file, 'is not a file', 'remove it: the next start creates one');
  if (facts.size > fileBytesMax)
    throw unusable(file, 'is too large for a key', 'remove it: the next start creates one');
  // Windows has no file owner and mode to check.
  if (ownUid === undefined) return;
  if (facts.uid !== ownUid)
    throw unusable(file, 'belongs to another user', 'choose a data directory that no other user shares');
  if ((facts.mode & othersMayUse) !== 0)
    throw unusable(file, 'can be read by others', `chmod 600 ${file}, or remove it if another user may have read it`);
}

/** False: another process created the file first. */
function create(file: string, key: string): boolean {
  try {
    return createOnce(file, `${key}\n`);
  } catch (cause) {
    throw unusable(file, 'cannot be created', 'let Hostler write to its data directory', cause);
  }
}

const codeOf = (error: unknown): string => String((error as { code?: unknown } | null)?.code ?? '');

const unusable = (file: string, what: string, hint: string, cause?: unknown): HostError =>
  new HostError('invalid_spec', `the key file ${file} ${what}`, { field: 'dataDir', reason: 'key_file', hint, cause });
