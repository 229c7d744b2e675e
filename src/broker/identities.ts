/**
 * The workers that may connect, from `keys` of the configuration. Transports look up each credential here, and each call looks up its
 * worker again when it begins.
 * Not here: parsing the keys (config/keys.ts), closing connections of revoked keys (the transports).
 *
 * Invariants: a key that the gateway accepts is never the key of a worker. A change is checked before it is made, and made in one step.
 */
import type { KeyEntry, Keys } from '../config/keys.js';
import type { Cancel, Clock } from '../kernel/clock.js';
import type { WorkerIdentity } from './service/transport.js';

const expiryLookMs = 60_000;

type Rows = Map<string, readonly KeyEntry[]>;

export class Identities {
  readonly #clock: Clock;
  readonly #listeners = new Set<() => void>();
  #byDigest: ReadonlyMap<string, KeyEntry> = new Map();
  #byWorker: Rows = new Map();
  /** The entry that last named each worker without a mistake. A worker whose key has a mistake now keeps its earlier entry. */
  #owners: ReadonlyMap<string, KeyEntry> = new Map();
  #refused: ReadonlySet<string> = new Set();
  #cancelExpiry: Cancel = () => {};

  constructor(keys: Keys, clock: Clock) {
    this.#clock = clock;
    this.replace(keys);
  }

  /** The worker whose key has this digest; undefined if there is none, or the key has expired. A session keeps its digest to ask again. */
  ofDigest(digest: string): WorkerIdentity | undefined {
    return this.#identity(this.#byDigest.get(digest));
  }

  /** The worker while one of its keys is valid. */
  current(worker: string, epoch: string): WorkerIdentity | undefined {
    const entries = this.#byWorker.get(worker) ?? [];
    const valid = entries.find((entry) => entry.worker?.epoch === epoch && this.#identity(entry));
    return this.#identity(valid);
  }

  /** Workers with at least one listed key, even if it has expired. */
  workers(): readonly WorkerIdentity[] {
    return [...this.#byWorker.values()].flatMap(([entry]) => (entry ? (asIdentity(entry) ?? []) : []));
  }

  /** Workers whose calls are kept. If a key with a mistake names a worker, its calls of all epochs are kept. */
  kept(): readonly KeptWorker[] {
    return [...this.workers(), ...[...this.#refused].map((name) => ({ name, epoch: undefined }))];
  }

  /** Listeners are called in the same turn of the event loop. */
  replace(keys: Keys): ChangedWorkers {
    const before = this.#owners;
    const owners = new Map<string, KeyEntry>();
    const byDigest = new Map<string, KeyEntry>();
    const byWorker: Rows = new Map();
    for (const entry of keys.values()) {
      const { worker, digest } = entry;
      if (!worker) continue;
      if (digest !== undefined) byDigest.set(digest, entry);
      byWorker.set(worker.name, [...(byWorker.get(worker.name) ?? []), entry]);
      if (!owners.has(worker.name)) owners.set(worker.name, entry);
    }
    const { refusedWorkers = new Set() } = keys;
    [this.#byDigest, this.#byWorker, this.#owners, this.#refused] = [byDigest, byWorker, owners, refusedWorkers];
    this.#changed();
    const revoked: { name: string; keptEpoch: string | undefined }[] = [];
    const otherRole = new Set<string>();
    for (const [name, was] of before) {
      const now = owners.get(name);
      const keptEpoch = now?.worker?.epoch;
      if (keptEpoch === was.worker?.epoch) {
        if (now?.role !== was.role) otherRole.add(name);
      } else if (refusedWorkers.has(name)) owners.set(name, was);
      else revoked.push({ name, keptEpoch });
    }
    return { revoked, otherRole };
  }

  /** Called after each change of the keys, and when a key expires. The listener must not throw. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Stops the expiry timer: listeners are not called for keys that expire later. */
  close(): void {
    this.#cancelExpiry();
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
    const wallMs = this.#clock.date().getTime();
    const expiries = [...this.#byWorker.values()].flat().flatMap(({ expiresAtMs }) => expiresAtMs ?? []);
    this.#cancelExpiry();
    if (expiries.length === 0) return;
    // At least once a minute, because the wall clock may be set.
    const delayMs = expiries.reduce((least, at) => (at > wallMs ? Math.min(least, at - wallMs) : least), expiryLookMs);
    this.#cancelExpiry = this.#clock.at(this.#clock.nowMs() + delayMs, () => this.#changed());
  }

  #identity(entry: KeyEntry | undefined): WorkerIdentity | undefined {
    if (!entry) return undefined;
    const { expiresAtMs = Number.POSITIVE_INFINITY } = entry;
    return this.#clock.date().getTime() < expiresAtMs ? asIdentity(entry) : undefined;
  }
}

export interface KeptWorker {
  readonly name: string;
  /** Undefined: the calls of all epochs are kept. */
  readonly epoch: string | undefined;
}

export interface ChangedWorkers {
  /** Workers that are no longer listed, or whose name has a new epoch, which means a new holder. */
  readonly revoked: readonly { readonly name: string; readonly keptEpoch: string | undefined }[];
  readonly otherRole: ReadonlySet<string>;
}

const asIdentity = ({ worker, role }: KeyEntry): WorkerIdentity | undefined =>
  worker && { name: worker.name, epoch: worker.epoch, role };
