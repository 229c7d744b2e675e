/**
 * Requests that we gave up although the server may still be working on them. While there is one, nothing that the server says
 * on its own can be laid at the door of another request: it may be the forgotten one that speaks.
 * A server that was told stops soon, and never answers what was cancelled: such a ghost is one for a short time only. Where
 * nobody could tell it, the doubt lasts.
 *
 * Invariants: a ghost goes when its late answer comes or its time is over; the time of one that was told does not begin before
 * the message has left; when there are more than can be told apart, the doubt stays for as long as the newest of them would.
 */
import type { Clock } from '../kernel/clock.js';
import type { OutboundFrame } from './channel.js';

/** What a conforming server needs to stop, once it has been told. */
export const toldGhostMs = 5_000;
/** A server that is still at it after this long is not asked about it any more. */
export const untoldGhostMs = 5 * 60_000;
const ghostsMax = 1_000;

/** How the server learns that a request was given up: by this message, by the end of its stream, or not at all. */
export type Told = OutboundFrame | 'ended' | undefined;

interface Ghost {
  untilMs: number;
  readonly told: Told;
  readonly client: string | undefined;
}

export class Ghosts {
  readonly #clock: Clock;
  readonly #byId = new Map<number, Ghost>();
  /** Until when there are some that found no place. */
  #crowdedUntilMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** `client`: for whom the request was made. */
  add(id: number, told: Told, client: string | undefined): void {
    const untilMs = this.#clock.nowMs() + (told === undefined ? untoldGhostMs : toldGhostMs);
    if (this.#byId.size >= ghostsMax && this.count >= ghostsMax)
      this.#crowdedUntilMs = Math.max(this.#crowdedUntilMs, untilMs);
    else this.#byId.set(id, { untilMs, told, client });
  }

  /** The server is done with it. Returns the ghost, if it was one. */
  answered(id: number): { readonly client: string | undefined } | undefined {
    const ghost = this.#byId.get(id);
    this.#byId.delete(id);
    return ghost;
  }

  get count(): number {
    if (this.#byId.size === 0 && this.#crowdedUntilMs === Number.NEGATIVE_INFINITY) return 0;
    const nowMs = this.#clock.nowMs();
    for (const [id, ghost] of this.#byId) {
      // What waits to be written has told nobody yet.
      if (typeof ghost.told === 'object' && ghost.told.phase === 'queued') ghost.untilMs = nowMs + toldGhostMs;
      else if (ghost.untilMs <= nowMs) this.#byId.delete(id);
    }
    return this.#byId.size + (this.#crowdedUntilMs > nowMs ? 1 : 0);
  }
}
