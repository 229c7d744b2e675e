/**
 * How long a worker waits before it tries again, as a pure function: soon after a good connection, then 200 ms doubling to 2 s,
 * for ever. Drawn by chance, so that workers which lost the same broker do not all come back at once.
 */
import { backoffMs } from '../../kernel/backoff.js';
import type { Random } from '../../kernel/random.js';

const soonMs = 100;
const firstMs = 200;
const maxMs = 2_000;

/** A connection that lasted so long was a good one. */
export const goodMs = 10_000;

/** `failures`: tries in a row that came to nothing good. */
export function reconnectDelayMs(failures: number, random: Random): number {
  if (failures <= 0) return random() * soonMs;
  const delayMs = backoffMs(firstMs, failures - 1, maxMs);
  return delayMs / 2 + (random() * delayMs) / 2;
}
