/**
 * Whether a call that failed may be sent again, and what its caller is told when it may not.
 * Pure decisions over what the error promises: `not_executed` means that not one byte reached the server. Text is never
 * looked at.
 * Not here: sending again (host/), how often in all (retry-budget.ts), what is known of a tool and whether it is believed (whoever builds ToolTraits; hints
 * that contradict each other count as absent there).
 *
 * Invariants: a call that may have run is never sent again, unless its tool is read-only or idempotent and trusted; a call that
 * timed out is never sent again, not even when nothing was written.
 */
import { ERRORS, type ErrorCode, type HostError } from '../kernel/errors.js';
import type { ReplayReason } from './call-events.js';
import type { ToolTraits } from './operation.js';

export interface ReplayQuestion {
  readonly error: HostError;
  readonly traits: ToolTraits;
  /** How often we have sent it again already: 0 when the first attempt failed. */
  readonly attempt: number;
  /** `attempt` of the call. Retries multiply: only one layer makes them. */
  readonly callerAttempt: number;
  readonly deadlineLeftMs: number;
}

/** Beyond the first attempt. */
export const replaysMax = 2;

/** Less is not enough for anything but one more failure. */
const deadlineLeftMsMin = 1;

/** Why it may be sent again; undefined when it may not. */
export const replayReason = (question: ReplayQuestion): ReplayReason | undefined =>
  mayReplay(question)
    ? question.error.details.execution === 'not_executed'
      ? 'not_executed'
      : 'may_run_twice'
    : undefined;

export function mayReplay({ error, traits, attempt, callerAttempt, deadlineLeftMs }: ReplayQuestion): boolean {
  if (callerAttempt > 0 || attempt >= replaysMax || deadlineLeftMs < deadlineLeftMsMin) return false;
  // A server that says when to come back is not asked before.
  if (error.details.retryAfterMs !== undefined) return false;
  // The time is spent, even if nothing was written: a second try adds load to a server that is already too slow.
  if (error.code === 'timeout') return false;
  if (error.details.execution === 'not_executed') return isLoss(error);
  return isLoss(error) && mayRunTwice(traits);
}

/** Hints of a server nobody vouches for count as absent. */
export const mayRunTwice = ({ isReadOnly, isIdempotent, isTrusted }: ToolTraits): boolean =>
  isTrusted && (isReadOnly || isIdempotent);

/**
 * The connection failed the call, rather than policy, the caller or the server's own word. A broken message can end a
 * connection too; then whatever else was on its way is lost with it.
 */
function isLoss({ code, details }: HostError): boolean {
  return ERRORS[code].retry === 'maybe' || (code === 'protocol_error' && details.phase === 'queued');
}

/** Codes that leave open whether the call has run. `cancelled` is not among them: nobody is left to be told. */
const openEnded: ReadonlySet<ErrorCode> = new Set(['transport', 'timeout', 'connect_failed', 'protocol_error']);

/**
 * The error for the caller once nothing more is tried. A call that may have changed something and was not seen to end is
 * `outcome_uncertain`, whatever broke; the original is its cause, and its details stay.
 */
export function toOutcome(error: HostError, traits: ToolTraits): HostError {
  if (!openEnded.has(error.code) || !isUncertain(error) || mayRunTwice(traits)) return error;
  return error.with({
    code: 'outcome_uncertain',
    message: `${error.message}; the call may have run`,
    reason: error.details.reason ?? error.code,
    execution: 'uncertain',
    hint: 'look at its effect before sending it again',
    cause: error,
  });
}

/** An error that promises nothing is uncertain, except that of a server which answered, if only with an error. */
function isUncertain({ code, details }: HostError): boolean {
  if (details.execution !== undefined) return details.execution === 'uncertain';
  return code === 'transport' || code === 'timeout';
}
