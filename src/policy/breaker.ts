/**
 * Stops sending to a server that fails, and finds out with few trial calls whether it works again.
 * Connect, transport, timeout and protocol failures count as strikes. An error result of a tool does not.
 * Not here: the checks and timers that follow from its state (host/server-circuit.ts), restarts (supervisor/), tools that
 * always fail (throttles.ts).
 *
 * Invariants: `admit` decides synchronously, so two callers are never both the first trial. An outcome counts only in the
 * period that admitted its call: a call sent before the breaker opened neither closes nor prolongs it. `trialsMax` bounds the
 * open trials.
 */
import { backoffMs } from '../kernel/backoff.js';

/** `threshold` and `resetMs` here are for tests: each server has those of its definition (config/server-definition.ts). */
export const defaultBreakerPlan = {
  /** Consecutive failures that open the breaker; 0 and 1 both open it on the first failure. */
  threshold: 5,
  resetMs: 30_000,
  /** Upper bound of the open time, which doubles with each failed trial. */
  resetMsMax: 300_000,
  /** Losses within this time after the last counted loss have the same cause and count once. */
  lossMs: 250,
  /** Time after which a half-open breaker admits more trials although none has ended. */
  trialMs: 5_000,
  /** Wait before the host's first own check, if the breaker opened because of a loss. */
  checkMs: 500,
  /** Upper bound of that wait, which doubles with each check. */
  checkMsMax: 15_000,
};
export type BreakerPlan = Readonly<typeof defaultBreakerPlan>;

export type Circuit = 'closed' | 'open' | 'half_open';

/** A failure that counts: a lost or refused connection, no answer in time, or a message that cannot be parsed. */
export type Strike = 'loss' | 'timeout' | 'protocol';

/** Belongs to one admitted call. The breaker stage returns it exactly once, with the outcome. */
export interface Ticket {
  /** Number of times that the breaker had opened or closed before it admitted the call. */
  readonly period: number;
  readonly isTrial: boolean;
  /** No other trial is open: the session is checked before this call is sent. */
  readonly isFirst: boolean;
}

export type Admission =
  | { readonly admitted: true; readonly ticket: Ticket }
  | {
      readonly admitted: false;
      readonly retryAfterMs: number;
      readonly failures: number;
      readonly isTried: boolean;
    };

/** `unasked`: the check could not be sent, so it says nothing about the server. */
export type CheckResult = 'alive' | 'unasked' | Strike;

/** The breaker of a server or of an instance, with the facts about its connection that the breaker stage needs. */
export interface GatedCircuit {
  readonly breaker: Breaker;
  readonly isLost: boolean;
  /**
   * Called when a caller gives up a request that was sent at `sentAtMs`. Returns how long given-up requests, this one included, have waited
   * in total since the last message of the server. 0 without a connection.
   */
  silentMs(sentAtMs: number, nowMs: number): number;
  /** Probes the open session; undefined if no session is open. Settles within 5 s. */
  check(): Promise<CheckResult> | undefined;
  /** The request ended after a silence that may be the server's fault. A check decides, and returns the ticket. */
  suspect(ticket: Ticket): void;
}

/** `failures`: consecutive failures after the change. */
export type CircuitChanged = (from: Circuit, to: Circuit, failures: number) => void;

/** Attempts since the breaker was last closed. */
interface Tries {
  readonly failedTrials: number;
  /** The host's own checks. A failed trial does not reset them: a server that answers only checks is tried less and less. */
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
      /** Time of the host's next check; undefined unless a loss opened the breaker. */
      readonly checkAtMs: number | undefined;
    }
  | {
      readonly kind: 'half_open';
      readonly failures: number;
      readonly tries: Tries;
      readonly trials: Set<Ticket>;
      /** Start of the current series of trials: admission time of its first trial. */
      readonly sinceMs: number;
      /** Admission time of the last trial. */
      readonly triedAtMs: number;
      /** True if a loss had opened the breaker. */
      readonly isLost: boolean;
    };

type Open = Extract<State, { kind: 'open' }>;
type HalfOpen = Extract<State, { kind: 'half_open' }>;

