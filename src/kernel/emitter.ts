/**
 * Typed events: a map of event name to payload type, with many listeners.
 * Invariant: an error of a listener affects neither the emitter nor other listeners. It is reported once, to `onListenerError`.
 */
export type Listener<T> = (event: T) => void;

export class Emitter<Events extends object> {
  readonly #listeners = new Map<keyof Events, Set<Listener<never>>>();
  readonly #onListenerError: (error: unknown, event: keyof Events) => void;

  constructor(onListenerError: (error: unknown, event: keyof Events) => void = () => {}) {
    this.#onListenerError = onListenerError;
  }

  on<Name extends keyof Events>(name: Name, listener: Listener<Events[Name]>): () => void {
    let set = this.#listeners.get(name);
    if (!set) {
      set = new Set();
      this.#listeners.set(name, set);
    }
    set.add(listener as Listener<never>);
    return () => set.delete(listener as Listener<never>);
  }

  emit<Name extends keyof Events>(name: Name, event: Events[Name]): void {
    const set = this.#listeners.get(name);
    if (!set) return;
    for (const listener of [...set]) {
      try {
        (listener as Listener<Events[Name]>)(event);
      } catch (error) {
        this.#report(error, name);
      }
    }
  }

  #report(error: unknown, name: keyof Events): void {
    try {
      this.#onListenerError(error, name);
    } catch {
      // An error of the error handler must not reach the emitter.
    }
  }

  listenerCount(name: keyof Events): number {
    return this.#listeners.get(name)?.size ?? 0;
  }
}
