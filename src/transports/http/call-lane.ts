/**
 * The queue of requests for a connection, in order.
 * A hold pauses the queue while a session is opened: a call must not overtake the messages that open it. The code that takes a
 * hold releases it, whatever happens.
 * Invariant: no request waits while there is a free slot and no hold.
 */
import type { ConnectionSlots } from './connection-slots.js';

export class CallLane<Call extends { giveUp(): void }> {
  readonly #slots: ConnectionSlots;
  readonly #dispatch: (call: Call) => void;
  readonly #waiting = new Set<Call>();
  /** Answered, but the server keeps the stream open: closed first when a connection is needed. */
  readonly #lingering = new Set<Call>();
  #holds = 0;

  constructor(slots: ConnectionSlots, dispatch: (call: Call) => void) {
    this.#slots = slots;
    this.#dispatch = dispatch;
    slots.subscribe(
      () => this.#drain(),
      () => this.#spare(),
    );
  }

  add(call: Call): void {
    if (this.#holds === 0 && this.#slots.take()) return this.#dispatch(call);
    this.#waiting.add(call);
    this.#slots.want();
  }

  /** True when the call was waiting: none of it was sent, and none will be. */
  remove(call: Call): boolean {
    return this.#waiting.delete(call);
  }

  linger(call: Call): void {
    this.#lingering.add(call);
    if (this.#slots.isWanted) call.giveUp();
  }

  /** The connection of this call is free. */
  released(call: Call): void {
    this.#lingering.delete(call);
    this.#slots.release();
  }

  /** Pauses the queue until the returned function is called. Calling it again does nothing. */
  hold(): () => void {
    let isHeld = true;
    this.#holds++;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.#holds--;
      this.#drain();
    };
  }

  /** A copy of the waiting requests, in order: refusing them changes the queue. */
  get waiting(): Call[] {
    return [...this.#waiting];
  }

  close(): void {
    this.#waiting.clear();
    for (const call of this.#lingering) call.giveUp();
  }

  #spare(): void {
    const [lingering] = this.#lingering;
    lingering?.giveUp();
  }

  #drain(): void {
    for (const next of this.#waiting) {
      if (this.#holds > 0 || !this.#slots.take()) return;
      this.#waiting.delete(next);
      this.#dispatch(next);
    }
  }
}
