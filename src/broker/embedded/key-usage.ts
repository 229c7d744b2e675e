/**
 * What the holders of keys use: how many connections each key has, and how fast each mailbox talks over all of its connections.
 * Not here: who a key belongs to (credentials.ts).
 *
 * Invariant: a rate outlives the connections it was used by, so that coming again makes nobody faster; it ends with the last key
 * of its mailbox, so there are no more of them than mailboxes with a key.
 */
import type { Clock } from '../../kernel/clock.js';
import type { Credential } from './credentials.js';
import type { BrokerLimits } from './limits.js';
import { TokenBucket } from './token-bucket.js';

export class KeyUsage {
  readonly #clock: Clock;
  readonly #limits: BrokerLimits;
  /** By the digest of the key. */
  readonly #connections = new Map<string, number>();
  readonly #buckets = new Map<string, TokenBucket>();

  constructor(clock: Clock, limits: BrokerLimits) {
    this.#clock = clock;
    this.#limits = limits;
  }

  hasRoomFor({ digest }: Credential): boolean {
    return (this.#connections.get(digest) ?? 0) < this.#limits.connectionsOfKey;
  }

  connected({ digest }: Credential): void {
    this.#connections.set(digest, (this.#connections.get(digest) ?? 0) + 1);
  }

  disconnected({ digest }: Credential): void {
    const left = (this.#connections.get(digest) ?? 1) - 1;
    if (left > 0) this.#connections.set(digest, left);
    else this.#connections.delete(digest);
  }

  /** Undefined: as fast as it can. */
  bucketOf({ kind, mailbox }: Credential): TokenBucket | undefined {
    const { rate } = this.#limits;
    if (kind !== 'worker' || !rate) return undefined;
    const bucket = this.#buckets.get(mailbox) ?? new TokenBucket(rate, this.#clock.nowMs());
    this.#buckets.set(mailbox, bucket);
    return bucket;
  }

  /** Of mailboxes that nobody has any more. */
  forget(isOwned: (mailbox: string) => boolean): void {
    for (const mailbox of this.#buckets.keys()) if (!isOwned(mailbox)) this.#buckets.delete(mailbox);
  }
}
