/** More doublings exceed every limit; the bound keeps the result finite. */
const doublingsMax = 30;

export const backoffMs = (baseMs: number, times: number, maxMs: number): number =>
  Math.min(baseMs * 2 ** Math.min(Math.max(times, 0), doublingsMax), maxMs);

/** Limit of a `Retry-After` that delays the next connection: a server that has recovered must be served soon. */
export const openingPauseMsMax = 15_000;
