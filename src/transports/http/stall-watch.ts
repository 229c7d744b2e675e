/**
 * Detects a stalled channel: some request waited to be sent for 10 s in total, and no byte was written or received.
 * Waits of several requests add up, because a caller may give up before 10 s. The next byte resets the count.
 * Not here: the reaction, and whether the server is still working on a request (session/session.ts).
 * Invariants: no timer runs while no request waits. Control traffic is not activity, because an answered ping frees no request.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';

const tickMs = 1_000;
const stalledTicks = 10;

export class StallWatch {
  readonly #clock: Clock;
  /** The argument is a number that changes when a byte is written or received. */
  readonly #stalled: (activity: number) => void;
  #unsent = 0;
  #activity = 0;
  #seenActivity = 0;
  #quietTicks = 0;
  #cancel: Cancel | undefined;

  constructor(clock: Clock, stalled: (activity: number) => void) {
    this.#clock = clock;
    this.#stalled = stalled;
  }

  active(): void {
    this.#activity++;
  }

  waiting(): void {
    this.#unsent++;
    if (!this.#cancel) this.#arm();
  }

  /** A waiting request was sent, failed or was given up. */
  waitOver(): void {
    this.#unsent--;
    if (this.#unsent === 0) this.stop();
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #arm(): void {
    this.#cancel = this.#clock.at(this.#clock.nowMs() + tickMs, () => this.#tick());
  }

  #tick(): void {
    this.#arm();
    if (this.#activity !== this.#seenActivity) {
      this.#seenActivity = this.#activity;
      this.#quietTicks = 0;
    } else if (++this.#quietTicks === stalledTicks) {
      this.#quietTicks = 0;
      this.#stalled(this.#activity);
    }
  }
}
