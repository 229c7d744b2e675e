/**
 * Gets a ticket from the breaker before an operation continues, and reports the outcome to it. The first trial of a half-open
 * breaker waits for a check of the session, so that no call is wasted on a silent server. Without an open session, opening one
 * is the check.
 * Not here: the breaker's state (breaker.ts), whether the server runs (supervisor/).
 *
 * Invariants: a ticket is returned exactly once. If the caller of a trial leaves during the check, the next trial takes its
 * slot and joins the check. The result still counts: otherwise callers that all leave early would hide a silent server.
 */
import type { Clock } from '../kernel/clock.js';
import { type ErrorCode, HostError, isHostError } from '../kernel/errors.js';
import type { Admission, GatedCircuit, Strike, Ticket } from './breaker.js';
import { namesOf, type Operation, type Outcome, type Stage } from './operation.js';

const strikes: Readonly<Partial<Record<ErrorCode, Strike>>> = {
  transport: 'loss',
  connect_failed: 'loss',
  outcome_uncertain: 'loss',
  timeout: 'timeout',
  protocol_error: 'protocol',
};

/** Silence after which a given-up call causes a check of the server. */
const silenceMs = 5_000;

/**
 * A list, read or request without an answer for this long is a strike, even if its caller's deadline ended it. It is shorter than
 * the default deadline of a list (10 s), which starts before the request is sent.
 */
const strikeAfterMs = 9_000;

/**
 * The strike that an error counts as. Tool errors, invalid arguments, authorization, cancellation and refusals by the host
 * never count.
 */
export function strikeOf(error: unknown): Strike | undefined {
  if (!isHostError(error)) return undefined;
  const { reason, httpStatus, phase } = error.details;
  // A 4xx status or a JSON-RPC error is an answer.
  if (reason === 'rpc_error' || (httpStatus !== undefined && httpStatus < 500)) return undefined;
  const { code } = error.code === 'outcome_uncertain' && isHostError(error.cause) ? error.cause : error;
  // A deadline that passed before the request was sent says nothing about the server.
  return code === 'timeout' && phase === 'queued' ? undefined : strikes[code];
}

/** `circuitOf` throws if the operation has no target. */
export const breakerStage = (circuitOf: (operation: Operation) => GatedCircuit, clock: Clock): Stage => ({
  enter: (next, back) => (operation) => {
    let circuit: GatedCircuit;
    try {
      circuit = circuitOf(operation);
    } catch (error) {
      return back(operation, error as Error);
    }
    const { breaker } = circuit;
    // A closed breaker ignores the time, so nearly every call saves the clock read.
    const admission = breaker.admit(breaker.isClosed ? 0 : clock.nowMs());
    if (!admission.admitted) return back(operation, circuitOpen(operation, admission));
    const { ticket } = admission;
    operation.stage.circuit = circuit;
    operation.stage.ticket = ticket;
    if (!ticket.isTrial) return next(operation);
    checkTrial(circuit, ticket, operation, clock, (refusal) => {
      if (refusal) return back(operation, refusal);
      try {
        next(operation);
      } catch (error) {
        breaker.released(ticket);
        back(operation, error as Error);
      }
    });
  },
  leave: (back) => (operation, outcome) => {
    const { circuit, ticket } = operation.stage;
    if (circuit && ticket) report(circuit, ticket, operation, outcome, clock);
    back(operation, outcome);
  },
});

