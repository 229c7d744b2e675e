/**
 * Whether the other end of a connection is still there: asks when it was silent, and gives up when it stays silent.
 * Not here: how to ask (ws-wire.ts). Both ends do this, since either may be the one that is left alone.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';

export interface HeartbeatOptions {
  readonly clock: Clock;
  readonly pingMs: number;
  readonly pongMs: number;
  ping(): void;
  lost(): void;
}

export class Heartbeat {
  readonly #options: HeartbeatOptions;
  #isAsked = false;
  #cancel: Cancel = () => {};

  constructor(options: HeartbeatOptions) {
    this.#options = options;
    this.resume();
  }

  /** Anything that came counts. */
  heard(): void {
    this.#isAsked = false;
  }

  /** While nothing is read on purpose, silence says nothing. */
  stop(): void {
    this.#cancel();
  }

  resume(): void {
    this.#isAsked = false;
    this.#askIn(this.#options.pingMs);
  }

  #askIn(delayMs: number): void {
    this.#cancel();
    const { clock } = this.#options;
    this.#cancel = clock.at(clock.nowMs() + delayMs, () => this.#ask());
  }

  #ask(): void {
    const { clock, pingMs, pongMs } = this.#options;
    this.#isAsked = true;
    this.#cancel = clock.at(clock.nowMs() + pongMs, () =>
      this.#isAsked ? this.#options.lost() : this.#askIn(Math.max(pingMs - pongMs, 0)),
    );
    this.#options.ping();
  }
}
