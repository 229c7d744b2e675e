/**
 * Which calls are on the wire and which wait for a connection, in order.
 * Waiting happens here and not in undici, because what undici has queued cannot be taken back.
 * Invariant: at most `limit` calls are on the wire, and none waits while there is room.
 */
import type { PostCall } from './post-call.js';

export class CallLane {
  readonly #limit: number;
  readonly #dispatch: (call: PostCall) => void;
  readonly #waiting = new Set<PostCall>();
  /** Answered, but the server keeps the stream open: first to go when a connection is needed. */
  readonly #lingering = new Set<PostCall>();
  #onWire = 0;

  constructor(limit: number, dispatch: (call: PostCall) => void) {
    this.#limit = limit;
    this.#dispatch = dispatch;
  }

  add(call: PostCall): void {
    if (this.#onWire < this.#limit) return this.#go(call);
    this.#waiting.add(call);
    const [lingering] = this.#lingering;
    lingering?.giveUp();
  }

  /** True when the call had been waiting: then nothing of it went out, nor will. */
  remove(call: PostCall): boolean {
    return this.#waiting.delete(call);
  }

  linger(call: PostCall): void {
    this.#lingering.add(call);
  }

  /** The connection of this call is free. */
  released(call: PostCall): void {
    this.#lingering.delete(call);
    this.#onWire--;
    for (const next of this.#waiting) {
      if (this.#onWire >= this.#limit) return;
      this.#waiting.delete(next);
      this.#go(next);
    }
  }

  close(): void {
    this.#waiting.clear();
    for (const call of this.#lingering) call.giveUp();
  }

  #go(call: PostCall): void {
    this.#onWire++;
    this.#dispatch(call);
  }
}