const closed: State = { kind: 'closed', failures: 0, lostAtMs: Number.NEGATIVE_INFINITY };
const untried = { sinceMs: 0, triedAtMs: Number.NEGATIVE_INFINITY } as const;
const noTries: Tries = { failedTrials: 0, checks: 0 };
/** A trial belongs to the series of the previous one if it follows within this many times `trialMs`. */
const seriesTimes = 2;
/** Bound of the exponent: 2 ** 31 trials are more than there can be callers. */
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
  /** One shared object for all calls that a closed breaker admits in one period. */
  #pass: Admission = passOf(0);
  #reported: Circuit = 'closed';
  #isRetired = false;

  /** No timer runs at the end of the open time, so `onChange` reports `half_open` when the first trial is admitted. */
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

  /** Earliest time at which the next call may pass; undefined while the breaker is closed. */
  opensAgainAtMs(nowMs: number): number | undefined {
    const state = this.#state;
    if (state.kind === 'closed') return undefined;
    if (state.kind === 'open') return state.untilMs;
    return this.#hasRoom(state, nowMs) ? nowMs : this.#moreAtMs(state, nowMs);
  }

  /** Time of the host's next check; undefined if only time makes the breaker half-open. */
  get checkAtMs(): number | undefined {
    return this.#state.kind === 'open' ? this.#state.checkAtMs : undefined;
  }

  /** A closed breaker does not use `nowMs`. A refusal is immediate: no call waits for a trial to end. */
  admit(nowMs: number): Admission {
    const state = this.#state;
    if (state.kind === 'closed') return this.#pass;
    if (state.kind === 'open' && nowMs < state.untilMs) return refused(state, state.untilMs - nowMs);
    const half = state.kind === 'half_open' ? state : this.#halfOpen(state, state.tries);
    if (!this.#hasRoom(half, nowMs)) return refused(half, this.#moreAtMs(half, nowMs) - nowMs);
    const isFirst = half.trials.size === 0;
    const ticket: Ticket = { period: this.#period, isTrial: true, isFirst };
    // Callers may give up every trial. The next trial then continues the series, so that more and more trials are admitted.
    const isNewSeries = isFirst && nowMs - half.triedAtMs > seriesTimes * this.#plan.trialMs;
    this.#state = { ...half, sinceMs: isNewSeries ? nowMs : half.sinceMs, triedAtMs: nowMs };
    half.trials.add(ticket);
    return { admitted: true, ticket };
  }

  /** `sentAtMs`: when the answered call was sent; omitted if unknown. */
  succeeded(ticket: Ticket, sentAtMs = Number.NEGATIVE_INFINITY): void {
    const state = this.#state;
    if (ticket.period !== this.#period) return this.#answeredLate(sentAtMs);
    // `lostAtMs` is not reset: a loss before this success and a loss right after it may have the same cause.
    if (state.kind === 'closed') this.#state = { ...state, failures: 0 };
    else if (state.kind === 'half_open' && state.trials.has(ticket)) this.#close();
  }

  failed(ticket: Ticket, nowMs: number, strike: Strike): void {
    const state = this.#state;
    if (ticket.period !== this.#period || this.#isRetired) return;
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
   * The check before this trial was not answered. Counts even if the caller of the trial has left. After a loss, a silent check
   * counts as another loss: a machine that is down does not answer at all.
   */
  checkFailed(ticket: Ticket, nowMs: number, strike: Strike): void {
    const state = this.#state;
    if (ticket.period !== this.#period || state.kind !== 'half_open') return;
    this.#openAgain(state, nowMs, state.isLost ? 'loss' : strike);
  }

  /** The end of the call says nothing about the server: cancelled, or refused by a later stage. Frees the slot of a trial. */
  released(ticket: Ticket): void {
    if (this.#state.kind === 'half_open') this.#state.trials.delete(ticket);
  }

  /** Result of the host's own check. */
  checked(isAnswered: boolean, nowMs: number): void {
    const state = this.#state;
    if (state.kind !== 'open' || state.checkAtMs === undefined) return;
    const tries = { ...state.tries, checks: state.tries.checks + 1 };
    if (isAnswered) this.#halfOpen(state, tries);
    else this.#state = { ...state, tries, checkAtMs: this.#checkAtMs(tries, nowMs) };
  }

  /** Forgets all failures: the run changed or ended, or the server has proved to be reachable. */
  reset(): void {
    this.#close();
  }

  /** The server or instance has ended: outcomes of its remaining calls are ignored, and the breaker stays closed. */
  retire(): void {
    this.#isRetired = true;
    this.#close();
  }

  #close(): void {
    const wasClosed = this.#state.kind === 'closed';
    this.#state = closed;
    // No new period: calls that were admitted before the new run was open are sent to it, so their outcome counts.
    if (wasClosed) return;
    this.#beginPeriod();
    this.#report('closed');
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
    this.#report('open');
  }

  /** A call of an earlier period that was sent after the breaker opened counts like an answered check. */
  #answeredLate(sentAtMs: number): void {
    const state = this.#state;
    if (state.kind !== 'open' || state.checkAtMs === undefined || sentAtMs <= state.sinceMs) return;
    this.#halfOpen(state, state.tries);
  }

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
    this.#report('half_open');
    return state;
  }

  /** One trial at first; after each `trialMs` without an end of a trial, two more, then four more, and so on. */
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

  #report(to: Circuit): void {
    const from = this.#reported;
    this.#reported = to;
    this.#onChange(from, to, this.#state.failures);
  }
}

const trialsMax = (intervals: number): number => 2 ** (Math.min(intervals, doublingsMax) + 1) - 1;

const refused = ({ kind, failures }: State, leftMs: number): Admission => ({
  admitted: false,
  retryAfterMs: Math.max(0, Math.ceil(leftMs)),
  failures,
  isTried: kind === 'half_open',
});
