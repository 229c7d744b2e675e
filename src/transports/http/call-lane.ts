/**
 * The queue of requests for a connection, in order.
 * A hold pauses the queue while a session is opened: a call must not overtake the messages that open it. The code that takes a
 * hold releases it, whatever happens.
 * Invariant: no request waits while there is a free slot and no hold.
 */
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

/**
 * A number of connections that several queues share. Requests wait in these queues and not in undici, which cannot give a queued
 * request back. A freed slot is offered to the queues in the order in which they subscribed.
 */
export class ConnectionSlots {
  #free: number;
  readonly #drains: (() => void)[] = [];
  readonly #spares: (() => void)[] = [];
  #isWanted = false;

  constructor(limit: number) {
    this.#free = limit;
  }

  /** `drain` sends waiting requests while there are free slots. `spare` gives up a slot of a request that is already answered. */
  subscribe(drain: () => void, spare?: () => void): void {
    this.#drains.push(drain);
    if (spare) this.#spares.push(spare);
  }

  /** A queue may be waiting for a slot: answered requests should give theirs up. */
  get isWanted(): boolean {
    return this.#isWanted;
  }

  /** A request has to wait. */
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
    for (const drain of this.#drains) {
      if (this.#free === 0) return;
      drain();
    }
    if (this.#free > 0) this.#isWanted = false;
  }
}
