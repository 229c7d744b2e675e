/**
 * Stops asking a server that does not answer, and finds out with exactly one call when it answers again.
 * Fed by transport, connect, timeout and protocol failures only: what a tool says about its arguments is no fault of the
 * server. Decides in the same tick it is asked in, so that two callers can never both be the probe.
 * Not here: starting the server again (supervisor/), tools that always fail (tool-throttle.ts).
 *
 * Invariants: at most one probe at a time; what was sent before the breaker opened neither closes nor prolongs it; a probe
 * that never answers is a failure at its own deadline, unless it is told afterwards that it said nothing about the server.
 */
import { doubledMs } from '../kernel/doubled.js';

export interface BreakerPlan {
  /** Failures in a row that open it; 0 and 1 both mean the first. */
  readonly threshold: number;
  readonly resetMs: number;
  /** The wait doubles with each failed probe, up to this. */
  readonly resetMsMax: number;
  readonly probeMs: number;
}

export const defaultBreakerPlan: BreakerPlan = { threshold: 5, resetMs: 30_000, resetMsMax: 300_000, probeMs: 5_000 };

export type Circuit = 'closed' | 'open' | 'half_open';

/** Goes with an admitted call; hand it back with the outcome. */
export interface Ticket {
  /** Counts how often the breaker has opened: an outcome counts only for the period it was admitted in. */
  readonly period: number;
  readonly isProbe: boolean;
  /** Of a probe: its own deadline. */
  readonly probeUntilMs: number | undefined;
  /** Of a probe: the deadline that its caller gave it. */
  readonly callUntilMs: number | undefined;
}

export type Admission =
  | { readonly admitted: true; readonly ticket: Ticket }
  | {
      readonly admitted: false;
      readonly retryAfterMs: number;
      readonly failures: number;
      readonly probeInProgress: boolean;
    };

/** `failures` in a row, as they stand after the change. */
export type CircuitChanged = (from: Circuit, to: Circuit, failures: number) => void;

type State =
  | { readonly kind: 'closed'; readonly failures: number }
  | {
      readonly kind: 'open';
      readonly failures: number;
      readonly untilMs: number;
      readonly failedProbes: number;
      /** The probe whose deadline was counted as a failure. */
      readonly overdue: Ticket | undefined;
    }
  | { readonly kind: 'probing'; readonly failures: number; readonly ticket: Ticket; readonly failedProbes: number };

const closed: State = { kind: 'closed', failures: 0 };

const passOf = (period: number): Admission => ({
  admitted: true,
  ticket: { period, isProbe: false, probeUntilMs: undefined, callUntilMs: undefined },
});

export class Breaker {
  readonly #plan: BreakerPlan;
  readonly #onChange: CircuitChanged;
  #state: State = closed;
  #period = 0;
  /** For all calls of one period that pass a closed breaker. */
  #pass: Admission = passOf(0);
  /** What `onChange` was last told. */
  #told: Circuit = 'closed';

  /** That its time is over is told with the first call that tries the server, not by a timer. */
  constructor(plan: BreakerPlan = defaultBreakerPlan, onChange: CircuitChanged = () => {}) {
    this.#plan = plan;
    this.#onChange = onChange;
  }

  get isClosed(): boolean {
    return this.#state.kind === 'closed';
  }

  circuit(nowMs: number): Circuit {
    const state = this.#current(nowMs);
    if (state.kind === 'closed') return 'closed';
    return state.kind === 'open' && nowMs < state.untilMs ? 'open' : 'half_open';
  }

  get failures(): number {
    return this.#state.failures;
  }

  /** When the next call may pass; undefined while calls pass. */
  opensAgainAtMs(nowMs: number): number | undefined {
    const state = this.#current(nowMs);
    if (state.kind === 'open') return state.untilMs;
    return state.kind === 'probing' ? state.ticket.probeUntilMs : undefined;
  }

