/** A wait that doubles each time, to a limit. So many doublings exceed every limit, and stay a number. */
const doublingsMax = 30;

export const backoffMs = (baseMs: number, times: number, maxMs: number): number =>
  Math.min(baseMs * 2 ** Math.min(Math.max(times, 0), doublingsMax), maxMs);
