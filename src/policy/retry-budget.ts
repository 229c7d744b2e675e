/**
 * What retries may cost one server: a share of what succeeds, so that an outage is not answered with a storm.
 * Not here: whether a single call may be sent again at all (replay.ts).
 */
export interface RetryPlan {
  readonly tokensMax: number;
  readonly retryCost: number;
  readonly timeoutCost: number;
  readonly successGain: number;
  /** So many retries may be under way with no tokens left, or a quiet server would never be retried again. */
  readonly freeInFlight: number;
}

export const defaultRetryPlan: RetryPlan = {
  tokensMax: 500,
  retryCost: 5,
  timeoutCost: 10,
  successGain: 1,
  freeInFlight: 3,
};

export class RetryBudget {
  readonly #plan: RetryPlan;
  #tokens: number;
  #inFlight = 0;

  constructor(plan: RetryPlan = defaultRetryPlan) {
    this.#plan = plan;
    this.#tokens = plan.tokensMax;
  }

  get tokens(): number {
    return this.#tokens;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** Undefined: not now. Otherwise the retry is paid for; call the result when it has ended, however it ended. */
  take(): (() => void) | undefined {
    if (this.#tokens < this.#plan.retryCost && this.#inFlight >= this.#plan.freeInFlight) return undefined;
    this.#pay(this.#plan.retryCost);
    this.#inFlight++;
    let isOver = false;
    return () => {
      if (!isOver) this.#inFlight--;
      isOver = true;
    };
  }

  succeeded(): void {
    this.#tokens = Math.min(this.#plan.tokensMax, this.#tokens + this.#plan.successGain);
  }

  timedOut(): void {
    this.#pay(this.#plan.timeoutCost);
  }

  #pay(cost: number): void {
    this.#tokens = Math.max(0, this.#tokens - cost);
  }
}
