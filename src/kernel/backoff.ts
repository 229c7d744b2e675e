/** More doublings exceed every limit; the bound keeps the result finite. */
const doublingsMax = 30;

export const backoffMs = (baseMs: number, times: number, maxMs: number): number =>
  Math.min(baseMs * 2 ** Math.min(Math.max(times, 0), doublingsMax), maxMs);
