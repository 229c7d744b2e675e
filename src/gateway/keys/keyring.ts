/**
 * The keys of the gateway, and the principal of each.
 * Not here: the configuration (config/keys.ts), the file of the local key (local-key.ts).
 * Keys are looked up by SHA-256. The lookup time may leak the hash of the presented key, but its sender can compute that hash.
 * It reveals no other key, because similar keys have unrelated hashes. The header cache is a Map, with a hash seed per process.
 * Invariants: no error and no log contains a key. A key has the same Principal object until its id or role changes.
 * The principal of the local key is the embedder.
 */
import { digestOf, isClientKey, type Keys } from '../../config/keys.js';
import { setBounded } from '../../kernel/bounded-map.js';
import type { Clock } from '../../kernel/clock.js';
import { embedder, type Principal } from '../../policy/operation.js';

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

  /** `localKey`: the key of the operator (local-key.ts). */
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
  authenticate(header: string | undefined): Principal | undefined {
    if (header === undefined || header.length > headerCharsMax) return undefined;
    const holder = this.#cached.get(header) ?? this.#lookUp(header);
    return holder && this.#unexpired(holder);
  }

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
