/**
 * One response that is an event stream, and the keep-alive comments of all open streams.
 * Invariants: nothing is written after the end. A client is disconnected if it has more unread bytes than the bound, or reads
 * nothing for too long.
 */
import type { ServerResponse } from 'node:http';
import type { Cancel, Clock } from '../../kernel/clock.js';
import type { JsonText } from '../../wire/channel.js';
import { joinedParts } from '../../wire/json-edit.js';
import type { HttpLimits } from './http-limits.js';
import { cutWhenStalled, type HeaderList } from './reply.js';

const streamHeaders: HeaderList = [
  ...['Content-Type', 'text/event-stream', 'Cache-Control', 'no-store', 'X-Accel-Buffering', 'no'],
];
const comment = ':\n\n';
const lineEnd = /[\r\n]/g;

/** The text of one event. A line break would end the data line; in JSON it is only white space, so a space replaces it. */
export function eventText(id: string | undefined, parts: readonly JsonText[]): Buffer {
  const head = id === undefined ? 'event: message\ndata: ' : `id: ${id}\nevent: message\ndata: `;
  const all = [head, ...parts.map(onOneLine), '\n\n'];
  return joinedParts(all);
}

function onOneLine(part: JsonText): JsonText {
  if (typeof part === 'string') return part.replace(lineEnd, ' ');
  if (!part.includes(0x0a) && !part.includes(0x0d)) return part;
  return part.map((byte) => (byte === 0x0a || byte === 0x0d ? 0x20 : byte));
}

export class SseStream {
  readonly #response: ServerResponse;
  readonly #limits: HttpLimits;
  readonly #beat: StreamBeat;
  #isOpen = true;
  /** Called when a slow client has read everything that was buffered for it. */
  onDrain: (() => void) | undefined;
  /** Called once, when either side ends the stream. */
  onEnd: (() => void) | undefined;

  /** `closed` is called once, when the client ends the stream. */
  constructor(
    response: ServerResponse,
    limits: HttpLimits,
    beat: StreamBeat,
    headers: HeaderList,
    closed?: () => void,
  ) {
    this.#response = response;
    this.#limits = limits;
    this.#beat = beat;
    response.writeHead(200, [...streamHeaders, ...headers]);
    // A write to a connection that is being lost is not an internal error.
    response.on('error', () => {});
    response.on('drain', () => {
      response.socket?.setTimeout(0);
      this.onDrain?.();
    });
    response.on('close', () => {
      if (!this.#isOpen) return;
      this.#leave();
      closed?.();
    });
    beat.add(this);
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** True if the client reads slowly, so that writes are buffered in memory. */
  get isStalled(): boolean {
    return this.#response.writableNeedDrain;
  }

  write(text: Buffer | string): boolean {
    if (!this.#isOpen) return false;
    if (this.#response.writableLength > this.#limits.bufferedBytes) {
      this.#response.destroy();
      return false;
    }
    if (!this.#response.write(text)) cutWhenStalled(this.#response, this.#limits.writeStallMs);
    return true;
  }

  /** Sends the headers before the first event, because clients wait for them. */
  flush(): void {
    if (this.#isOpen) this.#response.flushHeaders();
  }

  beat(): void {
    if (this.#response.writableLength === 0) this.write(comment);
  }

  end(): void {
    if (!this.#isOpen) return;
    this.#leave();
    this.#response.end();
    cutWhenStalled(this.#response, this.#limits.writeStallMs);
  }

  #leave(): void {
    this.#isOpen = false;
    this.#beat.delete(this);
    this.onEnd?.();
  }
}

/** One timer for all open streams; no timer runs while no stream is open. */
export class StreamBeat {
  readonly #clock: Clock;
  readonly #everyMs: number;
  readonly #streams = new Set<SseStream>();
  #cancel: Cancel | undefined;

  constructor(clock: Clock, everyMs: number) {
    this.#clock = clock;
    this.#everyMs = everyMs;
  }

  get size(): number {
    return this.#streams.size;
  }

  add(stream: SseStream): void {
    this.#streams.add(stream);
    this.#cancel ??= this.#clock.at(this.#clock.nowMs() + this.#everyMs, () => this.#tick());
  }

  delete(stream: SseStream): void {
    this.#streams.delete(stream);
    if (this.#streams.size > 0) return;
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #tick(): void {
    this.#cancel = undefined;
    for (const stream of [...this.#streams]) stream.beat();
    if (this.#streams.size > 0 && !this.#cancel)
      this.#cancel = this.#clock.at(this.#clock.nowMs() + this.#everyMs, () => this.#tick());
  }
}
