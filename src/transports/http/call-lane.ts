/**
 * Which requests are on the wire and which wait for a connection, in order.
 * A hold keeps requests back while a session is opened: a call must not overtake the messages that open it. Each hold belongs
 * to the code that took it, which releases it whatever happens.
 * Invariant: no request waits while there is a free slot and no hold.
 */
import type { ConnectionSlots } from './connection-slots.js';
import type { PostCall } from './post-call.js';

export class CallLane {
  readonly #slots: ConnectionSlots;
  readonly #dispatch: (call: PostCall) => void;
  readonly #waiting = new Set<PostCall>();
  /** Answered, but the server keeps the stream open: first to go when a connection is needed. */
  readonly #lingering = new Set<PostCall>();
  #holds = 0;

  constructor(slots: ConnectionSlots, dispatch: (call: PostCall) => void) {
    this.#slots = slots;
    this.#dispatch = dispatch;
    slots.subscribe(
      () => this.#drain(),
      () => this.#spare(),
    );
  }

  add(call: PostCall): void {
    if (this.#holds === 0 && this.#slots.take()) return this.#dispatch(call);
    this.#waiting.add(call);
    this.#slots.want();
  }

  /** True when the call had been waiting: then nothing of it went out, nor will. */
  remove(call: PostCall): boolean {
    return this.#waiting.delete(call);
  }

  linger(call: PostCall): void {
    this.#lingering.add(call);
    if (this.#slots.isWanted) call.giveUp();
  }

  /** The connection of this call is free. */
  released(call: PostCall): void {
    this.#lingering.delete(call);
    this.#slots.release();
  }

  /** Keeps requests back until the returned function is called, once or more often. */
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

  /** The requests that wait now, in order: a copy, which stays as it is while they are refused. */
  get waiting(): PostCall[] {
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
