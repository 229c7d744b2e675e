/**
 * Asks the server's breaker before a call goes any further, and tells it how the call went.
 * Not here: whether the server runs (the supervisor says so when its connection is acquired), requests that are no calls
 * (list-gate.ts), what is checked before a trial (trial-check.ts).
 */
import type { Clock } from '../kernel/clock.js';
import { type ErrorCode, isHostError } from '../kernel/errors.js';
import type { Strike, Ticket } from './breaker.js';
import { circuitOpen } from './circuit-open.js';
import type { GatedCircuit } from './gated-circuit.js';
import type { Call, Stage } from './operation.js';
import { checkTrial } from './trial-check.js';

const strikes: Readonly<Partial<Record<ErrorCode, Strike>>> = {
  transport: 'loss',
  connect_failed: 'loss',
  outcome_uncertain: 'loss',
  timeout: 'timeout',
  protocol_error: 'protocol',
};

/** Silence after which a call that its caller gave up is worth a check of the server. */
const silenceMs = 5_000;

/**
 * What an error holds against the server. Never: what a tool says, bad arguments, authorization, cancellation, or our own
 * refusals.
 */
export function strikeOf(error: unknown): Strike | undefined {
  if (!isHostError(error)) return undefined;
  const { reason, httpStatus, phase } = error.details;
  // A refusal by HTTP status or JSON-RPC error is an answer.
  if (reason === 'rpc_error' || (httpStatus !== undefined && httpStatus < 500)) return undefined;
  const { code } = error.code === 'outcome_uncertain' && isHostError(error.cause) ? error.cause : error;
  // A deadline that passed before anything was sent says nothing.
  return code === 'timeout' && phase === 'queued' ? undefined : strikes[code];
}

/** `circuitOf` throws where the call can go nowhere. */
export const gate = (circuitOf: (call: Call) => GatedCircuit, clock: Clock): Stage => ({
  enter: (next, back) => (call) => {
    let circuit: GatedCircuit;
    try {
      circuit = circuitOf(call);
    } catch (error) {
      return back(call, error as Error);
    }
    const { breaker } = circuit;
    // A closed breaker does not look at the time, and this is the path of nearly every call.
    const admission = breaker.admit(breaker.isClosed ? 0 : clock.nowMs());
    if (!admission.admitted) return back(call, circuitOpen(call.server, admission, call.tool));
    const { ticket } = admission;
    call.notes.circuit = circuit;
    call.notes.ticket = ticket;
    if (!ticket.isTrial) return next(call);
    checkTrial(circuit, ticket, call, clock, (refusal) => {
      if (refusal) return back(call, refusal);
      try {
        next(call);
      } catch (error) {
        breaker.released(ticket);
        back(call, error as Error);
      }
    });
  },
  leave: (back) => (call, outcome) => {
    const { circuit, ticket, sentAtMs } = call.notes;
    if (circuit && ticket) report(circuit, ticket, outcome, call.deadlineAtMs, sentAtMs, clock);
    back(call, outcome);
  },
});

/** Tells the breaker what the outcome of an admitted request says about its server. */
export function report(
  circuit: GatedCircuit,
  ticket: Ticket,
  outcome: unknown,
  deadlineAtMs: number,
  sentAtMs: number,
  clock: Clock,
): void {
  const { breaker } = circuit;
  if (!(outcome instanceof Error)) {
    if (!breaker.isClosed || breaker.failures > 0) breaker.succeeded(ticket, sentAtMs);
    return;
  }
  const strike = strikeOf(outcome);
  const isLeft = wasLeft(outcome);
  // A connection that ended, whatever number of requests it ended, is a matter of the supervisor: it starts the server again.
  if (strike === undefined ? !isLeft : strike !== 'timeout' && circuit.isLost) return breaker.released(ticket);
  const nowMs = clock.nowMs();
  if (strike !== undefined && nowMs < deadlineAtMs) return breaker.failed(ticket, nowMs, strike);
  // A caller that gives up says nothing: one that allows a few milliseconds could otherwise shut the server to all. The silence of
  // the server is worth a check, and that decides.
  const isGivenUp = isLeft || strike === 'timeout';
  if (isGivenUp && circuit.unheardMs(sentAtMs, nowMs) > silenceMs) circuit.suspect(ticket);
  else breaker.released(ticket);
}

/** The caller cancelled what was sent: this is how the deadline of a client reaches the gateway. */
const wasLeft = (error: Error): boolean =>
  isHostError(error) && error.code === 'cancelled' && error.details.execution !== 'not_executed';
