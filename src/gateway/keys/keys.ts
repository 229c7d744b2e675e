/**
 * Who a bearer key belongs to.
 * Not here: reading the configuration (config/keys.ts), the file of this machine's own key (local-key.ts).
 *
 * Keys are looked up by their SHA-256. How long a lookup takes may tell something about the hash of what was presented,
 * which whoever presents it can compute anyway, but leads nobody to a key: closer hashes do not come from closer keys. The
 * same holds for headers that were good lately, which a Map finds by a hash of its own that nobody outside knows.
 *
 * Invariants: a key never leaves here, in no error and no log; the same key is the same Principal object until what is said of
 * it changes; the local key is the embedder itself.
 */
import { digestOf, isClientKey, type Keys } from '../../config/keys.js';
import { setBounded } from '../../kernel/bounded-map.js';
import type { Clock } from '../../kernel/clock.js';
import type { Principal } from '../../policy/operation.js';
import { embedder } from '../../policy/operation.js';

/** Of a whole `Authorization` header; longer ones are not looked at. */
export const headerCharsMax = 1_024;
/** As many clients as call at the same time. */
const seenMax = 256;
/** RFC 6750. */
const bearer = /^Bearer +([A-Za-z0-9._~+/-]+=*) *$/i;

interface Holder {
  readonly principal: Principal;
  readonly expiresAtMs: number | undefined;
}

export interface KeyringOptions {
  readonly clock: Clock;
  /** Whoever can read it is the operator (local-key.ts). Undefined: there is none. */
  readonly localKey?: string | undefined;
  readonly keys?: Keys;
}

export class Keyring {
  readonly #clock: Clock;
  readonly #localDigest: string | undefined;
  #byDigest: ReadonlyMap<string, Holder> = new Map();
  /** Headers that were good lately, so that a client's every request does not cost a hash. */
  readonly #seen = new Map<string, Holder>();
  /** By which key each was let in: under one name there may be another key by now. */
  readonly #digests = new WeakMap<Principal, string>();

  constructor({ clock, localKey, keys = new Map() }: KeyringOptions) {
    this.#clock = clock;
    this.#localDigest = localKey === undefined ? undefined : digestOf(localKey);
    this.replace(keys);
  }

  /** Whose key it is that the header holds; undefined: nobody's, or not any more. */
  authenticate(header: string | undefined): Principal | undefined {
    if (header === undefined || header.length > headerCharsMax) return undefined;
    const holder = this.#seen.get(header) ?? this.#lookUp(header);
    return holder && this.#unexpired(holder);
  }

  /** Who the key that somebody was let in by belongs to now; undefined: to nobody any more. */
  now(principal: Principal): Principal | undefined {
    if (principal === embedder) return embedder;
    const digest = this.#digests.get(principal);
    const holder = digest === undefined ? undefined : this.#byDigest.get(digest);
    return holder?.principal.id === principal.id ? this.#unexpired(holder) : undefined;
  }

  /** In wall time; undefined when none of those that still count ever does. */
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
    if (holder) setBounded(this.#seen, header, holder, seenMax);
    return holder;
  }

  /** From now on these, and the local one. */
  replace(keys: Keys): void {
    this.#seen.clear();
    const holders = new Map<string, Holder>();
    for (const [id, entry] of keys) {
      // A worker's key opens the broker alone.
      if (!isClientKey(entry)) continue;
      const { digest, role, expiresAtMs } = entry;
      const before = this.#byDigest.get(digest)?.principal;
      const isSame = before !== undefined && before.id === id && before.role === role;
      const principal: Principal = isSame ? before : Object.freeze({ id, role, scopes: [] });
      this.#digests.set(principal, digest);
      holders.set(digest, { principal, expiresAtMs });
    }
    // Last, so that no entry of the configuration can take its place.
    if (this.#localDigest !== undefined) {
      holders.set(this.#localDigest, { principal: embedder, expiresAtMs: undefined });
    }
    this.#byDigest = holders;
  }
}
