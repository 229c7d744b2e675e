/**
 * Durations, loopback addresses and mailbox names of the configuration.
 * Invariant: no schemas here, so a program that only connects to a broker does not load them.
 */
import { invalidSpec } from './schema-issues.js';

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

/** A mailbox name is also a path, a NATS subject and a database key. */
export const mailboxPattern = /^[a-z0-9][a-z0-9_.-]{0,127}$/;
/** Mailbox that receives the requests of workers. */
export const hostMailbox = 'host';
/** Means all mailboxes in the destinations of a key. Only a host has such a key. */
export const everyMailbox = '*';
