/**
 * The breaker of one server, or of a client's own instance of it, and the checks that go with it: before a trial, after a
 * suspicious silence, and, while the breaker is open because connections failed, by a timer of the host's own.
 * Not here: every decision about the state (policy/breaker.ts), the check of a server that the supervisor suspects.
 *
 * Invariants: one check at a time, which settles within its deadline whatever the session does; a timer only while the breaker
 * is open after losses; nothing here restarts a server. A check that is given up starts the watch of the session, as any request
 * does (session/liveness.ts): a server that hangs for good is noticed there, although no call is sent to it any more.
 */
import type { Cancel, Clock } from '../kernel/clock.js';
import {
  Breaker,
  type BreakerPlan,
  type CheckResult,
  type CircuitChanged,
  type GatedCircuit,
  type Ticket,
} from '../policy/breaker.js';
import { UnheardTime } from '../policy/unheard-time.js';
import type { Session } from '../session/session.js';
import type { Supervisor } from '../supervisor/supervisor.js';

/** How long a server may take to answer a check. */
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
  readonly #unheard = new UnheardTime();
  #check: Check | undefined;
  #cancelTimer: Cancel | undefined;
  /** Tickets of calls that ended in silence while a check is under way. */
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

  unheardMs(sentAtMs: number, nowMs: number): number {
    const heardAtMs = this.#supervisor.current?.connection.heardAtMs;
    return heardAtMs === undefined || sentAtMs > nowMs ? 0 : this.#unheard.add(sentAtMs, heardAtMs, nowMs);
  }

  check(): Promise<CheckResult> | undefined {
    const session = this.#supervisor.current?.connection;
    if (!session || this.#isClosed) return undefined;
    if (this.#check?.session !== session) this.#check = this.#ask(session);
    return this.#check.result;
  }

  /** However many calls ended in silence during one check, it is one strike. */
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

  /** Ends it for good: no timer is left, and none is set again. */
  close(): void {
    this.#isClosed = true;
    this.breaker.reset();
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
      // Whatever else it has said meanwhile is a sign of life too.
      resolve(session.heardAtMs > askedAtMs ? 'alive' : found);
    };
    const cancelTimer = this.#clock.at(deadlineAtMs, () => settle('timeout'));
    session.probe(deadlineAtMs, 'silent').then(
      (found) => {
        if (found !== 'silent') settle(found);
        else settle(this.#clock.nowMs() < deadlineAtMs ? 'loss' : 'timeout');
      },
      () => settle('unasked'),
    );
    return { session, result, settle };
  }

  /** Sets the timer of the next check of the host's own, where the breaker wants one. */
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
      // It has opened anew meanwhile, or closed.
      if (period !== this.breaker.period) return;
      this.breaker.checked(result === 'alive', this.#clock.nowMs());
      this.#plan();
    });
  }
}
