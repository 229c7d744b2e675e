/**
 * Asks a suspect connection for a sign of life: once, however many want to know, and never for longer than its limit.
 * Invariant: a check that was ended, or overtaken by its limit, says nothing any more; no timer outlives it.
 */
import type { Cancel, Clock } from '../kernel/clock.js';
import type { Connection, Verify } from './ports.js';

export class HealthCheck<C extends Connection> {
  readonly #clock: Clock;
  readonly #verify: Verify<C>;
  readonly #limitMs: number;
  #cancel: Cancel | undefined;

  constructor(clock: Clock, verify: Verify<C>, limitMs: number) {
    this.#clock = clock;
    this.#verify = verify;
    this.#limitMs = limitMs;
  }

  /** Does nothing while a check is under way: its answer will do. */
  begin(connection: C, conclude: (isAlive: boolean) => void): void {
    if (this.#cancel) return;
    const deadlineAtMs = this.#clock.nowMs() + this.#limitMs;
    const settle = (isAlive: boolean) => {
      if (this.#cancel !== cancel) return;
      this.end();
      conclude(isAlive);
    };
    const cancel = this.#clock.at(deadlineAtMs, () => settle(false));
    this.#cancel = cancel;
    const ask = async () => this.#verify(connection, deadlineAtMs);
    ask().then(settle, () => settle(false));
  }

  end(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }
}
