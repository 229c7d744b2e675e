/**
 * Asks the server's breaker before a list is read, as the gate does for calls (gate.ts).
 * A list that works says nothing about calls that do not: it closes a breaker only when it was sent as the probe. One that
 * fails speaks against the server as a call would.
 */
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import type { Breaker } from './breaker.js';
import { speaksAgainstServer } from './gate.js';

export async function throughGate<T>(
  server: string,
  breaker: Breaker,
  clock: Clock,
  deadlineAtMs: number,
  run: (deadlineAtMs: number) => Promise<T>,
): Promise<T> {
  const admission = breaker.admit(clock.nowMs(), deadlineAtMs);
  if (!admission.admitted) throw refused(server, admission);
  const { ticket } = admission;
  try {
    const result = await run(Math.min(deadlineAtMs, ticket.probeUntilMs ?? deadlineAtMs));
    if (ticket.isProbe) breaker.succeeded(ticket, clock.nowMs());
    return result;
  } catch (error) {
    if (speaksAgainstServer(error)) breaker.failed(ticket, clock.nowMs());
    else breaker.released(ticket, clock.nowMs());
    throw error;
  }
}

function refused(
  server: string,
  { failures, retryAfterMs, probeInProgress }: { failures: number; retryAfterMs: number; probeInProgress: boolean },
): HostError {
  const why = probeInProgress ? 'one call is trying it now' : `it failed ${failures} times in a row`;
  return new HostError('circuit_open', `server '${server}' is unreachable: ${why}`, {
    server,
    retryAfterMs,
    phase: 'queued',
    execution: 'not_executed',
    hint: `do not ask it again before ${Math.ceil(retryAfterMs / 1_000)} s have passed`,
  });
}
