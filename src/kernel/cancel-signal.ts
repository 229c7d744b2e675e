/** Cancellation of work in progress. An `AbortSignal` is a CancelSignal; `Cancellation` is a cheap one for client requests. */
export interface CancelSignal {
  readonly aborted: boolean;
  addEventListener(type: 'abort', listener: () => void, options?: { readonly once?: boolean }): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** For untyped callers. Checks the members too: the bundles of the command line have separate copies of `Cancellation`. */
export const isCancelSignal = (value: unknown): value is CancelSignal =>
  value instanceof Cancellation ||
  value instanceof AbortSignal ||
  (typeof value === 'object' && value !== null && 'aborted' in value && 'removeEventListener' in value);

/** Signal and controller in one. Listeners are called once, in order; an error of one does not affect the next. */
export class Cancellation implements CancelSignal {
  #aborted = false;
  /** Most signals have at most one listener, which needs no Set. */
  #first: (() => void) | undefined;
  #others: Set<() => void> | undefined;

  get aborted(): boolean {
    return this.#aborted;
  }

  /** As with an AbortSignal, a listener added after the abort is not called. */
  addEventListener(_type: 'abort', listener: () => void): void {
    if (this.#aborted || this.#first === listener) return;
    if (this.#first === undefined && this.#others === undefined) this.#first = listener;
    else {
      this.#others ??= new Set();
      this.#others.add(listener);
    }
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    if (this.#first === listener) this.#first = undefined;
    else this.#others?.delete(listener);
  }

  abort(): void {
    if (this.#aborted) return;
    this.#aborted = true;
    const listeners = this.#first ? [this.#first, ...(this.#others ?? [])] : [...(this.#others ?? [])];
    this.#first = this.#others = undefined;
    for (const listener of listeners) {
      try {
        listener();
      } catch (error) {
        // Rethrown outside the loop, as an AbortSignal does, so that the other listeners are called.
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}
