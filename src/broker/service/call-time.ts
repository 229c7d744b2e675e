/**
 * The time of one call: how much of it is left, since when it may have been run, and until when its key is remembered.
 * Not here: what follows from it (brokered-call.ts), what its way took (way-meter.ts).
 *
 * Invariant: it is over when its worker's time is, by the clock of this host or by wall time, whichever comes first.
 */
import type { Clock } from '../../kernel/clock.js';
import type { CallRequest } from '../messages.js';
import { beganDoubtMs, type Delivery, keyKeptMsMin } from '../ports.js';

/** A caller's own key may come again within a day; one made for a single call, not after its deadline and some doubt about clocks. */
const callersKeyMs = 24 * 3_600_000;
/** Less is not enough to begin anything. */
const leftMsMin = 1;
/**
 * Of its caller's time a call does not have: what its reply needs to be there in time. The way here took time too, which nobody
 * counted: each who holds a request stamps its end anew. A caller with very little has a part of it left.
 */
const wayMsMax = 10;
const wayPart = 1 / 4;

export class CallTime {
  readonly #clock: Clock;
  readonly #request: CallRequest;
  /** The first: of a later one the end is stamped anew, and it counts one more. */
  readonly #delivery: Delivery;
  /** By the clock of the host. */
  readonly #endsAtMs: number;

  /** `delayMs`: of its time, what it lost on its way. */
  constructor(clock: Clock, request: CallRequest, delivery: Delivery, delayMs: number) {
    this.#clock = clock;
    this.#request = request;
    this.#delivery = delivery;
    this.#endsAtMs = clock.nowMs() + request.deadlineMs - delayMs;
  }

  get #leftMs(): number {
    const { deadlineAt } = this.#delivery;
    const leftMs = this.#endsAtMs - this.#clock.nowMs();
    return deadlineAt === undefined ? leftMs : Math.min(leftMs, deadlineAt.getTime() - this.#clock.date().getTime());
  }

  get isEnough(): boolean {
    return this.#leftMs >= leftMsMin;
  }

  /** What its server has. */
  get runMs(): number {
    const leftMs = this.#leftMs;
    return leftMs - Math.min(wayMsMax, leftMs * wayPart);
  }

  rememberUntil(): Date {
    const keepMs = Math.max(this.#leftMs + keyKeptMsMin, this.#request.isCallersKey ? callersKeyMs : 0);
    return new Date(this.#clock.date().getTime() + keepMs);
  }

  /** By when it is over and how long it had, since it may have waited here; undefined when nobody can have run it before. */
  firstSentAt(): Date | undefined {
    const { deadlineAt, deliveries } = this.#delivery;
    const { deadlineMs, sentMsAgo } = this.#request;
    if (sentMsAgo === undefined && deliveries <= 1) return undefined;
    const sentAtMs = (deadlineAt ?? this.#clock.date()).getTime() - (deadlineAt ? deadlineMs : 0);
    return new Date(sentAtMs - (sentMsAgo ?? 0));
  }

  isSentBefore(beganAt: Date): boolean {
    const sentAt = this.firstSentAt();
    return sentAt !== undefined && sentAt.getTime() < beganAt.getTime() + beganDoubtMs;
  }
}
