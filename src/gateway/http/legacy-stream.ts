/**
 * One stream of events of a legacy session, over as many connections as it takes: each event has an id, and a client that
 * lost its connection goes on after the last one it saw.
 * Invariants: an event is kept before it is written; a stream is read by one connection at a time.
 */
import type { JsonText } from '../../wire/frame.js';
import type { EventStore } from './event-store.js';
import { eventText, type SseStream } from './sse-stream.js';

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

export class LegacyStream {
  readonly no: number;
  readonly #store: EventStore;
  readonly #count: EventCount;
  #reader: SseStream | undefined;
  /** The last event that was written to a reader. */
  #toldSeq: number;

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
    const seq = ++this.#count.last;
    const text = eventText(`${this.no}-${seq}`, parts);
    this.#store.keep(this.no, seq, text);
    if (this.#reader?.write(text)) this.#toldSeq = seq;
  }

  /** Whoever read it before is let go. The new one gets what came after the given event, or after the last that was told. */
  attach(reader: SseStream, afterSeq = this.#toldSeq): void {
    this.#reader?.end();
    this.#reader = reader;
    for (const event of this.#store.after(this.no, afterSeq)) if (reader.write(event.text)) this.#toldSeq = event.seq;
  }

  /** An event without data, for its id alone: a client that loses the connection now has where to go on from. */
  primer(retryMs: number): string {
    return `id: ${this.no}-${this.#toldSeq}\nretry: ${retryMs}\ndata: \n\n`;
  }

  end(): void {
    this.#reader?.end();
    this.#reader = undefined;
  }
}
