/**
 * What a caller is told while the breaker of a server refuses it.
 */
import { HostError } from '../kernel/errors.js';
import type { Admission } from './breaker.js';

/** For a call, or for a request without a tool. */
export function circuitOpen(
  server: string,
  refused: Extract<Admission, { admitted: false }>,
  tool?: string,
): HostError {
  const { failures, retryAfterMs, isTried } = refused;
  const why = isTried ? 'one call is trying it now' : `it failed ${failures} times in a row`;
  return new HostError('circuit_open', `server '${server}' is unreachable: ${why}`, {
    server,
    ...(tool === undefined ? {} : { tool }),
    retryAfterMs,
    phase: 'queued',
    execution: 'not_executed',
    hint: `do not ${tool === undefined ? 'ask' : 'call'} it again before ${Math.ceil(retryAfterMs / 1_000)} s have passed`,
  });
}
