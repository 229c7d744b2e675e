/**
 * Retry rules, and the retry budget of a server. The rules use the facts of an error, never its text: `not_executed` means that
 * no byte reached the server.
 * Not here: sending again (host/dispatch.ts), the annotations of a tool (ManagedServer.traitsOf).
 *
 * Invariants: a call that may have run is sent again only if its tool is trusted and read-only or idempotent. A call that timed
 * out is never sent again, even if no byte was sent.
 */
import { ERRORS, type ErrorCode, type HostError } from '../kernel/errors.js';
import type { ToolTraits } from './operation.js';
import type { ReplayReason } from './policy-events.js';

export interface ReplayQuestion {
  readonly error: HostError;
  readonly traits: ToolTraits;
  /** Number of earlier retries: 0 if the first attempt failed. */
  readonly attempt: number;
  /** `attempt` of the call. Retries of several layers multiply, so only one layer makes them. */
  readonly callerAttempt: number;
  readonly deadlineLeftMs: number;
}

/** Bound of retries after the first attempt. */
export const replaysMax = 2;

/** With less time left, a retry would certainly fail. */
const deadlineLeftMsMin = 1;

/** Reason why the operation may be sent again; undefined if it may not. */
export const replayReason = (question: ReplayQuestion): ReplayReason | undefined =>
  mayReplay(question)
    ? question.error.details.execution === 'not_executed'
      ? 'not_executed'
      : 'may_run_twice'
    : undefined;

export function mayReplay({ error, traits, attempt, callerAttempt, deadlineLeftMs }: ReplayQuestion): boolean {
  if (callerAttempt > 0 || attempt >= replaysMax || deadlineLeftMs < deadlineLeftMsMin) return false;
  // The caller must wait for the time that the server named.
  if (error.details.retryAfterMs !== undefined) return false;
  // A retry would add load to a server that is already too slow.
  if (error.code === 'timeout') return false;
  if (error.details.execution === 'not_executed') return isConnectionLoss(error);
  return isConnectionLoss(error) && mayRunTwice(traits);
}

/** Annotations of an untrusted server count as absent. */
export const mayRunTwice = ({ isReadOnly, isIdempotent, isTrusted }: ToolTraits): boolean =>
  isTrusted && (isReadOnly || isIdempotent);

/**
 * True if the connection failed, not policy, the caller or the server. A malformed message can also end a connection and lose
 * queued requests.
 */
function isConnectionLoss({ code, details }: HostError): boolean {
  return ERRORS[code].retry === 'maybe' || (code === 'protocol_error' && details.phase === 'queued');
}

/** Codes of calls that may have run. Without `cancelled`, because its caller has left. */
const possiblyExecutedCodes: ReadonlySet<ErrorCode> = new Set([
  'transport',
  'timeout',
  'connect_failed',
  'protocol_error',
]);

/**
 * The error for the caller without a retry. A call that may have run becomes `outcome_uncertain` with the original error as its
 * cause; the details are copied.
 */
export function toOutcome(error: HostError, traits: ToolTraits): HostError {
  if (!possiblyExecutedCodes.has(error.code) || !isUncertain(error) || mayRunTwice(traits)) return error;
  return error.with({
    code: 'outcome_uncertain',
    message: `${error.message}; the call may have run`,
    reason: error.details.reason ?? error.code,
    execution: 'uncertain',
    hint: 'look at its effect before sending it again',
    cause: error,
  });
}

/** Without `execution`, only `transport` and `timeout` count as uncertain. */
function isUncertain({ code, details }: HostError): boolean {
  if (details.execution !== undefined) return details.execution === 'uncertain';
  return code === 'transport' || code === 'timeout';
}

export const defaultRetryPlan = {
  tokensMax: 500,
  retryCost: 5,
  timeoutCost: 10,
  successGain: 1,
  callsPerRetry: 10,
  /** Retries at one time, such as when a server with many calls dies. */
  burst: 100,
  /** Retries in flight that are always allowed: a tenth of a few calls would be zero. */
  freeInFlight: 3,
};
type RetryPlan = Readonly<typeof defaultRetryPlan>;

/**
 * Retry budget of one server, which prevents a retry storm in an outage: a token quota that only successes refill, and a share
 * of the calls.
 * Invariant: without successes at most `tokensMax / retryCost` retries are made. Beyond `burst`, more than `freeInFlight`
 * retries are in flight only while they are at most one in `callsPerRetry` calls.
 */
export class RetryBudget {
  readonly #plan: RetryPlan;
  #tokens: number;
  #inFlight = 0;
  /** Calls since the last charged retry. Calls that may not be retried are not counted, which only lowers the share. */
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

  /** Undefined: no retry now. Otherwise the retry is charged; call the returned function when it has ended. */
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
