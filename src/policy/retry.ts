/**
 * When a failed call is sent again: the rules, the retry budget of a server, and the wait before the next attempt. The rules use
 * the facts of an error, never its text.
 * Not here: sending again (host/dispatch.ts), the annotations of a tool (ManagedServer.traitsOf).
 *
 * Invariants: a call that may have run is sent again only if its tool is trusted and read-only or idempotent. A call that timed
 * out is never sent again, even if no byte was sent.
 */

import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Cancel, Clock } from '../kernel/clock.js';
import { ERRORS, type ErrorCode, type HostError, isHostError } from '../kernel/errors.js';
import type { Random } from '../kernel/random.js';
import { cancelled } from '../supervisor/refusals.js';
import { defaultPlan, emptyLedger, type RestartPlan, restartDelayMs } from '../supervisor/restart-plan.js';
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
 * True if the connection failed. False if policy, the caller or the server refused the call. A malformed message can also end a
 * connection and lose queued requests.
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
  /** Retries that are allowed at once, for example when a server with many calls dies. */
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

/** Bound of the backoff, so that a recovered server is soon noticed. */
const backoffMsMax = 500;
const plan: RestartPlan = { ...defaultPlan, delayMsMax: backoffMsMax };

/** Equal to the wait of a call for a server that is being restarted. */
const waitMsMax = 5_000;
/** The wait ends this long before the deadline: the caller then gets the connect error, and the breaker counts it. */
const endBeforeDeadlineMs = 50;
/** A refusal takes less time than this: an attempt that lasts longer has a connection. */
const refusedWithinMs = 100;

export interface RefusedConnection {
  readonly error: HostError;
  readonly sinceMs: number;
  readonly deadlineAtMs: number;
  readonly signal: CancelSignal | undefined;
}

/** Undefined: try again now. Otherwise the request ends with this error. */
type Resume = (end: HostError | undefined) => void;

interface Waiter {
  resume(end: HostError | undefined): void;
}

interface Group {
  readonly waiters: Set<Waiter>;
  /** Consecutive refused attempts. */
  refusals: number;
  /** True while one of the requests is dialing and was not refused yet. */
  isTrying: boolean;
  cancelTimer: Cancel;
}

/**
 * Backoff between the attempts of an operation, and a shared next attempt for all operations whose connection was refused. A
 * refused connection sent nothing, so attempts continue for 5 s or until the deadline and are not charged as retries. Only one of
 * the operations that wait for a server dials at a time.
 * Not here: servers that are being started (supervisor/).
 *
 * Invariants: each waiting request gets exactly one signal: try again, or end. A server has an entry only while requests wait
 * for it or one of them is dialing.
 */
export class ReconnectBackoff {
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #groups = new Map<object, Group>();
  /** Requests that were sent before and wait for their next attempt. */
  readonly #sleepers = new Map<object, Set<Waiter>>();

  constructor(clock: Clock, random: Random) {
    this.#clock = clock;
    this.#random = random;
  }

  /** Number of servers with waiting requests. */
  get size(): number {
    return this.#groups.size;
  }

