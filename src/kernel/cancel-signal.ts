/**
 * The word that nobody waits any more, for whoever works on something. An `AbortSignal` is one; `Cancellation` is one that
 * costs a fraction of it, for what is made with every request of a client.
 */
export interface CancelSignal {
  readonly aborted: boolean;
  addEventListener(type: 'abort', listener: () => void, options?: { readonly once?: boolean }): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** The same in every copy of this file: the command line is bundled in parts, and one hands its signals to another. */
const brand: unique symbol = Symbol.for('hostler.Cancellation') as never;

/** Whether somebody without types handed in one. */
export const isCancelSignal = (value: unknown): value is CancelSignal =>
  value instanceof Cancellation ||
  value instanceof AbortSignal ||
  (typeof value === 'object' && value !== null && brand in value);

/** Signal and controller in one. Listeners hear it once, in the order they came in; what one throws does not reach the next. */
export class Cancellation implements CancelSignal {
  #aborted = false;
  /** Nearly always there is one, or none. */
  #first: (() => void) | undefined;
  #others: Set<() => void> | undefined;

  get [brand](): true {
    return true;
  }

  get aborted(): boolean {
    return this.#aborted;
  }

  /** As with an AbortSignal, who comes after the word does not hear it. */
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
        // As an AbortSignal does: it is nobody's here, and must not keep the others from hearing.
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}
