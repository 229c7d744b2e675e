/**
 * Detects a channel that sends nothing although requests wait: for 10 s in all, some request waited while no byte was written or
 * received. Waits of several requests add up, because a caller may give up before 10 s have passed. The next byte starts the count
 * again.
 * Not here: whether the server works on a request meanwhile, and the reaction (session/session.ts).
 *
 * Invariants: no timer runs while no request waits. Control traffic is no activity: an answered ping frees no request.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';

const tickMs = 1_000;
const stalledTicks = 10;

export class StallWatch {
  readonly #clock: Clock;
  /** Called with a number that changes when a byte is written or received. */
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

  /** Bytes of a request were written or received. On the hot path. */
  active(): void {
    this.#activity++;
  }

  /** A request could not be sent at once. */
  waiting(): void {
    this.#unsent++;
    if (!this.#cancel) this.#arm();
  }

  /** Such a request was sent, failed or was given up. */
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
