/**
 * Requests that wait for their answers, by id. One timer serves all of them: the oldest is first in the map.
 * Invariant: every promise settles.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { HostError } from '../../kernel/errors.js';

interface Waiter<Answer> {
  readonly untilMs: number;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: HostError) => void;
}

export class PendingAnswers<Answer> {
  readonly #clock: Clock;
  readonly #limitMs: number;
  readonly #late: () => HostError;
  readonly #waiters = new Map<string, Waiter<Answer>>();
  #cancel: Cancel | undefined;

  constructor(clock: Clock, limitMs: number, late: () => HostError) {
    this.#clock = clock;
    this.#limitMs = limitMs;
    this.#late = late;
  }

  wait(id: string): Promise<Answer> {
    return new Promise((resolve, reject) => {
      // A second sending of the same call: the first one is given up, and its answer serves the second.
      this.reject(id, this.#late());
      this.#waiters.set(id, { untilMs: this.#clock.nowMs() + this.#limitMs, resolve, reject });
      this.#cancel ??= this.#arm();
    });
  }

  resolve(id: string, answer: Answer): void {
    const waiter = this.#waiters.get(id);
    this.#waiters.delete(id);
    waiter?.resolve(answer);
  }

  reject(id: string, error: HostError): void {
    const waiter = this.#waiters.get(id);
    this.#waiters.delete(id);
    waiter?.reject(error);
  }

  failAll(error: () => HostError): void {
    this.#cancel?.();
    this.#cancel = undefined;
    for (const id of [...this.#waiters.keys()]) this.reject(id, error());
  }

  #arm(): Cancel | undefined {
    const [oldest] = this.#waiters.values();
    return oldest && this.#clock.at(oldest.untilMs, () => this.#expire());
  }

  #expire(): void {
    const nowMs = this.#clock.nowMs();
    for (const [id, { untilMs }] of this.#waiters) {
      if (untilMs > nowMs) break;
      this.reject(id, this.#late());
    }
    this.#cancel = this.#arm();
  }
}
