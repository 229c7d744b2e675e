/**
 * Durations as people write them: a number of milliseconds, or `250ms`, `30s`, `5m`, `2h`.
 */
import { HostError } from '../kernel/errors.js';

const unitsMs: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

/** Longer than anything here should wait, and far below where timers overflow. */
const durationMaxMs = 24 * 3_600_000;

export function parseDuration(input: unknown, field: string): number {
  const text = typeof input === 'number' ? String(input) : input;
  const match = typeof text === 'string' ? /^(\d{1,12}(?:\.\d{1,3})?)(ms|s|m|h)?$/.exec(text.trim()) : null;
  const durationMs = match ? Number(match[1]) * (unitsMs[match[2] ?? 'ms'] as number) : Number.NaN;
  if (!(durationMs > 0 && durationMs <= durationMaxMs)) {
    throw new HostError('invalid_spec', `${field}: '${String(input)}' is not a duration between 1ms and 24h`, {
      field,
      hint: 'write a number of milliseconds, or a text like 250ms, 30s, 5m, 2h',
    });
  }
  return durationMs;
}
