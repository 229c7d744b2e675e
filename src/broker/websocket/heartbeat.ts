/** Notices that the other end of a connection is gone: sends a ping after silence, and reports the loss when nothing comes back. */
import type { Cancel, Clock } from '../../kernel/clock.js';
import { pingMs, pongMs } from './limits.js';

export interface HeartbeatParts {
  readonly clock: Clock;
  ping(): void;
  lost(): void;
}

export class Heartbeat {
  readonly #parts: HeartbeatParts;
  #isAsked = false;
  #cancel: Cancel = () => {};

  constructor(parts: HeartbeatParts) {
    this.#parts = parts;
    this.start();
  }

  /** Anything that arrives counts as a sign of life. */
  heard(): void {
    this.#isAsked = false;
  }

  /** While a socket is paused, its silence means nothing. */
  stop(): void {
    this.#cancel();
  }

  start(): void {
    this.#isAsked = false;
    this.#wait(pingMs);
  }

  #wait(delayMs: number): void {
    const { clock } = this.#parts;
    this.#cancel();
    this.#cancel = clock.at(clock.nowMs() + delayMs, () => this.#ask());
  }

  #ask(): void {
    const { clock } = this.#parts;
    this.#isAsked = true;
    this.#cancel = clock.at(clock.nowMs() + pongMs, () =>
      this.#isAsked ? this.#parts.lost() : this.#wait(pingMs - pongMs),
    );
    this.#parts.ping();
  }
}
