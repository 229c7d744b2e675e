/**
 * FIFO queue of requests that wait for a connection.
 * A hold pauses the queue while a session is opened, because a call must not overtake the messages that open it.
 * Invariant: no request waits while a slot is free and no hold is active.
 */
export class CallQueue<Call extends { giveUp(): void }> {
  readonly #slots: ConnectionSlots;
  readonly #dispatch: (call: Call) => void;
  readonly #waiting = new Set<Call>();
  /** Answered calls whose stream the server has not closed. The lane closes these first when a connection is needed. */
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

  /** Returns true if the call was waiting. No byte of it was sent, and none will be. */
  remove(call: Call): boolean {
    return this.#waiting.delete(call);
  }

  linger(call: Call): void {
    this.#lingering.add(call);
    if (this.#slots.isWanted) call.giveUp();
  }

  released(call: Call): void {
    this.#lingering.delete(call);
    this.#slots.release();
  }

  /** Pauses the queue until the returned function is called, which every path must do. Further calls do nothing. */
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

  /** A copy, because failing the calls changes the queue. */
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
 * Connections that several queues share. Requests wait in these queues, because undici cannot return a queued request.
 * A freed slot is offered to the queues in the order of their subscription.
 */
export class ConnectionSlots {
  #free: number;
  readonly #drains: (() => void)[] = [];
  readonly #spares: (() => void)[] = [];
  #isWanted = false;

  constructor(limit: number) {
    this.#free = limit;
  }

  /** `drain` sends waiting requests while slots are free. `spare` closes the stream of an answered request to free its slot. */
  subscribe(drain: () => void, spare?: () => void): void {
    this.#drains.push(drain);
    if (spare) this.#spares.push(spare);
  }

  /** True while a queue may be waiting for a slot: answered requests should free theirs. */
  get isWanted(): boolean {
    return this.#isWanted;
  }

  want(): void {
    if (this.#free > 0) return;
    this.#isWanted = true;
    for (const spare of this.#spares) spare();
  }

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
