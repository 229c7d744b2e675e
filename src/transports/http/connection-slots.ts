/**
 * A number of connections that several lanes share. Waiting happens in the lanes and not in undici, because a request that
 * undici has queued cannot be taken back.
 * Invariant: at most `limit` requests hold a slot. A freed slot is offered to the lanes in the order in which they subscribed.
 */
export class ConnectionSlots {
  #free: number;
  readonly #lanes: (() => void)[] = [];

  constructor(limit: number) {
    this.#free = limit;
  }

  /** Subscribes a lane: `drain` starts what waits there while there are free slots. */
  subscribe(drain: () => void): void {
    this.#lanes.push(drain);
  }

  /** True when a slot was free; it is taken now. */
  take(): boolean {
    if (this.#free === 0) return false;
    this.#free--;
    return true;
  }

  release(): void {
    this.#free++;
    for (const drain of this.#lanes) {
      if (this.#free === 0) return;
      drain();
    }
  }
}
