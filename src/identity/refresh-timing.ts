/** When a token is refreshed, and when a failed refresh is tried again. Pure. */
import { backoffMs } from '../kernel/backoff.js';
import type { Random } from '../kernel/random.js';

const shortLifetimeMs = 120_000;
const marginMsMin = 60_000;
const marginMsMax = 5 * 60_000;
const retryMsMin = 2_000;
const retryMsMax = 5 * 60_000;
/** The longest delay, with its random part. A `Retry-After` is never longer: `parseRetryAfter` cuts it to five minutes. */
const retryWaitMsMax = 1.2 * retryMsMax;

/** Time of the refresh; undefined: the lifetime is not known, so only a 401 causes one. */
export function refreshAtMs(issuedMs: number, expiresMs: number | undefined, random: Random): number | undefined {
  if (expiresMs === undefined) return undefined;
  const lifetimeMs = Math.max(0, expiresMs - issuedMs);
  // The last quarter of a short life, so that a token of a minute is not refreshed all the time.
  if (lifetimeMs <= shortLifetimeMs) return expiresMs - (lifetimeMs / 4) * (0.6 + 0.4 * random());
  const marginMs = Math.max(marginMsMin, Math.min(lifetimeMs / 10, marginMsMax));
  return expiresMs - marginMs * (0.8 + 0.4 * random());
}

/**
 * Time left until `retryMs`, which is wall time because processes share it. No wait is longer than `retryWaitMsMax`, unless the clock
 * was set back since: then the wait is over.
 */
export function retryWaitMs(retryMs: number, nowMs: number): number {
  const waitMs = retryMs - nowMs;
  return waitMs > retryWaitMsMax ? 0 : Math.max(0, waitMs);
}

/** `failures`: number of failures in a row, the new one included. */
export function retryDelayMs(failures: number, retryAfterMs: number | undefined, random: Random): number {
  const delayMs = backoffMs(retryMsMin, failures - 1, retryMsMax);
  return Math.max(retryAfterMs ?? 0, delayMs * (0.8 + 0.4 * random()));
}
