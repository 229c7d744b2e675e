/**
 * When rows are removed from the store. Only sequences are in memory: a busy host has hundreds of thousands of taken rows whose deadline has
 * not passed. Rows of a host that ends before that are removed by the age limit of their bucket.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { Bucket } from './kv-store.js';

const stepMs = 1_000;

export class RowRemovals {
  readonly #clock: Clock;
  readonly #remove: (bucket: Bucket, sequences: readonly number[]) => void;
  /** By bucket and by the time at which they are due, in steps. */
  readonly #due = new Map<Bucket, Map<number, number[]>>();
  #cancel: Cancel | undefined;

  constructor(clock: Clock, remove: (bucket: Bucket, sequences: readonly number[]) => void) {
    this.#clock = clock;
    this.#remove = remove;
  }

  add(atMs: number, bucket: Bucket, seq: number): void {
    const steps = this.#due.get(bucket) ?? new Map<number, number[]>();
    this.#due.set(bucket, steps);
    const step = Math.ceil(atMs / stepMs);
    const list = steps.get(step);
    if (list) list.push(seq);
    else steps.set(step, [seq]);
    this.#cancel ??= this.#clock.at(this.#clock.nowMs() + stepMs, () => this.#removeDue());
  }

  close(): void {
    this.#cancel?.();
    this.#due.clear();
  }

  #removeDue(): void {
    const now = Math.floor(this.#clock.nowMs() / stepMs);
    let left = 0;
    for (const [bucket, steps] of this.#due)
      for (const [step, sequences] of steps) {
        if (step > now) left++;
        else {
          steps.delete(step);
          this.#remove(bucket, sequences);
        }
      }
    this.#cancel = left === 0 ? undefined : this.#clock.at(this.#clock.nowMs() + stepMs, () => this.#removeDue());
  }
}
