/** More doublings exceed every limit; the bound keeps the result finite. */
const doublingsMax = 30;

export const backoffMs = (baseMs: number, times: number, maxMs: number): number =>
  Math.min(baseMs * 2 ** Math.min(Math.max(times, 0), doublingsMax), maxMs);

/** Longest wait that a server may ask for with `Retry-After` before it is opened again: it is served soon after it is healthy. */
export const openingPauseMsMax = 15_000;
