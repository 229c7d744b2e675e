/**
 * The breaker of one server or instance, and its checks: before a trial, after a suspicious silence, and by a timer while the
 * breaker is open after losses.
 * Not here: the state of a breaker (policy/breaker.ts), the check of a suspect server (supervisor/).
 *
 * Invariants: at most one check is open, and it settles within its deadline. A timer exists only while the breaker is open
 * after losses. This file restarts no server: a check that times out starts the liveness watch of the session
 * (session/liveness.ts).
 */
import type { Cancel, Clock } from '../kernel/clock.js';
import {
  Breaker,
  type BreakerPlan,
  type CheckResult,
  type Circuit,
  type CircuitChanged,
  type GatedCircuit,
  type Ticket,
} from '../policy/breaker.js';
import type { Session } from '../session/session.js';
import type { Supervisor } from '../supervisor/supervisor.js';

const checkDeadlineMs = 5_000;

interface Check {
  readonly session: Session;
  readonly result: Promise<CheckResult>;
  readonly settle: (result: CheckResult) => void;
}

export class ServerCircuit implements GatedCircuit {
  readonly breaker: Breaker;
  readonly #supervisor: Pick<Supervisor<Session>, 'current'>;
  readonly #clock: Clock;
  readonly #silentTime = new SilentTime();
  #check: Check | undefined;
  #cancelTimer: Cancel | undefined;
  /** Tickets of calls that ended in silence during the current check. */
  #suspects: Ticket[] | undefined;
  #isClosed = false;

  constructor(
    plan: BreakerPlan,
    supervisor: Pick<Supervisor<Session>, 'current'>,
    clock: Clock,
    onChange: CircuitChanged = () => {},
  ) {
    this.#supervisor = supervisor;
    this.#clock = clock;
    this.breaker = new Breaker(plan, (from, to, failures) => {
      this.#plan();
      onChange(from, to, failures);
    });
  }

  get isLost(): boolean {
    return this.#supervisor.current === undefined;
  }

  silentMs(sentAtMs: number, nowMs: number): number {
    const lastMessageAtMs = this.#supervisor.current?.connection.lastMessageAtMs;
    return lastMessageAtMs === undefined || sentAtMs > nowMs
      ? 0
      : this.#silentTime.add(sentAtMs, lastMessageAtMs, nowMs);
  }

