/**
 * Asks the server's breaker before a call goes any further, and tells it how the call went.
 * Not here: whether the server runs (the supervisor says so when its connection is acquired).
 */
import type { Clock } from '../kernel/clock.js';
import { type ErrorCode, HostError, isHostError } from '../kernel/errors.js';
import type { Admission, Breaker, Ticket } from './breaker.js';
import type { Call, Stage } from './call.js';

/** What speaks against the server. Never: what a tool says, bad arguments, authorization, cancellation, or our own refusals. */
const strikes: ReadonlySet<ErrorCode> = new Set([
  'transport',
  'connect_failed',
  'timeout',
  'outcome_uncertain',
  'protocol_error',
]);

export function speaksAgainstServer(error: unknown): boolean {
  if (!isHostError(error) || !strikes.has(error.code)) return false;
  const { reason, httpStatus, phase } = error.details;
  // A refusal in words of HTTP or JSON-RPC is an answer; a caller whose time ran out before anything was sent says nothing.
  const isAnswer = reason === 'rpc_error' || (httpStatus !== undefined && httpStatus < 500);
  return !isAnswer && !(error.code === 'timeout' && phase === 'queued');
}

/** What calls in flight end with when the connection they were sent on is lost. */
const losses: ReadonlySet<ErrorCode> = new Set(['transport', 'outcome_uncertain']);
export const isLoss = (error: unknown): boolean => isHostError(error) && losses.has(error.code);

/**
 * `isOver`: the connection that such a call goes to is lost. However many calls that ends, it is one failure, and its supervisor's: were each of
 * them counted, everybody else would be refused while the server is restarted.
 */
export const gate = (
  breakerOf: (server: string) => Breaker,
  clock: Clock,
  isOver: (call: Call) => boolean = () => false,
): Stage => ({
  enter: (next, back) => (call) => {
    const breaker = breakerOf(call.server);
    // A closed breaker does not look at the time, and this is the path of nearly every call.
    const admission = breaker.admit(breaker.isClosed ? 0 : clock.nowMs(), call.deadlineAtMs);
    if (!admission.admitted) return back(call, circuitOpen(call.server, admission, call.tool));
    const { ticket } = admission;
    call.notes.breaker = breaker;
    call.notes.ticket = ticket;
    // A probe has a deadline of its own, or one hanging call would keep everyone else out for as long as it likes.
    if (ticket.probeUntilMs !== undefined) call.deadlineAtMs = Math.min(call.deadlineAtMs, ticket.probeUntilMs);
    next(call);
  },
  leave: (back) => (call, outcome) => {
    const { breaker, ticket } = call.notes;
    if (breaker && ticket) {
      // What its caller allowed it, again.
      if (ticket.callUntilMs !== undefined) call.deadlineAtMs = ticket.callUntilMs;
      if (outcome instanceof Error && isLoss(outcome) && isOver(call)) breaker.released(ticket, clock.nowMs());
      else report(breaker, ticket, outcome, call.deadlineAtMs, clock);
    }
    back(call, outcome);
  },
});

/**
 * What the outcome of an admitted request says about its server. One whose caller ran out of time says nothing: whoever
 * allows it a few milliseconds could otherwise shut the server to everybody.
 */
export function report(breaker: Breaker, ticket: Ticket, outcome: unknown, deadlineAtMs: number, clock: Clock): void {
  const isFailure = outcome instanceof Error;
  if (!isFailure && breaker.isClosed && breaker.failures === 0) return;
  const nowMs = clock.nowMs();
  if (!isFailure) breaker.succeeded(ticket, nowMs);
  else if (speaksAgainstServer(outcome) && nowMs < deadlineAtMs) breaker.failed(ticket, nowMs);
  else breaker.released(ticket, nowMs);
}

/** For a call, or for a list (without a tool). */
export function circuitOpen(
  server: string,
  refused: Extract<Admission, { admitted: false }>,
  tool?: string,
): HostError {
  const { failures, retryAfterMs, probeInProgress } = refused;
  const why = probeInProgress ? 'one call is trying it now' : `it failed ${failures} times in a row`;
  return new HostError('circuit_open', `server '${server}' is unreachable: ${why}`, {
    server,
    ...(tool === undefined ? {} : { tool }),
    retryAfterMs,
    phase: 'queued',
    execution: 'not_executed',
    hint: `do not ${tool === undefined ? 'ask' : 'call'} it again before ${Math.ceil(retryAfterMs / 1_000)} s have passed`,
  });
}
