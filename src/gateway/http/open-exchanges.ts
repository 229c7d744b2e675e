/**
 * The open requests of all clients. All keys share one bound. A slow request gets an event stream, so that proxies see output.
 * Shutdown waits for all requests except listen streams.
 * Invariants: at most `max` requests are open, and one timer serves all. A key below a quarter of `max` may take any free slot.
 * A key above its quarter gets a free slot only under these rules:
 * - A key that is alone may take all slots.
 * - While other keys have requests, a quarter of the slots stays free for keys below their quarter.
 * - For `contendedMs` after a key below its quarter was refused, keys above their quarter get no slot.
 */
import { setBounded } from '../../kernel/bounded-map.js';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { type Deferred, deferred } from '../../kernel/deferred.js';
import { IdTable } from '../../wire/id-table.js';
import type { CurrentPrincipal } from '../exchange.js';

/** An exchange as the sweep and the shutdown of the ingress see it. */
export interface OpenExchange {
  /** True for a listen stream, which never ends by itself: shutdown does not wait for it. */
  readonly isEndless: boolean;
  readonly startedAtMs: number;
  /** True until the first byte is written. A proxy may drop a silent connection. */
  readonly isSilent: boolean;
  /** Starts an event stream for a slow request, so that its connection is not silent. */
  linger(): void;
  shutDown(): void;
  /** Adopts the current principal of the key, or ends the exchange if the key was revoked. */
  keysChanged(now: CurrentPrincipal): void;
}

const sweepsPerSilence = 10;

export class OpenExchanges {
  /** Open exchanges, with the key that each counts for. */
  readonly #open = new IdTable<{ readonly exchange: OpenExchange; readonly key: string }>();
  #lastId = 0;
  readonly #shares: FairShares;
  readonly #clock: Clock;
  readonly #silentMs: number;
  #empty: Deferred | undefined;
  #cancelSweep: Cancel | undefined;

  constructor(max: number, clock: Clock, silentMs: number) {
    this.#shares = new FairShares(max, clock);
    this.#clock = clock;
    this.#silentMs = silentMs;
  }

  get size(): number {
    return this.#open.size;
  }

  /** Number of listen streams. */
  get endless(): number {
    let count = 0;
    this.#open.forEach(({ exchange }) => {
      if (exchange.isEndless) count++;
    });
    return count;
  }

  admits(key: string): boolean {
    return this.#shares.admits(key);
  }

  /** Returns the id with which the exchange is deleted. */
  add(exchange: OpenExchange, key: string): number {
    const id = ++this.#lastId;
    this.#open.set(id, { exchange, key });
    this.#shares.take(key);
    this.#cancelSweep ??= this.#sweepLater();
    return id;
  }

  delete(id: number): void {
    const open = this.#open.get(id);
    if (!open) return;
    this.#open.delete(id);
    this.#shares.release(open.key);
    if (this.#open.size === 0) this.#empty?.resolve();
  }

  shutDown(which: 'endless' | 'all'): void {
    for (const { exchange } of this.#open.values()) if (which === 'all' || exchange.isEndless) exchange.shutDown();
  }

  close(): void {
    this.#cancelSweep?.();
    this.#cancelSweep = undefined;
  }

  #sweepLater(): Cancel {
    return this.#clock.at(this.#clock.nowMs() + this.#silentMs / sweepsPerSilence, () => this.#sweep());
  }

  #sweep(): void {
    const beforeMs = this.#clock.nowMs() - this.#silentMs;
    let isAnySilent = false;
    for (const { exchange } of this.#open.values()) {
      if (exchange.isSilent && exchange.startedAtMs <= beforeMs) exchange.linger();
      isAnySilent ||= exchange.isSilent;
    }
    this.#cancelSweep = isAnySilent ? this.#sweepLater() : undefined;
  }

  keysChanged(now: CurrentPrincipal): void {
    for (const { exchange } of this.#open.values()) exchange.keysChanged(now);
  }

  emptied(): Promise<void> {
    if (this.#open.size === 0) return Promise.resolve();
    this.#empty ??= deferred();
    return this.#empty.promise;
  }
}

/** How long a refused key counts as waiting. Clients retry after 1 s. */
export const contendedMs = 10_000;
/** Maximum number of remembered refusals. */
const refusedMax = 1_000;

export class FairShares {
  readonly #max: number;
  readonly #quarter: number;
  readonly #clock: Clock;
  readonly #held = new Map<string, number>();
  #size = 0;
  /** Keys below their quarter that were refused, with the time of their last refusal. */
  readonly #refused = new Map<string, number>();

  constructor(max: number, clock: Clock) {
    this.#max = max;
    this.#quarter = Math.max(1, Math.floor(max / 4));
    this.#clock = clock;
  }

  get size(): number {
    return this.#size;
  }

  admits(key: string): boolean {
    const own = this.#held.get(key) ?? 0;
    const isFull = this.#size >= this.#max;
    if (own < this.#quarter) {
      if (isFull) setBounded(this.#refused, key, this.#clock.nowMs(), refusedMax);
      return !isFull;
    }
    if (isFull || this.#isContended()) return false;
    return own === this.#size || this.#size < this.#max - this.#quarter;
  }

  take(key: string): void {
    this.#size++;
    this.#held.set(key, (this.#held.get(key) ?? 0) + 1);
    if (this.#refused.size > 0) this.#refused.delete(key);
  }

  release(key: string): void {
    const left = (this.#held.get(key) ?? 0) - 1;
    this.#size--;
    if (left > 0) this.#held.set(key, left);
    else this.#held.delete(key);
  }

  /** Whether a key below its quarter was refused within `contendedMs` and got no slot since. */
  #isContended(): boolean {
    const beforeMs = this.#clock.nowMs() - contendedMs;
    for (const [key, atMs] of this.#refused) {
      if (atMs > beforeMs) return true;
      this.#refused.delete(key);
    }
    return false;
  }
}
