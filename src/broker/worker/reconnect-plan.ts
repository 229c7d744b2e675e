/**
 * How long a worker waits before it connects again: at once after a good connection, then 200 ms doubling to 2 s; after a refused key 30 s
 * doubling to 5 min. With jitter, so that workers which lost the same broker do not all return at once.
 */
import { backoffMs } from '../../kernel/backoff.js';
import type { Random } from '../../kernel/random.js';

const soonMs = 100;
const firstMs = 200;
const maxMs = 2_000;
const refusedFirstMs = 30_000;
const refusedMaxMs = 5 * 60_000;

/** A connection that lasted this long counts as good. */
export const goodMs = 10_000;

/** `failures`: attempts in a row without a good connection. */
export const reconnectDelayMs = (failures: number, random: Random): number =>
  failures <= 0 ? random() * soonMs : withJitter(backoffMs(firstMs, failures - 1, maxMs), random);

/** `refusals`: attempts in a row that were refused, at least 1. The key may become valid, and the worker is not restarted then. */
export const refusedDelayMs = (refusals: number, random: Random): number =>
  withJitter(backoffMs(refusedFirstMs, refusals - 1, refusedMaxMs), random);

const withJitter = (delayMs: number, random: Random): number => delayMs * (1 - random() / 4);
