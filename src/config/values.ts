/**
 * Durations, loopback addresses and worker names of the configuration.
 * Invariant: no schemas here, so a program that only connects to a broker does not load them.
 */
import { invalidSpec } from './invalid-spec.js';

const unitsMs: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

/** Timers overflow at 2^31 ms, about 24 days. */
const durationMaxMs = 24 * 3_600_000;

/** Accepts a number of milliseconds, or a text like `250ms`, `30s`, `5m`, `2h`. */
export function parseDuration(input: unknown, field: string): number {
  const text = typeof input === 'number' ? String(input) : input;
  const match = typeof text === 'string' ? /^(\d{1,12}(?:\.\d{1,3})?)(ms|s|m|h)?$/.exec(text.trim()) : null;
  const durationMs = match ? Number(match[1]) * (unitsMs[match[2] ?? 'ms'] as number) : Number.NaN;
  if (durationMs > 0 && durationMs <= durationMaxMs) return durationMs;
  const what = `'${String(input)}' is not a duration between 1ms and 24h`;
  throw invalidSpec(field, what, 'write a number of milliseconds, or a text like 250ms, 30s, 5m, 2h');
}

/** Names other than `localhost` are refused, because they may resolve to any address. */
export const isLoopback = (host: string): boolean =>
  /^(?:127(?:\.\d{1,3}){3}|::1|\[::1\]|localhost)$/i.test(host) || /^(?:::ffff:127(?:\.\d{1,3}){3})$/i.test(host);

/** https, or http on this machine. */
export const isSecure = ({ protocol, hostname }: URL): boolean =>
  protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname));

/** A worker's name is part of NATS subjects, where a dot separates two tokens. */
export const workerPattern = /^[a-z0-9][a-z0-9_-]{0,63}$/;
/** Without dashes, so that `worker-epoch` can be split in only one way. */
export const epochPattern = /^[A-Za-z0-9_]{1,32}$/;
