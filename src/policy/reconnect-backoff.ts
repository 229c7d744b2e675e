/**
 * Backoff between the attempts of an operation, and a shared next attempt for all operations whose connection was refused. A
 * refused connection sent nothing, so attempts continue for 5 s or until the deadline and are not charged as retries. Of all
 * operations that wait for one server, one dials at a time.
 * Not here: whether a request may be sent again (retry.ts), servers that are being started (supervisor/).
 *
 * Invariants: each waiting request gets exactly one signal: try again, or end. A server has an entry only while requests wait
 * for it or one of them is dialing.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Cancel, Clock } from '../kernel/clock.js';
import { type HostError, isHostError } from '../kernel/errors.js';
import type { Random } from '../kernel/random.js';
import { cancelled } from '../supervisor/refusals.js';
import { defaultPlan, emptyLedger, type RestartPlan, restartDelayMs } from '../supervisor/restart-plan.js';

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

  /** Waits for that backoff, at most half of the remaining time. Ends early if the caller cancels. */
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

  /** `server`: one object for all requests to the same server. `told` may be called before this returns. */
  refused(server: object, { error, sinceMs, deadlineAtMs, signal }: RefusedConnection, told: Resume): void {
    const untilMs = Math.min(sinceMs + waitMsMax, deadlineAtMs - endBeforeDeadlineMs);
    // The attempt of the group failed, even if this request waits no longer: the others must not follow it.
    const waiting = this.#groups.get(server);
    if (waiting?.isTrying) this.#refusedAgain(server, waiting);
    if (signal?.aborted || untilMs <= this.#clock.nowMs()) {
      if (waiting?.waiters.size === 0) this.#close(server, waiting);
      return told(signal?.aborted ? cancelled(error.details.server ?? '') : error);
    }
    const group = waiting ?? this.#open(server);
    const waiter: Waiter = {
      resume: (end) => {
        group.waiters.delete(waiter);
        cancelTimer();
        signal?.removeEventListener('abort', onAbort);
        told(end);
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
