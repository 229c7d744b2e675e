/**
 * How long to wait before an event stream is fetched again.
 * Invariant: never earlier than the server asked (`retry:`), except that nobody may ask for more than a minute.
 */
import { backoffMs } from '../../kernel/backoff.js';
import type { Random } from '../../kernel/random.js';

const retryMsDefault = 1_000;
const retryMsMin = 100;
const retryMsMax = 60_000;

/** `fruitless` counts attempts in a row that brought nothing; with each the wait grows, and is spread by chance. */
export function reconnectDelayMs(
  retryMs: number | undefined,
  fruitless: number,
  grownMsMax: number,
  random: Random,
): number {
  const askedMs = Math.min(Math.max(retryMs ?? retryMsDefault, retryMsMin), retryMsMax);
  if (fruitless === 0) return askedMs;
  const grownMs = backoffMs(askedMs, fruitless, grownMsMax);
  return grownMs <= askedMs ? askedMs : askedMs + random() * (grownMs - askedMs);
}
