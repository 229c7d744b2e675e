/**
 * What retries may cost one server, so that an outage is not answered with a storm. Two rules, and both must agree: a quota
 * that only successes fill again, and a share of the calls.
 * Not here: whether a single call may be sent again at all (replay.ts).
 *
 * Invariant: however long nothing succeeds, `tokensMax / retryCost` retries are all there are. More than `freeInFlight` at a
 * time are under way only while retries are at most `share` of the calls.
 */
export interface RetryPlan {
  readonly tokensMax: number;
  readonly retryCost: number;
  readonly timeoutCost: number;
  readonly successGain: number;
  /** Of the calls, so many may be sent again. */
  readonly share: number;
  /** So many retries may be under way whatever their share: of a few calls a tenth would be none. */
  readonly freeInFlight: number;
}

export const defaultRetryPlan: RetryPlan = {
  tokensMax: 500,
  retryCost: 5,
  timeoutCost: 10,
  successGain: 1,
  share: 0.1,
  freeInFlight: 3,
};

/** Calls are counted up to this, then old and new weigh half: what was long ago must not pay for a storm today. */
const callsCounted = 1_000;

export class RetryBudget {
  readonly #plan: RetryPlan;
  #tokens: number;
  #inFlight = 0;
  /** Calls that have ended, as far as they are told here; a call nobody may send again is not, which errs to the safe side. */
  #calls = 0;
  #retries = 0;

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
    const { retryCost, freeInFlight, share } = this.#plan;
    const isWithinShare = this.#retries < share * this.#calls;
    if (this.#tokens < retryCost || (this.#inFlight >= freeInFlight && !isWithinShare)) {
      this.#callEnded();
      return undefined;
    }
    this.#pay(retryCost);
    this.#retries++;
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
    if (++this.#calls < callsCounted) return;
    this.#calls /= 2;
    this.#retries /= 2;
  }
}