function report(circuit: GatedCircuit, ticket: Ticket, operation: Operation, outcome: Outcome, clock: Clock): void {
  const { breaker } = circuit;
  const { sentAtMs } = operation.stage;
  if (!(outcome instanceof Error)) {
    // A working list says nothing about failing calls: it closes a breaker only as a trial.
    const counts = operation.kind === 'call' || ticket.isTrial;
    if (counts && (!breaker.isClosed || breaker.failures > 0)) breaker.succeeded(ticket, sentAtMs);
    return;
  }
  const strike = strikeOf(outcome);
  const isCancelled = wasCancelledAfterSend(outcome);
  const isGivenUp = isCancelled || strike === 'timeout';
  // The server had asked the caller a question, and the caller took too long or left. The server is not at fault.
  if (isGivenUp && operation.kind === 'request' && sentAtMs === Number.POSITIVE_INFINITY)
    return breaker.released(ticket);
  // The supervisor handles a lost connection and restarts the server; lost requests are not strikes.
  if (strike === undefined ? !isCancelled : strike !== 'timeout' && circuit.isLost) return breaker.released(ticket);
  const nowMs = clock.nowMs();
  const isStrike = nowMs < operation.deadlineAtMs || (operation.kind !== 'call' && nowMs >= sentAtMs + strikeAfterMs);
  if (strike !== undefined && isStrike) return breaker.failed(ticket, nowMs, strike);
  // A caller with a very short deadline must not open the breaker for all callers. A check decides instead.
  if (isGivenUp && circuit.silentMs(sentAtMs, nowMs) > silenceMs) circuit.suspect(ticket);
  else breaker.released(ticket);
}

/** True if the caller cancelled a request that was sent. The gateway reports the deadline of a client this way. */
const wasCancelledAfterSend = (error: Error): boolean =>
  isHostError(error) && error.code === 'cancelled' && error.details.execution !== 'not_executed';

/** Calls `done` without a refusal if the operation may be sent; in the current tick if there is nothing to check. */
function checkTrial(
  circuit: GatedCircuit,
  ticket: Ticket,
  operation: Operation,
  clock: Clock,
  done: (refusal: HostError | undefined) => void,
): void {
  const checking = ticket.isFirst ? circuit.check() : undefined;
  if (!checking) return done(undefined);
  const { breaker } = circuit;
  const { signal, deadlineAtMs } = operation;
  let isWaiting = true;
  const end = (refusal: HostError | undefined) => {
    isWaiting = false;
    cancelTimer();
    signal?.removeEventListener('abort', onAbort);
    done(refusal);
  };
  const leave = (code: 'timeout' | 'cancelled', why: string) => {
    breaker.released(ticket);
    end(uncheckedError(operation, code, why));
  };
  const onAbort = () => leave('cancelled', 'the caller cancelled');
  const cancelTimer = clock.at(deadlineAtMs, () => leave('timeout', 'the deadline passed'));
  signal?.addEventListener('abort', onAbort, { once: true });
  void checking.then((result) => {
    const isPassed = result === 'alive' || result === 'unasked';
    if (!isPassed) breaker.checkFailed(ticket, clock.nowMs(), result);
    if (isWaiting) end(isPassed ? undefined : refusal());
  });
  // An aborted signal emits no event. The check continues without this caller.
  if (signal?.aborted) return onAbort();
  const refusal = (): HostError => {
    const nowMs = clock.nowMs();
    const retryAfterMs = Math.max(0, Math.ceil((breaker.opensAgainAtMs(nowMs) ?? nowMs) - nowMs));
    return circuitOpen(operation, { admitted: false, retryAfterMs, failures: breaker.failures, isTried: false });
  };
}

function circuitOpen(operation: Operation, refused: Extract<Admission, { admitted: false }>): HostError {
  const { failures, retryAfterMs, isTried } = refused;
  const why = isTried ? 'one call is trying it now' : `it failed ${failures} times in a row`;
  return new HostError('circuit_open', `server '${operation.server}' is unreachable: ${why}`, {
    ...namesOf(operation),
    retryAfterMs,
    phase: 'queued',
    execution: 'not_executed',
    hint: `do not call it again before ${Math.ceil(retryAfterMs / 1_000)} s have passed`,
  });
}

const uncheckedError = (operation: Operation, code: 'timeout' | 'cancelled', why: string): HostError =>
  new HostError(code, `${why} while server '${operation.server}' was being checked after failures`, {
    ...namesOf(operation),
    reason: 'trial_check',
    phase: 'queued',
    execution: 'not_executed',
    hint: 'the request did not run and can be sent again',
  });
