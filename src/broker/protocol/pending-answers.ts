/**
 * Requests that wait for their answers, by id.
 * Invariant: every promise settles: with its answer, `limitMs` after its request was sent, or when all are failed.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';

interface Waiter<Answer> {
  cancelTimer: Cancel;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
}

export class PendingAnswers<Answer> {
  readonly #waiters = new Map<string, Waiter<Answer>>();

  constructor(
    private readonly clock: Clock,
    private readonly limitMs: number,
    private readonly late: () => Error,
  ) {}

  /** `isSent`: false if `sent` will be called. */
  wait(id: string, isSent = true): Promise<Answer> {
    return new Promise((resolve, reject) => {
      // A call may be sent again over the same connection. Its answer then goes to the later sending.
      this.#expire(id);
      this.#waiters.set(id, { cancelTimer: () => {}, resolve, reject });
      if (isSent) this.sent(id);
    });
  }

  /** The request has left. */
  sent(id: string): void {
    const waiter = this.#waiters.get(id);
    if (!waiter) return;
    waiter.cancelTimer();
    waiter.cancelTimer = this.clock.at(this.clock.nowMs() + this.limitMs, () => this.#expire(id));
  }

  resolve(id: string, answer: Answer): void {
    this.#take(id)?.resolve(answer);
  }

  reject(id: string, error: Error): void {
    this.#take(id)?.reject(error);
  }

  rejectAll(error: Error): void {
    for (const id of [...this.#waiters.keys()]) this.reject(id, error);
  }

  #expire(id: string): void {
    this.#take(id)?.reject(this.late());
  }

  #take(id: string): Waiter<Answer> | undefined {
    const waiter = this.#waiters.get(id);
    this.#waiters.delete(id);
    waiter?.cancelTimer();
    return waiter;
  }
}
