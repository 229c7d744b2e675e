/** More doublings than this exceed every limit, and the result stays finite. */
const doublingsMax = 30;

/** A wait that doubles each time, up to `maxMs`. */
export const backoffMs = (baseMs: number, times: number, maxMs: number): number =>
  Math.min(baseMs * 2 ** Math.min(Math.max(times, 0), doublingsMax), maxMs);
