/**
 * One event stream of a legacy session, and the store of its events. A client that lost its connection resumes after the last
 * event id that it read.
 * Invariants: an event is stored before it is written. A stream has at most one reader, and stores nothing before its first reader.
 * A `list_changed` is not stored: at most one per list is pending, and a missed one is written again with its old number.
 * Events and bytes are bounded per session and in total; the oldest events of the session are dropped first.
 */
import { ByteBudget } from '../../../kernel/byte-budget.js';
import type { JsonText } from '../../../wire/channel.js';
import { notificationText } from '../../exchange.js';
import { eventText, type SseStream } from '../../http/sse-stream.js';

/** Last event number of a session, shared by all its streams. */
export interface EventCount {
  last: number;
}

const idText = /^([0-9]{1,15})-([0-9]{1,15})$/;

/** Parses `<stream>-<event>`; undefined: the text has another format. */
export function parseEventId(text: string): { stream: number; seq: number } | undefined {
  const match = idText.exec(text);
  return match ? { stream: Number(match[1]), seq: Number(match[2]) } : undefined;
}

export class EventStream {
  readonly no: number;
  readonly #store: EventStore;
  readonly #count: EventCount;
  #reader: SseStream | undefined;
  #wasRead = false;
  /** Number of the last event written to a reader. */
  #writtenSeq: number;
  /** Methods of `list_changed` notifications to be written. An array is smaller than a Set, and may last as long as the session. */
  #pending: string[] | undefined;
  /** Event number of the last write of each such method. */
  #written: Map<string, number> | undefined;

  constructor(no: number, store: EventStore, count: EventCount) {
    this.no = no;
    this.#store = store;
    this.#count = count;
    this.#writtenSeq = count.last;
  }

  get isRead(): boolean {
    return this.#reader?.isOpen ?? false;
  }

  send(parts: readonly JsonText[]): void {
    // No client could resume after this event: a client gets event ids only by reading the stream.
    if (!this.#wasRead) return;
    const seq = ++this.#count.last;
    const text = this.#text(seq, parts);
    this.#store.add(this.no, seq, text);
    if (this.#reader?.write(text)) this.#writtenSeq = seq;
  }

  /**
   * Sends a notification without params, such as `list_changed`. Without a reader, or with a slow one, repeated notifications
   * are merged into one, which is sent when the reader has caught up.
   */
  announce(method: string): void {
    if (!this.#pending) this.#pending = [method];
    else if (!this.#pending.includes(method)) this.#pending.push(method);
    if (this.#reader && !this.#reader.isStalled) this.#writePending(this.#reader);
  }

  /** Replaces the reader. The new reader gets the events after `afterSeq`. */
  attach(reader: SseStream, afterSeq = this.#writtenSeq): void {
    this.#reader?.end();
    this.#reader = reader;
    this.#wasRead = true;
    for (const { seq, text } of this.#after(afterSeq)) if (reader.write(text)) this.#writtenSeq = seq;
    this.#writePending(reader);
    reader.onDrain = () => this.#writePending(reader);
    // A session outlives its connections and must not keep their responses in memory.
    reader.onEnd = () => {
      if (this.#reader === reader) this.#reader = undefined;
    };
  }

  /** An event without data. Its id lets a client resume if the connection breaks before the first real event. */
  primer(retryMs: number): string {
    return `id: ${this.no}-${this.#writtenSeq}\nretry: ${retryMs}\ndata: \n\n`;
  }

  end(): void {
    this.#reader?.end();
    this.#reader = undefined;
  }

  #writePending(reader: SseStream): void {
    if (reader !== this.#reader) return;
    for (let method = this.#pending?.[0]; method !== undefined; method = this.#pending?.[0]) {
      const seq = this.#count.last + 1;
      if (!reader.write(this.#text(seq, notificationText(method, undefined)))) return;
      this.#count.last = this.#writtenSeq = seq;
      this.#written ??= new Map();
      this.#written.set(method, seq);
      this.#pending?.shift();
    }
    this.#pending = undefined;
  }

  /** Stored events and written announcements, sorted by number. `#writePending` handles pending announcements. */
  #after(afterSeq: number): { readonly seq: number; readonly text: Buffer }[] {
    const events = this.#store.after(this.no, afterSeq).map(({ seq, text }) => ({ seq, text: bytesOf(text) }));
    for (const [method, seq] of this.#written ?? [])
      if (seq > afterSeq && !this.#pending?.includes(method))
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
  /** Small texts are latin1 strings. A small Buffer would keep an 8 KiB slab in memory, or cost more than its text. */
  readonly text: Buffer | string;
}

/** Map entry, event object and string header: about 100 bytes as measured on Node 20. */
export const eventOverheadBytes = 128;

/** Events and bytes stored by all sessions; the bytes include `eventOverheadBytes` per event. */
export class EventBudget extends ByteBudget {
  events = 0;
}

export class EventStore {
  readonly #budget: EventBudget;
  readonly #eventsMax: number;
  readonly #bytesMax: number;
  /** Events by number, oldest first. Created on demand: most sessions store none. */
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

  /** The events are sorted by number. */
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

/** Copies a text that is part of a shared slab: a stored view would keep the slab in memory. */
const ownText = (text: Buffer): Buffer | string =>
  text.buffer.byteLength === text.length ? text : text.toString('latin1');
