/**
 * Whether a failed operation may be sent again, how many retries a server gets, and the caller's error when it may not.
 * Decides from the facts of the error alone: `not_executed` means that not one byte reached the server. Text is never parsed.
 * Not here: sending again (host/dispatch.ts), the annotations of a tool (ManagedServer.traitsOf).
 *
 * Invariants: a call that may have run is never sent again, unless its tool is read-only or idempotent and trusted; a call that
 * timed out is never sent again, not even when nothing was written.
 */
import { ERRORS, type ErrorCode, type HostError } from '../kernel/errors.js';
import type { ToolTraits } from './operation.js';
import type { ReplayReason } from './policy-events.js';

export interface ReplayQuestion {
  readonly error: HostError;
  readonly traits: ToolTraits;
  /** Retries so far: 0 when the first attempt failed. */
  readonly attempt: number;
  /** `attempt` of the call. Retries multiply: only one layer makes them. */
  readonly callerAttempt: number;
  readonly deadlineLeftMs: number;
}

/** Beyond the first attempt. */
export const replaysMax = 2;

/** With less time a retry could only fail. */
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
  // The server said when to try again.
  if (error.details.retryAfterMs !== undefined) return false;
  // The time is spent, even if nothing was written: a retry adds load to a server that is already too slow.
  if (error.code === 'timeout') return false;
  if (error.details.execution === 'not_executed') return isLoss(error);
  return isLoss(error) && mayRunTwice(traits);
}

/** Annotations of an untrusted server count as absent. */
export const mayRunTwice = ({ isReadOnly, isIdempotent, isTrusted }: ToolTraits): boolean =>
  isTrusted && (isReadOnly || isIdempotent);

/**
 * The connection failed the call, rather than policy, the caller or the server. A broken message can end a connection too, and
 * everything else in flight is lost with it.
 */
function isLoss({ code, details }: HostError): boolean {
  return ERRORS[code].retry === 'maybe' || (code === 'protocol_error' && details.phase === 'queued');
}

/** Codes that leave open whether the call has run. Not `cancelled`: its caller is gone. */
const openEnded: ReadonlySet<ErrorCode> = new Set(['transport', 'timeout', 'connect_failed', 'protocol_error']);

/**
 * The error for the caller when there is no retry. A call that may have run is `outcome_uncertain`, whatever broke; the original
 * error is its cause, and its details stay.
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

/** Without `execution` an error is uncertain, unless the server answered. */
function isUncertain({ code, details }: HostError): boolean {
  if (details.execution !== undefined) return details.execution === 'uncertain';
  return code === 'transport' || code === 'timeout';
}

export interface RetryPlan {
  readonly tokensMax: number;
  readonly retryCost: number;
  readonly timeoutCost: number;
  readonly successGain: number;
  /** One retry per this many calls. */
  readonly callsPerRetry: number;
  /** Retries at once, as when a server with many calls dies. */
  readonly burst: number;
  /** Retries in flight that are always allowed: a tenth of a few calls would be none. */
  readonly freeInFlight: number;
}

export const defaultRetryPlan: RetryPlan = {
  tokensMax: 500,
  retryCost: 5,
  timeoutCost: 10,
  successGain: 1,
  callsPerRetry: 10,
  burst: 100,
  freeInFlight: 3,
};

/**
 * What retries may cost one server, so that an outage does not cause a retry storm. Two rules, and both must agree: a quota that
 * only successes refill, and a share of the calls.
 * Invariant: without successes there are at most `tokensMax / retryCost` retries; beyond `burst`, more than `freeInFlight` at a
 * time are in flight only while they are at most one in `callsPerRetry` calls.
 */
export class RetryBudget {
  readonly #plan: RetryPlan;
  #tokens: number;
  #inFlight = 0;
  /** Calls since the last retry was charged. A call that may not be retried is not counted, which is on the safe side. */
  #calls: number;

  constructor(plan: RetryPlan = defaultRetryPlan) {
    this.#plan = plan;
    this.#tokens = plan.tokensMax;
    this.#calls = plan.burst * plan.callsPerRetry;
  }

  get tokens(): number {
    return this.#tokens;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** Undefined: no retry now. Otherwise the retry is charged; call the result when it has ended. */
  take(): (() => void) | undefined {
    const { retryCost, freeInFlight, callsPerRetry } = this.#plan;
    const isBeyondShare = this.#calls < callsPerRetry && this.#inFlight >= freeInFlight;
    if (this.#tokens < retryCost || isBeyondShare) {
      this.#callEnded();
      return undefined;
    }
    this.#pay(retryCost);
    this.#calls = Math.max(0, this.#calls - callsPerRetry);
    this.#inFlight++;
    let isOver = false;
    return () => {
      if (!isOver) this.#inFlight--;
      isOver = true;
    };
  }

  succeeded(): void {
    this.#tokens = Math.min(this.#plan.tokensMax, this.#tokens + this.#plan.successGain);
    this.#callEnded();
  }

  timedOut(): void {
    this.#pay(this.#plan.timeoutCost);
  }

  #pay(cost: number): void {
    this.#tokens = Math.max(0, this.#tokens - cost);
  }

  #callEnded(): void {
    this.#calls = Math.min(this.#plan.burst * this.#plan.callsPerRetry, this.#calls + 1);
  }
}
