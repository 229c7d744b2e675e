/**
 * Requests that the peer gave up while the server may still work on them. Any of them may have caused an unattributed message,
 * so the message cannot be attributed to another request.
 * Invariants: an entry ends with its late answer or its time. The time of a cancelled request starts after the cancel
 * notification was written. Beyond `abandonedMax` entries, the doubt lasts as long as the newest entry would.
 */
import type { Clock } from '../kernel/clock.js';
import type { OutboundFrame } from './channel.js';

/** Time that a conforming server needs to stop after the notification. It never answers a cancelled request. */
export const notifiedMs = 5_000;
/** Without a notification the server may continue its work. */
export const unnotifiedMs = 5 * 60_000;
const abandonedMax = 1_000;

/** How the server learns that a request was given up: by this frame, by the end of its stream, or (undefined) not at all. */
export type CancelNotice = OutboundFrame | 'stream_ended' | undefined;

interface Abandoned {
  untilMs: number;
  readonly notice: CancelNotice;
  readonly client: string | undefined;
}

export class AbandonedRequests {
  readonly #clock: Clock;
  readonly #byId = new Map<number, Abandoned>();
  /** End of the doubt caused by requests beyond `abandonedMax`. */
  #overflowUntilMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(id: number, notice: CancelNotice, client: string | undefined): void {
    const untilMs = this.#clock.nowMs() + (notice === undefined ? unnotifiedMs : notifiedMs);
    if (this.#byId.size >= abandonedMax && this.count >= abandonedMax)
      this.#overflowUntilMs = Math.max(this.#overflowUntilMs, untilMs);
    else this.#byId.set(id, { untilMs, notice, client });
  }

  answered(id: number): { readonly client: string | undefined } | undefined {
    const abandoned = this.#byId.get(id);
    this.#byId.delete(id);
    return abandoned;
  }

  get count(): number {
    if (this.#byId.size === 0 && this.#overflowUntilMs === Number.NEGATIVE_INFINITY) return 0;
    const nowMs = this.#clock.nowMs();
    for (const [id, abandoned] of this.#byId) {
      const { notice } = abandoned;
      // The server has not seen a notification that is still queued.
      if (typeof notice === 'object' && notice.phase === 'queued') abandoned.untilMs = nowMs + notifiedMs;
      else if (abandoned.untilMs <= nowMs) this.#byId.delete(id);
    }
    return this.#byId.size + (this.#overflowUntilMs > nowMs ? 1 : 0);
  }
}
