/**
 * Server requests that arrive before the client has sent a request, for example right after the handshake. They wait for the
 * first client request. Not here: servers shared by several clients, where such a request is refused at once (cause.ts).
 * Invariant: at most `queuedRequestsMax` are queued, none for longer than `queuedRequestMs`; then each is refused.
 */
import type { Cancel, Clock } from '../kernel/clock.js';
import type { InboundRequest } from './inbound-requests.js';
import type { PendingRequest } from './pending-requests.js';

export const queuedRequestsMax = 16;
export const queuedRequestMs = 5_000;

interface Queued {
  readonly request: InboundRequest;
  readonly assign: (owner: PendingRequest) => void;
  readonly cancelTimer: Cancel;
}

export class QueuedServerRequests {
  readonly #clock: Clock;
  readonly #refuse: (request: InboundRequest) => void;
  readonly #queue = new Set<Queued>();

  constructor(clock: Clock, refuse: (request: InboundRequest) => void) {
    this.#clock = clock;
    this.#refuse = refuse;
  }

  get size(): number {
    return this.#queue.size;
  }

  /** `assign` is called at most once, with the client request to which the server request is attributed. */
  add(request: InboundRequest, assign: (owner: PendingRequest) => void): void {
    const queued: Queued = {
      request,
      assign,
      cancelTimer: this.#clock.at(this.#clock.nowMs() + queuedRequestMs, () => {
        this.#queue.delete(queued);
        this.#refuse(request);
      }),
    };
    this.#queue.add(queued);
  }

  remove(request: InboundRequest): void {
    for (const queued of this.#queue) if (queued.request === request) this.#take(queued);
  }

  assignAll(owner: PendingRequest): void {
    for (const queued of [...this.#queue]) {
      // Answering one may end another.
      if (!this.#queue.has(queued)) continue;
      this.#take(queued);
      queued.assign(owner);
    }
  }

  #take(queued: Queued): void {
    queued.cancelTimer();
    this.#queue.delete(queued);
  }
}