  check(): Promise<CheckResult> | undefined {
    const session = this.#supervisor.current?.connection;
    if (!session || this.#isClosed) return undefined;
    if (this.#check?.session !== session) this.#check = this.#ask(session);
    return this.#check.result;
  }

  /** All calls that end in silence during one check count as one strike. */
  suspect(ticket: Ticket): void {
    if (this.#suspects) {
      this.#suspects.push(ticket);
      return;
    }
    const checking = this.check();
    if (!checking) return this.breaker.released(ticket);
    const suspects = [ticket];
    this.#suspects = suspects;
    void checking.then((result) => {
      this.#suspects = undefined;
      const isPassed = result === 'alive' || result === 'unasked';
      const newest = isPassed ? undefined : suspects.pop();
      for (const each of suspects) this.breaker.released(each);
      if (newest && !isPassed) this.breaker.failed(newest, this.#clock.nowMs(), result);
    });
  }

  /** Removes the timer and sets no other one. */
  close(): void {
    this.#isClosed = true;
    this.breaker.retire();
    this.#check?.settle('unasked');
  }

  #ask(session: Session): Check {
    const askedAtMs = this.#clock.nowMs();
    const deadlineAtMs = askedAtMs + checkDeadlineMs;
    let resolve: (result: CheckResult) => void = () => {};
    const result = new Promise<CheckResult>((settled) => {
      resolve = settled;
    });
    const settle = (found: CheckResult) => {
      cancelTimer();
      if (this.#check?.result === result) this.#check = undefined;
      // Any other message since the check began also proves that the server is alive.
      resolve(session.lastMessageAtMs > askedAtMs ? 'alive' : found);
    };
    const cancelTimer = this.#clock.at(deadlineAtMs, () => settle('timeout'));
    session.probe(deadlineAtMs, 'breaker').then(
      (found) => {
        if (found !== 'silent') settle(found);
        else settle(this.#clock.nowMs() < deadlineAtMs ? 'loss' : 'timeout');
      },
      () => settle('unasked'),
    );
    return { session, result, settle };
  }

  /** Sets the timer of the next check, if the breaker needs one. */
  #plan(): void {
    this.#cancelTimer?.();
    const { checkAtMs } = this.breaker;
    const isWanted = checkAtMs !== undefined && !this.#isClosed;
    this.#cancelTimer = isWanted ? this.#clock.at(checkAtMs, () => this.#checkByItself()) : undefined;
  }

  #checkByItself(): void {
    this.#cancelTimer = undefined;
    const { period } = this.breaker;
    void (this.check() ?? Promise.resolve('unasked' as const)).then((result) => {
      // The breaker has closed, or opened again, since the check began.
      if (period !== this.breaker.period) return;
      this.breaker.checked(result === 'alive', this.#clock.nowMs());
      this.#plan();
    });
  }
}

/**
 * Sums how long given-up requests have waited since the last message of the server. Without this sum, callers with short
 * deadlines would never detect a server that hangs.
 * Invariants: overlapping waits count once; any message of the server resets the sum.
 */
export class SilentTime {
  #sumMs = 0;
  /** End of the time that was already counted. */
  #untilMs = Number.NEGATIVE_INFINITY;

  /** Adds a call that was sent at `sentAtMs` and given up now; returns the sum. */
  add(sentAtMs: number, lastMessageAtMs: number, nowMs: number): number {
    if (lastMessageAtMs >= this.#untilMs) this.#sumMs = 0;
    const fromMs = Math.max(sentAtMs, lastMessageAtMs, this.#untilMs);
    this.#sumMs += Math.max(0, nowMs - fromMs);
    this.#untilMs = nowMs;
    return this.#sumMs;
  }
}

export interface CircuitStatus {
  readonly circuit: Circuit;
  readonly failures: number;
  /** Earliest time at which the next call may pass; undefined while the breaker is closed. */
  readonly opensAgainAtMs: number | undefined;
}

const severity: Readonly<Record<Circuit, number>> = { closed: 0, half_open: 1, open: 2 };

export const closedStatus: CircuitStatus = { circuit: 'closed', failures: 0, opensAgainAtMs: undefined };

const statusOf = (breaker: Breaker, nowMs: number): CircuitStatus => ({
  circuit: breaker.circuit(nowMs),
  failures: breaker.failures,
  opensAgainAtMs: breaker.opensAgainAtMs(nowMs),
});

type Reported = Pick<CircuitStatus, 'circuit' | 'failures'>;

/**
 * One state for the breakers of a server and its instances: open while any of them is open, so that healthy instances do not
 * hide a failing one.
 * Invariant: only breakers that are not closed are stored.
 */
export class WorstCircuit {
  readonly #onChange: CircuitChanged;
  readonly #reported = new Map<Breaker, Reported>();

  constructor(onChange: CircuitChanged) {
    this.#onChange = onChange;
  }

  changed(breaker: Breaker, circuit: Circuit, failures: number): void {
    const before = this.#worstReported();
    if (circuit === 'closed') this.#reported.delete(breaker);
    else this.#reported.set(breaker, { circuit, failures });
    const after = this.#worstReported();
    if (after.circuit !== before.circuit) this.#onChange(before.circuit, after.circuit, after.failures);
  }

  /**
   * `own`: breaker of the shared server, whose failures are shown if all breakers are closed; undefined before the first call
   * of the server.
   */
  now(own: Breaker | undefined, nowMs: number): CircuitStatus {
    let worst = own ? statusOf(own, nowMs) : closedStatus;
    for (const breaker of this.#reported.keys()) {
      const each = statusOf(breaker, nowMs);
      if (severity[each.circuit] > severity[worst.circuit]) worst = each;
    }
    return worst;
  }

  #worstReported(): Reported {
    let worst: Reported = closedStatus;
    for (const each of this.#reported.values()) if (severity[each.circuit] > severity[worst.circuit]) worst = each;
    return worst;
  }
}
