/**
 * One event stream of a legacy session, over as many connections as it takes, and the store of its events: a client that lost its
 * connection goes on after the last event id that it read.
 *
 * Invariants: an event is stored before it is written; one connection reads a stream at a time; a stream that was never read stores
 * nothing. A `list_changed` is not stored: at most one of each list is pending, and a missed one is written again under its number.
 * Events and bytes are bounded for each session and for all; the oldest events of the session are dropped first.
 */
import { ByteBudget } from '../../../kernel/byte-budget.js';
import type { JsonText } from '../../../wire/frame.js';
import { eventText, type SseStream } from '../../http/sse-stream.js';
import { notificationText } from '../../messages/rpc-text.js';

/** Counts the events of a session, over all of its streams. */
export interface EventCount {
  last: number;
}

const idText = /^([0-9]{1,15})-([0-9]{1,15})$/;

/** `<stream>-<event>`; undefined when it is none of ours. */
export function parseEventId(text: string): { stream: number; seq: number } | undefined {
  const match = idText.exec(text);
  return match ? { stream: Number(match[1]), seq: Number(match[2]) } : undefined;
}

/** The `list_changed` notifications of a stream, by their methods. */
interface Announcements {
  /** Not written yet. */
  readonly pending: Set<string>;
  /** The number under which each was last written. */
  readonly written: Map<string, number>;
}

export class EventStream {
  readonly no: number;
  readonly #store: EventStore;
  readonly #count: EventCount;
  #reader: SseStream | undefined;
  #wasRead = false;
  /** The last event that was written to a reader. */
  #toldSeq: number;
  #announcements: Announcements | undefined;

  constructor(no: number, store: EventStore, count: EventCount) {
    this.no = no;
    this.#store = store;
    this.#count = count;
    this.#toldSeq = count.last;
  }

  get isRead(): boolean {
    return this.#reader?.isOpen ?? false;
  }

  send(parts: readonly JsonText[]): void {
    // No client could ask for this event again: it learns the ids of a stream by reading the stream.
    if (!this.#wasRead) return;
    const seq = ++this.#count.last;
    const text = this.#text(seq, parts);
    this.#store.add(this.no, seq, text);
    if (this.#reader?.write(text)) this.#toldSeq = seq;
  }

  /**
   * Sends a notification without content of its own, such as `list_changed`. If there is no reader, or a slow one, it is sent
   * once when the reader has caught up, however often it was announced meanwhile.
   */
  announce(method: string): void {
    this.#announcements ??= { pending: new Set(), written: new Map() };
    this.#announcements.pending.add(method);
    if (this.#reader && !this.#reader.isStalled) this.#writePending(this.#reader);
  }

  /** Replaces the reader. The new one gets the events after `afterSeq`, by default after the last event that was written. */
  attach(reader: SseStream, afterSeq = this.#toldSeq): void {
    this.#reader?.end();
    this.#reader = reader;
    this.#wasRead = true;
    for (const { seq, text } of this.#after(afterSeq)) if (reader.write(text)) this.#toldSeq = seq;
    this.#writePending(reader);
    reader.onDrain = () => this.#writePending(reader);
    // A session may outlive its connections by far, and must not keep their responses in memory.
    reader.onEnd = () => {
      if (this.#reader === reader) this.#reader = undefined;
    };
  }

  /** An event without data, for its id alone: a client that loses the connection now has where to go on from. */
  primer(retryMs: number): string {
    return `id: ${this.no}-${this.#toldSeq}\nretry: ${retryMs}\ndata: \n\n`;
  }

  end(): void {
    this.#reader?.end();
    this.#reader = undefined;
  }

  #writePending(reader: SseStream): void {
    if (reader !== this.#reader || !this.#announcements) return;
    const { pending, written } = this.#announcements;
    for (const method of pending) {
      const seq = this.#count.last + 1;
      if (!reader.write(this.#text(seq, notificationText(method, undefined)))) return;
      this.#count.last = this.#toldSeq = seq;
      pending.delete(method);
      written.set(method, seq);
    }
  }

  /** Stored events and written announcements after this one, in order. Pending announcements are left to `#writePending`. */
  #after(afterSeq: number): { readonly seq: number; readonly text: Buffer }[] {
    const events = this.#store.after(this.no, afterSeq).map(({ seq, text }) => ({ seq, text: bytesOf(text) }));
    for (const [method, seq] of this.#announcements?.written ?? [])
      if (seq > afterSeq && !this.#announcements?.pending.has(method))
        events.push({ seq, text: this.#text(seq, notificationText(method, undefined)) });
    return events.sort((a, b) => a.seq - b.seq);
  }

  #text(seq: number, parts: readonly JsonText[]): Buffer {
    return eventText(`${this.no}-${seq}`, parts);
  }
}

const bytesOf = (text: Buffer | string): Buffer => (typeof text === 'string' ? Buffer.from(text, 'latin1') : text);

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

  add(stream: number, seq: number, text: Buffer): void {
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
