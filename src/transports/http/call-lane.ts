/**
 * Which calls are on the wire and which wait for a connection, in order.
 * Waiting happens here and not in undici, because what undici has queued cannot be taken back.
 * While the lane is held only what opens a session goes out: a call must not overtake the words that open it.
 * Invariant: at most `limit` calls are on the wire, and none waits while there is room and the lane is not held.
 */
import type { PostCall } from './post-call.js';

export class CallLane {
  readonly #limit: number;
  readonly #dispatch: (call: PostCall) => void;
  readonly #waiting = new Set<PostCall>();
  /** Answered, but the server keeps the stream open: first to go when a connection is needed. */
  readonly #lingering = new Set<PostCall>();
  #onWire = 0;
  #isHeld = false;

  constructor(limit: number, dispatch: (call: PostCall) => void) {
    this.#limit = limit;
    this.#dispatch = dispatch;
  }

  add(call: PostCall): void {
    const mayGo = !this.#isHeld || call.frame.method === 'initialize';
    if (mayGo && this.#onWire < this.#limit) return this.#go(call);
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
    this.#drain();
  }

  hold(): void {
    this.#isHeld = true;
  }

  letGo(): void {
    this.#isHeld = false;
    this.#drain();
  }

  close(): void {
    this.#waiting.clear();
    for (const call of this.#lingering) call.giveUp();
  }

  #drain(): void {
    for (const next of this.#waiting) {
      if (this.#isHeld || this.#onWire >= this.#limit) return;
      this.#waiting.delete(next);
      this.#go(next);
    }
  }

  #go(call: PostCall): void {
    this.#onWire++;
    this.#dispatch(call);
  }
}
