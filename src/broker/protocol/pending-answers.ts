/**
 * Requests that wait for their answers, by id.
 * Invariant: every promise settles: with its answer, after `limitMs`, or when all are failed.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';

interface Waiter<Answer> {
  readonly untilMs: number;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Error) => void;
}

export class PendingAnswers<Answer> {
  /** The oldest is first, so one timer serves all. */
  readonly #waiters = new Map<string, Waiter<Answer>>();
  #cancel: Cancel | undefined;

  constructor(
    private readonly clock: Clock,
    private readonly limitMs: number,
    private readonly late: () => Error,
  ) {}

  wait(id: string): Promise<Answer> {
    return new Promise((resolve, reject) => {
      // A call that is sent again over the same connection: the answer serves the later sending.
      this.#take(id)?.reject(this.late());
      const untilMs = this.clock.nowMs() + this.limitMs;
      this.#waiters.set(id, { untilMs, resolve, reject });
      this.#cancel ??= this.clock.at(untilMs, () => this.#expire());
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
    return waiter;
  }

  #expire(): void {
    this.#cancel = undefined;
    for (const [id, { untilMs }] of this.#waiters) {
      if (untilMs > this.clock.nowMs()) {
        this.#cancel = this.clock.at(untilMs, () => this.#expire());
        return;
      }
      this.reject(id, this.late());
    }
  }
}
