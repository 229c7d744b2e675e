/**
 * Stops sending to a server that fails, and finds out with few calls whether it works again.
 * Fed by transport, connect, timeout and protocol failures only: a tool that rejects its arguments is no fault of the server.
 * Decides in the tick in which it is asked, so that two callers can never both be the first trial.
 * Not here: the checks and timers that follow from its state (host/server-circuit.ts), starting the server again (supervisor/),
 * tools that always fail (tool-throttle.ts).
 *
 * Invariants: an outcome counts only in the period in which its call was admitted, so a call that was sent before the breaker
 * opened neither closes it nor prolongs it; the number of trials under way is bounded by `trialsMax`; a trial never waits for
 * the breaker, and the breaker never ends a trial.
 */
import { backoffMs } from '../kernel/backoff.js';

export interface BreakerPlan {
  /** Failures in a row that open it; 0 and 1 both mean the first. */
  readonly threshold: number;
  readonly resetMs: number;
  /** The wait doubles with each failed trial, up to this. */
  readonly resetMsMax: number;
  /** Losses this soon after the last counted one have the same cause, and count once. */
  readonly lossMs: number;
  /** How long the trials under way hold back further ones. */
  readonly trialMs: number;
  /** While it is open because connections failed: the wait before the host's first own check of the server. */
  readonly checkMs: number;
  /** That wait doubles with each check, up to this. */
  readonly checkMsMax: number;
}

export const defaultBreakerPlan: BreakerPlan = {
  threshold: 5,
  resetMs: 30_000,
  resetMsMax: 300_000,
  lossMs: 250,
  trialMs: 5_000,
  checkMs: 500,
  checkMsMax: 15_000,
};

export type Circuit = 'closed' | 'open' | 'half_open';

/** What counts against a server: a lost or refused connection, no answer in time, or a message that cannot be parsed. */
export type Strike = 'loss' | 'timeout' | 'protocol';

/** Goes with an admitted call; hand it back once, with the outcome. */
export interface Ticket {
  /** Counts how often the breaker has opened and closed. */
  readonly period: number;
  readonly isTrial: boolean;
  /** No other trial is under way: the session is checked before this call is sent. */
  readonly isFirst: boolean;
}

export type Admission =
  | { readonly admitted: true; readonly ticket: Ticket }
  | {
      readonly admitted: false;
      readonly retryAfterMs: number;
      readonly failures: number;
      /** Trials are under way. */
      readonly isTried: boolean;
    };

/** `unasked`: the check could not be sent, which says nothing about the server. */
export type CheckResult = 'alive' | 'unasked' | Strike;

/** The breaker of a server, or of a client's own instance of it, and what the gate needs to know of its connection. */
export interface GatedCircuit {
  readonly breaker: Breaker;
  /** No connection is open. */
  readonly isLost: boolean;
  /**
   * The caller of a request that was sent at `sentAtMs` gave it up: how long such requests have waited since the last message
   * of the server. 0 without a connection.
   */
  unheardMs(sentAtMs: number, nowMs: number): number;
  /** Probes the open session; undefined where none is open. Settles within 5 s. */
  check(): Promise<CheckResult> | undefined;
  /** The request with this ticket ended after a silence that may be the server's fault: a check decides, and takes the ticket. */
  suspect(ticket: Ticket): void;
}

/** `failures` in a row, as they stand after the change. */
export type CircuitChanged = (from: Circuit, to: Circuit, failures: number) => void;

/** What was tried since it was last closed. */
interface Tries {
  readonly failedTrials: number;
  /** The host's own checks. Not forgotten with a failed trial: a server that answers checks but no calls is tried less and less. */
  readonly checks: number;
}

type State =
  | { readonly kind: 'closed'; readonly failures: number; readonly lostAtMs: number }
  | {
      readonly kind: 'open';
      readonly failures: number;
      readonly tries: Tries;
      readonly sinceMs: number;
      readonly untilMs: number;
      /** When the host checks the server; undefined after anything but a loss. */
      readonly checkAtMs: number | undefined;
    }
  | {
      readonly kind: 'half_open';
      readonly failures: number;
      readonly tries: Tries;
      readonly trials: Set<Ticket>;
      /** When the first of them was admitted, or the first of those right before them that ended without a word about the server. */
      readonly sinceMs: number;
      /** When the last one was admitted. */
      readonly triedAtMs: number;
      /** It was open because connections failed. */
      readonly isLost: boolean;
    };

