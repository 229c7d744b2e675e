/**
 * Callers that wait for a server to be ready: settled together by a state change, or one by one by timeout or cancellation.
 * All share one timer, which exists only while callers wait.
 * Invariant: each waiter is settled exactly once; then it and its abort listener are removed.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import { type Cancel, type Clock, keepAlive } from '../kernel/clock.js';
import type { HostError } from '../kernel/errors.js';
import { Deadlines } from '../wire/pending-requests.js';

interface WaiterErrors {
  late(): HostError;
  cancelled(): HostError;
  full(): HostError;
}

interface Waiter<T> {
  readonly untilMs: number;
  readonly signal: CancelSignal | undefined;
  readonly onAbort: () => void;
  readonly resolve: (value: T) => void;
  readonly reject: (error: HostError) => void;
}

export class Waiters<T> {
  readonly #clock: Clock;
  readonly #max: number;
  readonly #errors: WaiterErrors;
  readonly #waiting = new Set<Waiter<T>>();
  readonly #deadlines: Deadlines;
  /** Keeps the process alive while callers wait: between two runs only an unreferenced timer may be left. */
  #letGo: Cancel | undefined;

  constructor(clock: Clock, max: number, errors: WaiterErrors) {
    this.#clock = clock;
    this.#max = max;
    this.#errors = errors;
    this.#deadlines = new Deadlines(clock, (nowMs) => this.#expire(nowMs));
  }

  get size(): number {
    return this.#waiting.size;
  }

  wait(untilMs: number, signal: CancelSignal | undefined): Promise<T> {
    if (signal?.aborted) return Promise.reject(this.#errors.cancelled());
    if (untilMs <= this.#clock.nowMs()) return Promise.reject(this.#errors.late());
    if (this.#waiting.size >= this.#max) return Promise.reject(this.#errors.full());
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        this.#leave(waiter);
        reject(this.#errors.cancelled());
      };
      const waiter: Waiter<T> = { untilMs, signal, onAbort, resolve, reject };
      this.#waiting.add(waiter);
      this.#letGo ??= keepAlive();
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#deadlines.add(untilMs);
    });
  }

  resolveAll(value: T): void {
    for (const waiter of this.#takeAll()) waiter.resolve(value);
  }

  rejectAll(error: HostError): void {
    for (const waiter of this.#takeAll()) waiter.reject(error);
  }

  #takeAll(): readonly Waiter<T>[] {
    const all = [...this.#waiting];
    for (const waiter of all) this.#leave(waiter);
    return all;
  }

  #leave(waiter: Waiter<T>): void {
    this.#waiting.delete(waiter);
    waiter.signal?.removeEventListener('abort', waiter.onAbort);
    if (this.#waiting.size > 0) return;
    this.#deadlines.stop();
    this.#letGo?.();
    this.#letGo = undefined;
  }

  #expire(nowMs: number): number {
    let earliest = Number.POSITIVE_INFINITY;
    let error: HostError | undefined;
    for (const waiter of this.#waiting) {
      if (waiter.untilMs > nowMs) {
        earliest = Math.min(earliest, waiter.untilMs);
        continue;
      }
      this.#leave(waiter);
      error ??= this.#errors.late();
      waiter.reject(error);
    }
    return earliest;
  }
}
