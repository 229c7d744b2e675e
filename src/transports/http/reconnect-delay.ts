/**
 * How long to wait before an event stream is fetched again.
 * Invariant: never earlier than the server asked (`retry:`), except that nobody may ask for more than a minute.
 */
import type { Random } from '../../kernel/random.js';

const defaultMs = 1_000;
const floorMs = 100;
const askedMaxMs = 60_000;
const grownMaxMs = 30_000;

/** `failures` counts fruitless attempts in a row; after the first the wait grows and is spread by chance. */
export function reconnectDelayMs(retryMs: number | undefined, failures: number, random: Random): number {
  const askedMs = Math.min(Math.max(retryMs ?? defaultMs, floorMs), askedMaxMs);
  if (failures === 0) return askedMs;
  const grownMs = Math.min(askedMs * 2 ** Math.min(failures, 16), grownMaxMs);
  return grownMs <= askedMs ? askedMs : askedMs + random() * (grownMs - askedMs);
}
