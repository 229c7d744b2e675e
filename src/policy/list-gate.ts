/**
 * Asks the server's breaker before a list is read, as the gate does for calls (gate.ts).
 * A list that works says nothing about calls that do not: it closes a breaker only when it was sent as a trial. One that fails
 * counts against the server as a call does.
 */
import type { Clock } from '../kernel/clock.js';
import { circuitOpen } from './circuit-open.js';
import { report } from './gate.js';
import type { GatedCircuit } from './gated-circuit.js';
import type { SlotLimits } from './list-slot.js';
import { checkTrial } from './trial-check.js';

/** A server that has not listed anything by then is to blame, whatever its caller allowed. */
const fairMs = 10_000;

export async function throughGate<T>(
  server: string,
  circuit: GatedCircuit,
  clock: Clock,
  limits: SlotLimits,
  run: () => Promise<T>,
): Promise<T> {
  const { breaker } = circuit;
  const startedMs = clock.nowMs();
  const admission = breaker.admit(startedMs);
  if (!admission.admitted) throw circuitOpen(server, admission);
  const { ticket } = admission;
  if (ticket.isTrial) {
    await new Promise<void>((resolve, reject) => {
      checkTrial(circuit, ticket, { server, ...limits }, clock, (refusal) => (refusal ? reject(refusal) : resolve()));
    });
  }
  const tell = (outcome: unknown) => {
    const isFair = clock.nowMs() >= startedMs + fairMs;
    report(circuit, ticket, outcome, isFair ? Number.POSITIVE_INFINITY : limits.deadlineAtMs, startedMs, clock);
  };
  try {
    const result = await run();
    if (ticket.isTrial) tell(result);
    return result;
  } catch (error) {
    tell(error);
    throw error;
  }
}
