/**
 * Requests that wait for their answers, by id.
 * Invariant: every promise settles: with its answer, `limitMs` after its request was sent, or when all are failed.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';

interface Waiter<Answer> {
  readonly cancelTimer: Cancel;
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

  wait(id: string): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const cancelTimer = this.clock.at(this.clock.nowMs() + this.limitMs, () => this.reject(id, this.late()));
      this.#waiters.set(id, { cancelTimer, resolve, reject });
    });
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

  #take(id: string): Waiter<Answer> | undefined {
    const waiter = this.#waiters.get(id);
    this.#waiters.delete(id);
    waiter?.cancelTimer();
    return waiter;
  }
}
