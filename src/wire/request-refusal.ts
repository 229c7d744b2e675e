/**
 * Whether a request may be sent at all: one that nobody waits for, or that would be one too many, is not.
 * Not here: a connection that is closed, and a frame that is too large (peer.ts).
 */
import type { Clock } from '../kernel/clock.js';
import type { HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import type { RequestOptions } from './peer-interface.js';
import { refused, tooManyPending } from './wire-errors.js';

/** `pending`: requests that wait for an answer already. */
export function refusalOf(
  server: string,
  method: string,
  { deadlineAtMs, signal, nowMs }: RequestOptions,
  pending: number,
  clock: Clock,
): HostError | undefined {
  if (signal?.aborted) return refused(server, 'cancelled', `${method} was cancelled before it was sent`);
  // Written this way round, a deadline that is no number has passed too.
  if (!(deadlineAtMs > (nowMs ?? clock.nowMs())))
    return refused(server, 'timeout', `${method} was past its deadline before it was sent`);
  return pending >= LIMITS.pendingRequests ? tooManyPending(server) : undefined;
}
