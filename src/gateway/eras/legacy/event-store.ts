/**
 * The events of one session that its client may ask for again after a lost connection.
 * Not here: `list_changed`, of which only the newest number is kept (event-stream.ts).
 *
 * Invariants: at most so many events and bytes per session, and so many bytes of all sessions; past a bound the oldest events
 * of this session are dropped, and an event larger than the whole bound is not kept at all. Bytes count what an event really
 * holds: its text, its own objects, and no memory that it shares with others.
 */
import { ByteBudget } from '../../../kernel/byte-budget.js';

export interface StoredEvent {
  readonly stream: number;
  readonly seq: number;
  /** Small texts are latin1 strings, one character per byte: a small Buffer would pin an 8 KiB slab or cost more than its text. */
  readonly text: Buffer | string;
}

/** The entry in the map, the event and the head of its text, as measured on Node 20 (about 100 bytes). */
export const eventOverheadBytes = 128;

/** Counts the stored events of all sessions, their bytes with the overhead of each event. */
export class EventBudget extends ByteBudget {
  events = 0;
}

export class EventStore {
  readonly #budget: EventBudget;
  readonly #eventsMax: number;
  readonly #bytesMax: number;
  /** By number, oldest first. Created with the first event, because most sessions never keep one. */
  #events: Map<number, StoredEvent> | undefined;
  #bytes = 0;

  constructor(budget: EventBudget, eventsMax: number, bytesMax: number) {
    this.#budget = budget;
    this.#eventsMax = eventsMax;
    this.#bytesMax = bytesMax;
  }

  get size(): number {
    return this.#events?.size ?? 0;
  }

  get bytes(): number {
    return this.#bytes;
  }

  keep(stream: number, seq: number, text: Buffer): void {
    const bytes = text.length + eventOverheadBytes;
    if (bytes > this.#bytesMax) return;
    while (!this.#fits(bytes) && this.size > 0) this.#dropOldest();
    if (!this.#fits(bytes)) return;
    this.#events ??= new Map();
    this.#events.set(seq, { stream, seq, text: ownText(text) });
    this.#count(1, bytes);
  }

  /** In order. */
  after(stream: number, seq: number): StoredEvent[] {
    return [...(this.#events?.values() ?? [])].filter((event) => event.stream === stream && event.seq > seq);
  }

  clear(): void {
    this.#count(-this.size, -this.#bytes);
    this.#events = undefined;
  }

  #fits(bytes: number): boolean {
    const { used, max } = this.#budget;
    return this.size < this.#eventsMax && this.#bytes + bytes <= this.#bytesMax && used + bytes <= max;
  }

  #dropOldest(): void {
    const [oldest] = this.#events?.values() ?? [];
    if (!oldest) return;
    this.#events?.delete(oldest.seq);
    this.#count(-1, -(oldest.text.length + eventOverheadBytes));
  }

  #count(events: number, bytes: number): void {
    this.#bytes += bytes;
    if (bytes > 0) this.#budget.take(bytes);
    else this.#budget.release(-bytes);
    this.#budget.events += events;
  }
}

/** Copies a text that is part of a shared slab, so that keeping the text does not keep the slab. */
const ownText = (text: Buffer): Buffer | string =>
  text.buffer.byteLength === text.length ? text : text.toString('latin1');
