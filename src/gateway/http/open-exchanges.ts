/**
 * The requests that wait for their answer, of all clients: counted against one bound, and waited for at the end.
 */
import { type Deferred, deferred } from '../../kernel/deferred.js';
import type { PrincipalNow } from '../exchange.js';

/** As far as the end of the ingress is concerned. */
export interface OpenExchange {
  /** Lives until it is ended from outside, so that nobody waits for it. */
  readonly isEndless: boolean;
  /** Ends it with whatever can still be said. */
  shutDown(): void;
  /** Goes on in the name of who its client is now, or ends when it is nobody. */
  rekeyed(now: PrincipalNow): void;
}

export class OpenExchanges {
  readonly #open = new Set<OpenExchange>();
  readonly #max: number;
  #empty: Deferred | undefined;

  constructor(max: number) {
    this.#max = max;
  }

  get size(): number {
    return this.#open.size;
  }

  get isFull(): boolean {
    return this.#open.size >= this.#max;
  }

  add(exchange: OpenExchange): void {
    this.#open.add(exchange);
  }

  delete(exchange: OpenExchange): void {
    this.#open.delete(exchange);
    if (this.#open.size === 0) this.#empty?.resolve();
  }

  shutDown(which: 'endless' | 'all'): void {
    for (const exchange of [...this.#open]) if (which === 'all' || exchange.isEndless) exchange.shutDown();
  }

  rekeyed(now: PrincipalNow): void {
    for (const exchange of [...this.#open]) exchange.rekeyed(now);
  }

  /** Resolves when there is none. */
  emptied(): Promise<void> {
    if (this.#open.size === 0) return Promise.resolve();
    this.#empty ??= deferred();
    return this.#empty.promise;
  }
}