  /** Restart backoff before the `nth` retry. */
  backoffMs(nth: number): number {
    return restartDelayMs({ ...emptyLedger, unchargedFailures: nth }, true, plan, this.#random);
  }

  /** Waits for `backoffMs(nth)`, but at most half of the remaining time. Ends early if the caller cancels. */
  backOff(server: object, nth: number, deadlineLeftMs: number, signal: CancelSignal | undefined, resume: Resume): void {
    const sleepers = this.#sleepers.get(server) ?? new Set();
    this.#sleepers.set(server, sleepers);
    const sleeper: Waiter = {
      resume: (end) => {
        sleepers.delete(sleeper);
        if (sleepers.size === 0) this.#sleepers.delete(server);
        cancelTimer();
        signal?.removeEventListener('abort', onTime);
        resume(end);
      },
    };
    const onTime = () => sleeper.resume(undefined);
    sleepers.add(sleeper);
    const afterMs = signal?.aborted ? 0 : Math.min(this.backoffMs(nth), deadlineLeftMs / 2);
    const cancelTimer = this.#clock.at(this.#clock.nowMs() + afterMs, onTime);
    signal?.addEventListener('abort', onTime, { once: true });
  }

  /** The server was stopped: all its waiting requests end in this tick. */
  end(server: object, error: HostError): void {
    const group = this.#groups.get(server);
    if (group) this.#close(server, group);
    for (const waiter of [...(group?.waiters ?? []), ...(this.#sleepers.get(server) ?? [])]) waiter.resume(error);
  }

  /** `server`: one object for all requests to the same server. `resume` may be called before this returns. */
  refused(server: object, { error, sinceMs, deadlineAtMs, signal }: RefusedConnection, resume: Resume): void {
    const untilMs = Math.min(sinceMs + waitMsMax, deadlineAtMs - endBeforeDeadlineMs);
    // Record the failed attempt of the group even if this request no longer waits: otherwise all others would dial at once.
    const waiting = this.#groups.get(server);
    if (waiting?.isTrying) this.#refusedAgain(server, waiting);
    if (signal?.aborted || untilMs <= this.#clock.nowMs()) {
      if (waiting?.waiters.size === 0) this.#close(server, waiting);
      return resume(signal?.aborted ? cancelled(error.details.server ?? '') : error);
    }
    const group = waiting ?? this.#open(server);
    const waiter: Waiter = {
      resume: (end) => {
        group.waiters.delete(waiter);
        cancelTimer();
        signal?.removeEventListener('abort', onAbort);
        resume(end);
      },
    };
    const onAbort = () => this.#leave(server, group, waiter, cancelled(error.details.server ?? ''));
    const cancelTimer = this.#clock.at(untilMs, () => this.#leave(server, group, waiter, error));
    group.waiters.add(waiter);
    signal?.addEventListener('abort', onAbort, { once: true });
  }

  /**
   * The server has answered a request. An answer on an open connection does not prove that new ones are accepted, so one
   * request dials first, unless one is dialing already.
   */
  answered(server: object): void {
    const group = this.#groups.get(server);
    if (!group) return;
    if (group.isTrying) this.#release(server, group);
    else this.#tryNext(server, group);
  }

  #open(server: object): Group {
    const group: Group = { waiters: new Set(), refusals: 0, isTrying: false, cancelTimer: () => {} };
    this.#groups.set(server, group);
    this.#refusedAgain(server, group);
    return group;
  }

  #refusedAgain(server: object, group: Group): void {
    group.isTrying = false;
    group.refusals++;
    this.#arm(group, this.backoffMs(group.refusals), () => this.#tryNext(server, group));
  }

  #tryNext(server: object, group: Group): void {
    const [first] = group.waiters;
    group.isTrying = true;
    this.#arm(group, refusedWithinMs, () => this.#release(server, group));
    first?.resume(undefined);
  }

  #release(server: object, group: Group): void {
    this.#close(server, group);
    for (const waiter of [...group.waiters]) waiter.resume(undefined);
  }

  #leave(server: object, group: Group, waiter: Waiter, end: HostError): void {
    waiter.resume(end);
    if (group.waiters.size === 0 && !group.isTrying) this.#close(server, group);
  }

  #close(server: object, group: Group): void {
    group.cancelTimer();
    if (this.#groups.get(server) === group) this.#groups.delete(server);
  }

  #arm(group: Group, afterMs: number, run: () => void): void {
    group.cancelTimer();
    group.cancelTimer = this.#clock.at(this.#clock.nowMs() + afterMs, run);
  }
}

export const isUnconnected = (error: unknown): error is HostError & { readonly code: 'connect_failed' } =>
  isHostError(error) && error.code === 'connect_failed' && error.details.execution === 'not_executed';
