/**
 * Notices a channel that sends nothing although requests wait: for 10 s in all, some request waited while nothing was written and
 * nothing was received. Such a channel would wait for ever, whatever the cause. Waits of several requests add up, because a
 * caller may give up before 10 s have passed; the next byte written or received starts the count again.
 * Not here: whether the server works on a request meanwhile, and what is done about it (session.ts).
 *
 * Invariants: no timer runs while no request waits. Control traffic is no activity: a ping that is answered frees no request.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';

const tickMs = 1_000;
const stalledTicks = 10;

export class StallWatch {
  readonly #clock: Clock;
  /** Told with a number that stays the same for as long as nothing is written or heard. */
  readonly #stalled: (activity: number) => void;
  /** Requests that wait. */
  #unsent = 0;
  #activity = 0;
  #seenActivity = 0;
  #quietTicks = 0;
  #cancel: Cancel | undefined;

  constructor(clock: Clock, stalled: (activity: number) => void) {
    this.#clock = clock;
    this.#stalled = stalled;
  }

  /** Something of a request was written or heard. On the path of every call. */
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
