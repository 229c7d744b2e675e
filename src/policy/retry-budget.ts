/**
 * What retries may cost one server, so that an outage is not answered with a storm. Two rules, and both must agree: a quota
 * that only successes fill again, and a share of the calls.
 * Not here: whether a single call may be sent again at all (replay.ts).
 *
 * Invariant: however long nothing succeeds, `tokensMax / retryCost` retries are all there are; beyond `burst`, more than
 * `freeInFlight` at a time are under way only while they are at most one in `callsPerRetry` calls.
 */
export interface RetryPlan {
  readonly tokensMax: number;
  readonly retryCost: number;
  readonly timeoutCost: number;
  readonly successGain: number;
  /** Of so many calls one may be sent again. */
  readonly callsPerRetry: number;
  /** At once: all calls of a server that dies may have to be. */
  readonly burst: number;
  /** So many retries may be under way whatever their share: of a few calls a tenth would be none. */
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

export class RetryBudget {
  readonly #plan: RetryPlan;
  #tokens: number;
  #inFlight = 0;
  /**
   * Calls no retry has been set against yet, as far as they are told here; a call nobody may send again is not, which errs to
   * the safe side.
   */
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

  /** Undefined: not now. Otherwise the retry is paid for; call the result when it has ended, however it ended. */
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
