/** Maximum of doublings. More of them exceed every `maxMs` in use, and would overflow. */
const doublingsMax = 30;

export const backoffMs = (baseMs: number, times: number, maxMs: number): number =>
  Math.min(baseMs * 2 ** Math.min(Math.max(times, 0), doublingsMax), maxMs);

/** Longest `Retry-After` that may delay the next connection, so that a server that recovers early is used again soon. */
export const openingPauseMsMax = 15_000;
