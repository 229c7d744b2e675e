/**
 * The requests that wait for their answer, of all clients: counted against one bound that keys share (fair-shares.ts), notified
 * when they take long, and waited for at the end.
 * Invariant: one timer for all of them, and none while there are none that wait in silence.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import { type Deferred, deferred } from '../../kernel/deferred.js';
import type { PrincipalNow } from '../exchange.js';
import { FairShares } from './fair-shares.js';

/** As far as the end of the ingress is concerned. */
export interface OpenExchange {
  /** Lives until it is ended from outside, so that nobody waits for it. */
  readonly isEndless: boolean;
  readonly startedAtMs: number;
  /** Nothing was said of it yet: what lies between may take the connection for dead. */
  readonly isSilent: boolean;
  /** It takes long: whatever there is to say, that it goes on can be said. */
  linger(): void;
  /** Ends it with whatever can still be said. */
  shutDown(): void;
  /** Goes on in the name of who its client is now, or ends when it is nobody. */
  rekeyed(now: PrincipalNow): void;
}

const sweepsPerSilence = 10;

export class OpenExchanges {
  /** Each with the key that it counts for. */
  readonly #open = new Map<OpenExchange, string>();
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

  /** Those that listen. */
  get endless(): number {
    let count = 0;
    for (const { isEndless } of this.#open.keys()) if (isEndless) count++;
    return count;
  }

  /** Whether this key may have one more. */
  admits(key: string): boolean {
    return this.#shares.admits(key);
  }

  add(exchange: OpenExchange, key: string): void {
    this.#open.set(exchange, key);
    this.#shares.take(key);
    this.#cancelSweep ??= this.#sweepLater();
  }

  delete(exchange: OpenExchange): void {
    const key = this.#open.get(exchange);
    if (key === undefined) return;
    this.#open.delete(exchange);
    this.#shares.giveBack(key);
    if (this.#open.size === 0) this.#empty?.resolve();
  }

  shutDown(which: 'endless' | 'all'): void {
    for (const exchange of [...this.#open.keys()]) if (which === 'all' || exchange.isEndless) exchange.shutDown();
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
    for (const exchange of [...this.#open.keys()]) {
      if (exchange.isSilent && exchange.startedAtMs <= beforeMs) exchange.linger();
      isAnySilent ||= exchange.isSilent;
    }
    this.#cancelSweep = isAnySilent ? this.#sweepLater() : undefined;
  }

  rekeyed(now: PrincipalNow): void {
    for (const exchange of [...this.#open.keys()]) exchange.rekeyed(now);
  }

  /** Resolves when there is none. */
  emptied(): Promise<void> {
    if (this.#open.size === 0) return Promise.resolve();
    this.#empty ??= deferred();
    return this.#empty.promise;
  }
}
