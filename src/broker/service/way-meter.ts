/**
 * How much longer a request was on its way than others of its sender: whoever stands still, on the way or at its ends, is seen in
 * that, though the clocks of both ends have nothing to do with each other. The quickest of late is the measure: what it took is
 * not known, and is not counted.
 * Not here: what a call that was on its way for long still has (call-time.ts).
 *
 * Invariants: clocks are monotonic and count from anywhere, each with a name of its own; what a sender says of its clock shortens
 * the time of nobody but itself. A mailbox has one meter, of the clock that it last named, so that nobody pushes out another's by
 * naming many. Bound: `metersMax`.
 */
import { setBounded } from '../../kernel/bounded-map.js';
import type { Clock } from '../../kernel/clock.js';
import type { Sent } from '../messages.js';

const metersMax = 10_000;
/** A quickest one counts for one to two of these: clocks drift apart, by less than a millisecond in it. */
const windowMs = 10_000;
/** More is no delay: a machine was asleep and its clock with it, or the request waited where its time was counted. */
const delayMsMax = 5_000;

/** By how much the clock of the host was ahead when a request came: the least in this window, and in the one before. */
interface Meter {
  readonly clock: string;
  readonly sinceMs: number;
  readonly leastMs: number;
  readonly leastBeforeMs: number;
}

export class WayMeter {
  readonly #clock: Clock;
  readonly #meters = new Map<string, Meter>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Of a request that comes now. */
  delayMs(mailbox: string, { clock, atMs }: Sent): number {
    const nowMs = this.#clock.nowMs();
    const aheadMs = nowMs - atMs;
    const known = this.#meters.get(mailbox);
    const meter = metered(known?.clock === clock ? known : undefined, clock, aheadMs, nowMs);
    setBounded(this.#meters, mailbox, meter, metersMax);
    const delayMs = aheadMs - Math.min(meter.leastMs, meter.leastBeforeMs);
    return delayMs > delayMsMax ? 0 : delayMs;
  }
}

function metered(before: Meter | undefined, clock: string, aheadMs: number, nowMs: number): Meter {
  const ageMs = before ? nowMs - before.sinceMs : Number.POSITIVE_INFINITY;
  if (!before || ageMs >= 2 * windowMs) return { clock, sinceMs: nowMs, leastMs: aheadMs, leastBeforeMs: aheadMs };
  if (ageMs >= windowMs) return { clock, sinceMs: nowMs, leastMs: aheadMs, leastBeforeMs: before.leastMs };
  return aheadMs < before.leastMs ? { ...before, leastMs: aheadMs } : before;
}
