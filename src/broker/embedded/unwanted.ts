/**
 * What of a mailbox nobody can want any more: sent for or by somebody whose key is gone, or so long ago that nobody waits.
 * Not here: when that is looked at, and what is done about it (postbox-sweeping.ts).
 */
import type { Sender } from '../ports.js';
import type { Dropped } from './events.js';

/** Of a message, as far as it matters here. */
export interface Sent {
  readonly from: Sender;
  readonly sentAtMs: number;
  readonly expiresAtMs: number | undefined;
}

export interface Present {
  wallMs(): number;
  /** What was sent up to then was for somebody else, until all of it is gone; undefined: the mailbox is whose it was. */
  readonly revokedAtMs: number | undefined;
  /** Past its end (a request) or its sending (a reply). */
  readonly staleMs: number;
  /** Where room is wanted: a request goes so long past its end, as a host would only say that it is over. */
  readonly expiredMs?: number;
  /** Whether whoever sent it could send it now. */
  isCurrent(from: Sender): boolean;
}

export function unwantedFor(
  { from, sentAtMs, expiresAtMs }: Sent,
  kind: 'request' | 'reply',
  { wallMs, revokedAtMs, staleMs, expiredMs, isCurrent }: Present,
): Dropped | undefined {
  if (revokedAtMs !== undefined && sentAtMs <= revokedAtMs) return 'revoked';
  if (kind === 'request' && !isCurrent(from)) return 'revoked';
  const endMs = expiresAtMs ?? (kind === 'reply' ? sentAtMs : undefined);
  if (endMs === undefined) return undefined;
  const patienceMs = kind === 'request' && expiredMs !== undefined ? Math.min(expiredMs, staleMs) : staleMs;
  return wallMs() - endMs > patienceMs ? 'stale' : undefined;
}
