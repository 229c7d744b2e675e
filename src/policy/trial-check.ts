/**
 * The check before the first trial of a half-open breaker: the session is asked for a sign of life, so that no call is spent on
 * a server that does not even answer that.
 * Where no session is open, opening it is the check, and the call does that by itself.
 *
 * Invariants: the caller is told once, at the latest by its own deadline; the ticket is handed back here unless the call is sent.
 * When the caller leaves, the next trial takes its place and joins the check. The check goes on and its result counts: otherwise
 * a server whose callers all leave early would never be found silent.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Clock } from '../kernel/clock.js';
import { HostError } from '../kernel/errors.js';
import type { Ticket } from './breaker.js';
import { circuitOpen } from './circuit-open.js';
import type { GatedCircuit } from './gated-circuit.js';

export interface TrialRequest {
  readonly server: string;
  /** Undefined for a request that is no call. */
  readonly tool?: string | undefined;
  readonly deadlineAtMs: number;
  readonly signal: CancelSignal | undefined;
}

/** Calls `done` without a refusal when the request may be sent; in this tick if there is nothing to check. */
export function checkTrial(
  circuit: GatedCircuit,
  ticket: Ticket,
  request: TrialRequest,
  clock: Clock,
  done: (refusal: HostError | undefined) => void,
): void {
  const checking = ticket.isFirst ? circuit.check() : undefined;
  if (!checking) return done(undefined);
  const { breaker } = circuit;
  const { signal, deadlineAtMs, server, tool } = request;
  let isWaiting = true;
  const end = (refusal: HostError | undefined) => {
    isWaiting = false;
    cancelTimer();
    signal?.removeEventListener('abort', onAbort);
    done(refusal);
  };
  const leave = (code: 'timeout' | 'cancelled', why: string) => {
    breaker.released(ticket);
    end(unsent(request, code, why));
  };
  const onAbort = () => leave('cancelled', 'the caller cancelled it');
  const cancelTimer = clock.at(deadlineAtMs, () => leave('timeout', 'its deadline passed'));
  signal?.addEventListener('abort', onAbort, { once: true });
  void checking.then((result) => {
    const isPassed = result === 'alive' || result === 'unasked';
    if (!isPassed) breaker.checkFailed(ticket, clock.nowMs(), result);
    if (isWaiting) end(isPassed ? undefined : refusal());
  });
  const refusal = (): HostError => {
    const nowMs = clock.nowMs();
    const retryAfterMs = Math.max(0, Math.ceil((breaker.opensAgainAtMs(nowMs) ?? nowMs) - nowMs));
    return circuitOpen(server, { admitted: false, retryAfterMs, failures: breaker.failures, isTried: false }, tool);
  };
}

const unsent = ({ server, tool }: TrialRequest, code: 'timeout' | 'cancelled', why: string): HostError =>
  new HostError(code, `server '${server}' was checked before it is tried again: ${why}`, {
    server,
    ...(tool === undefined ? {} : { tool }),
    reason: 'trial_check',
    phase: 'queued',
    execution: 'not_executed',
    hint: 'it did not run and can be sent again',
  });
