/**
 * The events of one session that its client may ask for again after a lost connection.
 * Invariants: at most so many events and bytes per session, and so many bytes of all sessions; past a bound the oldest of
 * this session go, and what is larger than all of it is not kept at all.
 */
export interface StoredEvent {
  readonly stream: number;
  readonly seq: number;
  readonly text: Buffer;
}

/** Bytes that all sessions share. */
export class EventBudget {
  readonly max: number;
  used = 0;

  constructor(max: number) {
    this.max = max;
  }
}

export class EventStore {
  readonly #budget: EventBudget;
  readonly #eventsMax: number;
  readonly #bytesMax: number;
  /** Oldest first; those before `#first` are gone. */
  #events: (StoredEvent | undefined)[] = [];
  #first = 0;
  #bytes = 0;

  constructor(budget: EventBudget, eventsMax: number, bytesMax: number) {
    this.#budget = budget;
    this.#eventsMax = eventsMax;
    this.#bytesMax = bytesMax;
  }

  get size(): number {
    return this.#events.length - this.#first;
  }

  get bytes(): number {
    return this.#bytes;
  }

  keep(stream: number, seq: number, text: Buffer): void {
    const fits = (): boolean =>
      this.size < this.#eventsMax &&
      this.#bytes + text.length <= this.#bytesMax &&
      this.#budget.used + text.length <= this.#budget.max;
    if (text.length > this.#bytesMax) return;
    while (!fits() && this.size > 0) this.#dropOldest();
    if (!fits()) return;
    this.#events.push({ stream, seq, text });
    this.#bytes += text.length;
    this.#budget.used += text.length;
  }

  /** In order. */
  after(stream: number, seq: number): StoredEvent[] {
    return this.#events
      .slice(this.#first)
      .filter((event): event is StoredEvent => event?.stream === stream && event.seq > seq);
  }

  clear(): void {
    this.#budget.used -= this.#bytes;
    this.#bytes = 0;
    this.#events = [];
    this.#first = 0;
  }

  #dropOldest(): void {
    const bytes = this.#events[this.#first]?.text.length ?? 0;
    this.#events[this.#first++] = undefined;
    this.#bytes -= bytes;
    this.#budget.used -= bytes;
    // Moving the rest up now and then costs less per event than at every event.
    if (this.#first < this.#eventsMax) return;
    this.#events = this.#events.slice(this.#first);
    this.#first = 0;
  }
}
