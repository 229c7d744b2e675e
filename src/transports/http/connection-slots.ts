/**
 * A number of connections that several lanes share. Waiting happens in the lanes and not in undici, because a request that
 * undici has queued cannot be taken back.
 * Invariant: at most `limit` requests hold a slot. A freed slot is offered to the lanes in the order in which they subscribed.
 */
export class ConnectionSlots {
  #free: number;
  readonly #lanes: (() => void)[] = [];
  readonly #spares: (() => void)[] = [];
  #isWanted = false;

  constructor(limit: number) {
    this.#free = limit;
  }

  /**
   * Subscribes a lane: `drain` starts what waits there while there are free slots. `spare` gives up a slot that is held without
   * need, if the lane has one.
   */
  subscribe(drain: () => void, spare?: () => void): void {
    this.#lanes.push(drain);
    if (spare) this.#spares.push(spare);
  }

  /** Something may be waiting for a slot in one of the lanes: no slot should be held without need. */
  get isWanted(): boolean {
    return this.#isWanted;
  }

  /** A lane has something that waits. */
  want(): void {
    if (this.#free > 0) return;
    this.#isWanted = true;
    for (const spare of this.#spares) spare();
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
    if (this.#free > 0) this.#isWanted = false;
  }
}
