/**
 * Asks the server's breaker before a list is read, as the gate does for calls (gate.ts).
 * A list that works says nothing about calls that do not: it closes a breaker only when it was sent as the probe. One that
 * fails speaks against the server as a call would; and as with calls, a connection that is lost (`isOver`) is its supervisor's.
 */
import type { Clock } from '../kernel/clock.js';
import type { Breaker } from './breaker.js';
import { circuitOpen, isLoss, report } from './gate.js';

/** A server that has not listed anything by then is to blame, whatever its caller allowed. */
const fairMs = 10_000;

export async function throughGate<T>(
  server: string,
  breaker: Breaker,
  clock: Clock,
  deadlineAtMs: number,
  run: (deadlineAtMs: number) => Promise<T>,
  isOver: () => boolean = () => false,
): Promise<T> {
  const startedMs = clock.nowMs();
  const admission = breaker.admit(startedMs, deadlineAtMs);
  if (!admission.admitted) throw circuitOpen(server, admission);
  const { ticket } = admission;
  const tell = (outcome: unknown) => {
    const isFair = clock.nowMs() >= startedMs + fairMs;
    report(breaker, ticket, outcome, isFair ? Number.POSITIVE_INFINITY : deadlineAtMs, clock);
  };
  try {
    const result = await run(Math.min(deadlineAtMs, ticket.probeUntilMs ?? deadlineAtMs));
    if (ticket.isProbe) tell(result);
    return result;
  } catch (error) {
    if (isLoss(error) && isOver()) breaker.released(ticket, clock.nowMs());
    else tell(error);
    throw error;
  }
}
