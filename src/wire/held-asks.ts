/**
 * What a server asks before its one client has asked anything of it, right after the handshake say: kept for a moment, for the
 * first request that it can be brought to.
 * Not here: whose it is where several clients share a server (cause.ts): there it is refused at once.
 *
 * Invariant: at most `heldAsksMax` are kept, and none for longer than `heldAskMs`; then each is refused.
 */
import type { Cancel, Clock } from '../kernel/clock.js';
import type { InboundRequest } from './inbound-request.js';

export const heldAsksMax = 16;
export const heldAskMs = 5_000;

interface Held<Owner> {
  readonly request: InboundRequest;
  readonly give: (owner: Owner) => void;
  readonly cancel: Cancel;
}

export class HeldAsks<Owner> {
  readonly #clock: Clock;
  readonly #refuse: (request: InboundRequest) => void;
  readonly #held = new Set<Held<Owner>>();

  constructor(clock: Clock, refuse: (request: InboundRequest) => void) {
    this.#clock = clock;
    this.#refuse = refuse;
  }

  get size(): number {
    return this.#held.size;
  }

  /** `give` is told once whom it is brought to, if there is somebody in time. */
  hold(request: InboundRequest, give: (owner: Owner) => void): void {
    const held: Held<Owner> = {
      request,
      give,
      cancel: this.#clock.at(this.#clock.nowMs() + heldAskMs, () => {
        this.#held.delete(held);
        this.#refuse(request);
      }),
    };
    this.#held.add(held);
  }

  /** It was answered, or nobody wants the answer any more. */
  drop(request: InboundRequest): void {
    for (const held of this.#held) if (held.request === request) this.#take(held);
  }

  /** All of them, in their order; none is held from here on. */
  giveAll(owner: Owner): void {
    for (const held of [...this.#held]) {
      // Answering one may end another.
      if (!this.#held.has(held)) continue;
      this.#take(held);
      held.give(owner);
    }
  }

  #take(held: Held<Owner>): void {
    held.cancel();
    this.#held.delete(held);
  }
}
