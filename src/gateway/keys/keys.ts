/**
 * The keys of the gateway, and the principal of each.
 * Not here: reading the configuration (config/keys.ts), the file of the local key (local-key.ts).
 *
 * Keys are looked up by their SHA-256. The time of a lookup may reveal something about the hash of the presented key, which its sender
 * can compute anyway. It leads to no other key: similar hashes do not come from similar keys. The cache of headers is a Map, whose hash
 * is seeded per process.
 *
 * Invariants: a key is in no error and no log; a key has the same Principal object until its id or role changes; the local key is the
 * embedder's.
 */
import { digestOf, isClientKey, type Keys } from '../../config/keys.js';
import { setBounded } from '../../kernel/bounded-map.js';
import type { Clock } from '../../kernel/clock.js';
import { embedder, type Principal } from '../../policy/operation.js';

/** The limit of an `Authorization` header; a longer one is refused. */
export const headerCharsMax = 1_024;
/** Clients that call at the same time. */
const cachedMax = 4_096;
/** RFC 6750. */
const bearer = /^Bearer +([A-Za-z0-9._~+/-]+=*) *$/i;

interface Holder {
  readonly principal: Principal;
  readonly expiresAtMs: number | undefined;
}

export class Keyring {
  readonly #clock: Clock;
  readonly #localDigest: string | undefined;
  #byDigest: ReadonlyMap<string, Holder> = new Map();
  /** Valid headers, so that not every request costs a hash. */
  readonly #cached = new Map<string, Holder>();
  /** The key that each principal was authenticated by: the name may have another key by now. */
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

  /** The principal of the key in an `Authorization` header; undefined for an unknown or expired key. */
  authenticate(header: string | undefined): Principal | undefined {
    if (header === undefined || header.length > headerCharsMax) return undefined;
    const holder = this.#cached.get(header) ?? this.#lookUp(header);
    return holder && this.#unexpired(holder);
  }

  /** The principal that the key of an authenticated one has now; undefined when the key is gone or expired. */
  now(principal: Principal): Principal | undefined {
    if (principal === embedder) return embedder;
    const digest = this.#digests.get(principal);
    const holder = digest === undefined ? undefined : this.#byDigest.get(digest);
    return holder?.principal.id === principal.id ? this.#unexpired(holder) : undefined;
  }

  /** In wall time; undefined when no valid key ever expires. */
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

  /** The local key stays. */
  replace(keys: Keys): void {
    this.#cached.clear();
    const holders = new Map<string, Holder>();
    for (const [id, entry] of keys) {
      // The key of a worker is for the broker only.
      if (!isClientKey(entry)) continue;
      const { digest, role, expiresAtMs } = entry;
      const before = this.#byDigest.get(digest)?.principal;
      const isSame = before !== undefined && before.id === id && before.role === role;
      const principal: Principal = isSame ? before : Object.freeze({ id, role, scopes: [] });
      this.#digests.set(principal, digest);
      holders.set(digest, { principal, expiresAtMs });
    }
    // Last: no entry of the configuration replaces the local key.
    if (this.#localDigest !== undefined) {
      holders.set(this.#localDigest, { principal: embedder, expiresAtMs: undefined });
    }
    this.#byDigest = holders;
  }
}