  /** Whoever is refused is refused at once: nobody queues behind a probe. */
  admit(nowMs: number, deadlineAtMs: number): Admission {
    const state = this.#current(nowMs);
    if (state.kind === 'closed') return this.#pass;
    if (state.kind === 'open' && nowMs >= state.untilMs) {
      const probeUntilMs = Math.min(nowMs + this.#plan.probeMs, deadlineAtMs);
      const ticket: Ticket = { period: this.#period, isProbe: true, probeUntilMs, callUntilMs: deadlineAtMs };
      this.#state = { kind: 'probing', failures: state.failures, failedProbes: state.failedProbes, ticket };
      this.#tell('half_open');
      return { admitted: true, ticket };
    }
    const untilMs = state.kind === 'open' ? state.untilMs : (state.ticket.probeUntilMs ?? nowMs);
    return {
      admitted: false,
      retryAfterMs: Math.max(0, Math.ceil(untilMs - nowMs)),
      failures: state.failures,
      probeInProgress: state.kind === 'probing',
    };
  }

  succeeded(ticket: Ticket, nowMs: number): void {
    if (ticket.period !== this.#period) return;
    const state = this.#current(nowMs);
    if (state.kind === 'closed' || (state.kind === 'probing' && state.ticket === ticket)) this.#close();
  }

  failed(ticket: Ticket, nowMs: number): void {
    if (ticket.period !== this.#period) return;
    const state = this.#current(nowMs);
    if (state.kind === 'closed') {
      const failures = state.failures + 1;
      if (failures < this.#plan.threshold) this.#state = { kind: 'closed', failures };
      else this.#open(failures, 0, nowMs);
    } else if (state.kind === 'probing' && state.ticket === ticket) {
      this.#open(state.failures + 1, state.failedProbes + 1, nowMs);
    }
  }

  /** The call ended without a word about the server: cancelled, or refused by a later stage. A probe slot is free again. */
  released(ticket: Ticket, nowMs: number): void {
    const state = this.#current(nowMs);
    // Whoever waits in vain for a server that reconnects does so until the deadline: that was counted before this was known.
    const isCounted = state.kind === 'open' && state.overdue === ticket;
    if (!isCounted && !(state.kind === 'probing' && state.ticket === ticket)) return;
    const counted = isCounted ? 1 : 0;
    this.#state = {
      kind: 'open',
      failures: state.failures - counted,
      failedProbes: state.failedProbes - counted,
      untilMs: nowMs,
      overdue: undefined,
    };
  }

  /** A newer run of the server was opened: the handshake was the probe. */
  reset(): void {
    this.#close();
  }

  #close(): void {
    const wasClosed = this.#state.kind === 'closed';
    this.#state = closed;
    if (wasClosed) return;
    this.#beginPeriod();
    this.#tell('closed');
  }

  #beginPeriod(): void {
    this.#period++;
    this.#pass = passOf(this.#period);
  }

  #open(failures: number, failedProbes: number, nowMs: number, overdue?: Ticket): void {
    const resetMs = doubledMs(this.#plan.resetMs, failedProbes, this.#plan.resetMsMax);
    this.#beginPeriod();
    this.#state = { kind: 'open', failures, failedProbes, untilMs: nowMs + resetMs, overdue };
    this.#tell('open');
  }

  /** A probe that was given up leaves the breaker half open: there is nothing new to tell about the next one. */
  #tell(to: Circuit): void {
    const from = this.#told;
    if (from === to) return;
    this.#told = to;
    this.#onChange(from, to, this.#state.failures);
  }

  /** The state at `nowMs`: a probe past its deadline has failed. */
  #current(nowMs: number): State {
    const state = this.#state;
    if (state.kind === 'probing' && nowMs >= (state.ticket.probeUntilMs ?? 0)) {
      const { failures, failedProbes, ticket } = state;
      this.#open(failures + 1, failedProbes + 1, ticket.probeUntilMs ?? nowMs, ticket);
    }
    return this.#state;
  }
}