type Open = Extract<State, { kind: 'open' }>;
type HalfOpen = Extract<State, { kind: 'half_open' }>;

const closed: State = { kind: 'closed', failures: 0, lostAtMs: Number.NEGATIVE_INFINITY };
const untried = { sinceMs: 0, triedAtMs: Number.NEGATIVE_INFINITY } as const;
const noTries: Tries = { failedTrials: 0, checks: 0 };
/** A trial that follows the one before within so many times `trialMs` is of the same series. */
const seriesTimes = 2;
/** After this many doublings more trials are admitted than there can be callers. */
const doublingsMax = 30;

const passOf = (period: number): Admission => ({
  admitted: true,
  ticket: { period, isTrial: false, isFirst: false },
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

  /** The end of the open time is told with the first call that tries the server, not by a timer. */
  constructor(plan: BreakerPlan = defaultBreakerPlan, onChange: CircuitChanged = () => {}) {
    this.#plan = plan;
    this.#onChange = onChange;
  }

  get isClosed(): boolean {
    return this.#state.kind === 'closed';
  }

  get failures(): number {
    return this.#state.failures;
  }

  get period(): number {
    return this.#period;
  }

  circuit(nowMs: number): Circuit {
    const state = this.#state;
    return state.kind === 'open' && nowMs >= state.untilMs ? 'half_open' : state.kind;
  }

  /** When the next call may pass; undefined while the breaker is closed. */
  opensAgainAtMs(nowMs: number): number | undefined {
    const state = this.#state;
    if (state.kind === 'closed') return undefined;
    if (state.kind === 'open') return state.untilMs;
    return this.#hasRoom(state, nowMs) ? nowMs : this.#moreAtMs(state, nowMs);
  }

  /** When the host is to check the server; undefined where nothing but time makes the breaker half-open. */
  get checkAtMs(): number | undefined {
    return this.#state.kind === 'open' ? this.#state.checkAtMs : undefined;
  }

  /** A closed breaker does not look at the time. A refusal comes at once: no call waits for a trial to end. */
  admit(nowMs: number): Admission {
    const state = this.#state;
    if (state.kind === 'closed') return this.#pass;
    if (state.kind === 'open' && nowMs < state.untilMs) return refused(state, state.untilMs - nowMs);
    const half = state.kind === 'half_open' ? state : this.#halfOpen(state, state.tries);
    if (!this.#hasRoom(half, nowMs)) return refused(half, this.#moreAtMs(half, nowMs) - nowMs);
    const isFirst = half.trials.size === 0;
    const ticket: Ticket = { period: this.#period, isTrial: true, isFirst };
    // Trial after trial that its caller gives up must not hold everybody else back for ever: the next one goes on with the series.
    const isNewSeries = isFirst && nowMs - half.triedAtMs > seriesTimes * this.#plan.trialMs;
    this.#state = { ...half, sinceMs: isNewSeries ? nowMs : half.sinceMs, triedAtMs: nowMs };
    half.trials.add(ticket);
    return { admitted: true, ticket };
  }

  /** `sentAtMs`: when the call that was answered was sent; left out where that is not known. */
  succeeded(ticket: Ticket, sentAtMs = Number.NEGATIVE_INFINITY): void {
    const state = this.#state;
    if (ticket.period !== this.#period) return this.#answeredLate(sentAtMs);
    // `lostAtMs` stays: a loss before this success and one right after it may have the same cause.
    if (state.kind === 'closed') this.#state = { ...state, failures: 0 };
    else if (state.kind === 'half_open' && state.trials.has(ticket)) this.#close();
  }

  failed(ticket: Ticket, nowMs: number, strike: Strike): void {
    const state = this.#state;
    if (ticket.period !== this.#period) return;
    if (state.kind === 'half_open' && state.trials.has(ticket)) this.#openAgain(state, nowMs, strike);
    if (state.kind !== 'closed') return;
    const { lostAtMs } = state;
    if (strike === 'loss' && nowMs - lostAtMs <= this.#plan.lossMs) return;
    const failures = state.failures + 1;
    if (failures < this.#plan.threshold)
      this.#state = { kind: 'closed', failures, lostAtMs: strike === 'loss' ? nowMs : lostAtMs };
    else this.#open(failures, noTries, nowMs, strike);
  }

  /**
   * The check before this trial was not answered. Counts also when the caller of the trial has left meanwhile. While connections
   * fail, a check that ends in silence is one more failed connection: a machine that is down refuses nothing, it does not answer.
   */
  checkFailed(ticket: Ticket, nowMs: number, strike: Strike): void {
    const state = this.#state;
    if (ticket.period !== this.#period || state.kind !== 'half_open') return;
    this.#openAgain(state, nowMs, state.isLost ? 'loss' : strike);
  }

  /** The end of the call says nothing about the server: cancelled, or refused by a later stage. Frees the place of a trial. */
  released(ticket: Ticket): void {
    if (this.#state.kind === 'half_open') this.#state.trials.delete(ticket);
  }

  /** The host has checked the server by itself. */
  checked(isAnswered: boolean, nowMs: number): void {
    const state = this.#state;
    if (state.kind !== 'open' || state.checkAtMs === undefined) return;
    const tries = { ...state.tries, checks: state.tries.checks + 1 };
    if (isAnswered) this.#halfOpen(state, tries);
    else this.#state = { ...state, tries, checkAtMs: this.#checkAtMs(tries, nowMs) };
  }

  /** Another run of the server, or none: what was counted is forgotten. */
  reset(): void {
    this.#close();
  }

  #close(): void {
    const wasClosed = this.#state.kind === 'closed';
    this.#state = closed;
    // No new period: calls that were admitted before the new run was open are sent to it, so their outcome counts.
    if (wasClosed) return;
    this.#beginPeriod();
    this.#tell('closed');
  }

  #beginPeriod(): void {
    this.#period++;
    this.#pass = passOf(this.#period);
  }

  #open(failures: number, tries: Tries, nowMs: number, strike: Strike): void {
    const { resetMs, resetMsMax } = this.#plan;
    const untilMs = nowMs + backoffMs(resetMs, tries.failedTrials, resetMsMax);
    const checkAtMs = strike === 'loss' ? this.#checkAtMs(tries, nowMs) : undefined;
    this.#beginPeriod();
    this.#state = { kind: 'open', failures, tries, sinceMs: nowMs, untilMs, checkAtMs };
    this.#tell('open');
  }

  /** A call that waited for the server to be back was sent after the breaker opened: as good as an answered check. */
  #answeredLate(sentAtMs: number): void {
    const state = this.#state;
    if (state.kind !== 'open' || state.checkAtMs === undefined || sentAtMs <= state.sinceMs) return;
    this.#halfOpen(state, state.tries);
  }

  /** A trial has failed. */
  #openAgain({ failures, tries: { failedTrials, checks } }: HalfOpen, nowMs: number, strike: Strike): void {
    this.#open(failures + 1, { failedTrials: failedTrials + 1, checks }, nowMs, strike);
  }

  #checkAtMs({ checks }: Tries, nowMs: number): number {
    return nowMs + backoffMs(this.#plan.checkMs, checks, this.#plan.checkMsMax);
  }

  #halfOpen({ failures, checkAtMs }: Open, tries: Tries): HalfOpen {
    const isLost = checkAtMs !== undefined;
    const state: HalfOpen = { kind: 'half_open', failures, tries, trials: new Set(), ...untried, isLost };
    this.#state = state;
    this.#tell('half_open');
    return state;
  }

  /** One trial, alone at first; two more after a while, then four more, doubling for as long as none of them has ended. */
  #hasRoom({ trials, sinceMs }: HalfOpen, nowMs: number): boolean {
    return trials.size < trialsMax(this.#intervals(sinceMs, nowMs));
  }

  #moreAtMs({ sinceMs }: HalfOpen, nowMs: number): number {
    return sinceMs + (this.#intervals(sinceMs, nowMs) + 1) * this.#plan.trialMs;
  }

  /** Complete intervals of `trialMs` since the first trial. */
  #intervals(sinceMs: number, nowMs: number): number {
    return Math.floor((nowMs - sinceMs) / this.#plan.trialMs);
  }

  #tell(to: Circuit): void {
    const from = this.#told;
    this.#told = to;
    this.#onChange(from, to, this.#state.failures);
  }
}

/** How many trials may be under way once the first has run for this many intervals of `trialMs`. */
const trialsMax = (intervals: number): number => 2 ** (Math.min(intervals, doublingsMax) + 1) - 1;

const refused = ({ kind, failures }: State, leftMs: number): Admission => ({
  admitted: false,
  retryAfterMs: Math.max(0, Math.ceil(leftMs)),
  failures,
  isTried: kind === 'half_open',
});
