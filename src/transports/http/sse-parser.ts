/**
 * Converts byte chunks to server-sent events. Not here: the meaning of events, reconnecting (get-stream.ts).
 * Lines may end in LF, CR or CRLF, also across chunks. The cost is linear in the bytes even for small chunks. The data of an
 * event within one chunk is not copied.
 * Invariant: at most `bytesMax` of one event are buffered. A larger event is reported once, with its first bytes, and ends
 * parsing.
 */
import { ByteBuffer } from '../../kernel/byte-buffer.js';

const LF = 0x0a;
const CR = 0x0d;
const COLON = 0x3a;
const SPACE = 0x20;

/** Bytes of a partial line that may be the field name, and do not count as data. */
const fieldNameBytesMax = 16;
/** Longer ids are ignored, because an id is sent back in a header. */
const idCharsMax = 1024;
const eventNameBytesMax = 1024;
const retryDigitsMax = 12;
const EMPTY = Buffer.alloc(0);

export interface SseEvent {
  /** Id to send back as `Last-Event-ID`. Empty: the last id is no longer valid. */
  readonly id: string | undefined;
  readonly event: string | undefined;
  readonly retryMs: number | undefined;
  /** Empty for an event that has only an id or a retry time. The buffer is not reused. */
  readonly data: Buffer;
}

export class SseParser {
  readonly #bytesMax: number;
  readonly #onEvent: (event: SseEvent) => void;
  readonly #onTooLarge: (bytes: number, head: Buffer) => void;
  /** Line whose end has not arrived. */
  readonly #line = new ByteBuffer();
  /** Data of an event with several data lines. */
  readonly #lines = new ByteBuffer();
  #data: Buffer | undefined;
  #id: string | undefined;
  #event: string | undefined;
  #retryMs: number | undefined;
  #skipLf = false;
  #firstLine = true;
  #dead = false;

  constructor(bytesMax: number, onEvent: (event: SseEvent) => void, onTooLarge: (bytes: number, head: Buffer) => void) {
    this.#bytesMax = bytesMax;
    this.#onEvent = onEvent;
    this.#onTooLarge = onTooLarge;
  }

  push(chunk: Buffer): void {
    let from = 0;
    if (this.#skipLf && chunk.length > 0) {
      if (chunk[0] === LF) from = 1;
      this.#skipLf = false;
    }
    // LF or CR is searched again only after the last hit was used: a chunk without CR is searched for CR once, not per line.
    let lf = -2;
    let cr = -2;
    while (!this.#dead && from < chunk.length) {
      if (lf !== -1 && lf < from) lf = chunk.indexOf(LF, from);
      if (cr !== -1 && cr < from) cr = chunk.indexOf(CR, from);
      const end = cr < 0 || (lf >= 0 && lf < cr) ? lf : cr;
      if (end < 0) {
        this.#line.add(chunk, from, chunk.length);
        this.#checkSize();
        return;
      }
      if (this.#line.length > 0) {
        this.#line.add(chunk, from, end);
        const line = this.#line.take();
        this.#endLine(line, 0, line.length);
      } else {
        this.#endLine(chunk, from, end);
      }
      from = end + 1;
      if (end === cr) {
        if (from === chunk.length) this.#skipLf = true;
        else if (chunk[from] === LF) from++;
      }
    }
  }

  /**
   * The stream ended cleanly. An event without its final blank line is delivered; the decoder checks that its data is complete.
   * An event with an id is not delivered, because a resumed stream sends it again.
   */
  end(): void {
    if (this.#dead) return;
    if (this.#line.length > 0) {
      const line = this.#line.take();
      this.#endLine(line, 0, line.length);
    }
    if (this.#data !== undefined && this.#id === undefined) this.#endEvent();
    this.#dead = true;
  }

  #endLine(bytes: Buffer, lineStart: number, end: number): void {
    let start = lineStart;
    if (this.#firstLine) {
      this.#firstLine = false;
      if (end - start >= 3 && bytes[start] === 0xef && bytes[start + 1] === 0xbb && bytes[start + 2] === 0xbf)
        start += 3;
    }
    if (start === end) return this.#endEvent();
    if (bytes[start] === COLON) return;
    let nameEnd = start;
    // Known names are short, so a long line without a colon is not searched to its end.
    while (nameEnd < end && nameEnd - start < fieldNameBytesMax && bytes[nameEnd] !== COLON) nameEnd++;
    let value = Math.min(nameEnd + 1, end);
    if (value < end && bytes[value] === SPACE) value++;
    switch (nameEnd - start) {
      case 4:
        if (bytes.toString('latin1', start, nameEnd) === 'data') this.#addData(bytes, value, end);
        return;
      case 2:
        if (bytes.toString('latin1', start, nameEnd) === 'id') this.#id = readId(bytes, value, end) ?? this.#id;
        return;
      case 5: {
        const name = bytes.toString('latin1', start, nameEnd);
        if (name === 'event') this.#event = bytes.toString('utf8', value, Math.min(end, value + eventNameBytesMax));
        else if (name === 'retry') this.#retryMs = readRetry(bytes, value, end) ?? this.#retryMs;
      }
    }
  }

  #addData(bytes: Buffer, from: number, to: number): void {
    if (this.#data === undefined) {
      // A view is enough, because chunks of a socket and buffered lines are never reused.
      this.#data = bytes.subarray(from, to);
    } else {
      if (this.#lines.length === 0) this.#lines.add(this.#data, 0, this.#data.length);
      this.#lines.addByte(LF);
      this.#lines.add(bytes, from, to);
    }
    this.#checkSize();
  }

  #endEvent(): void {
    const data = this.#lines.length > 0 ? this.#lines.take() : this.#data;
    const id = this.#id;
    const event = this.#event;
    const retryMs = this.#retryMs;
    this.#data = this.#id = this.#event = this.#retryMs = undefined;
    if (data === undefined && id === undefined && retryMs === undefined) return;
    this.#onEvent({ id, event, retryMs, data: data ?? EMPTY });
  }

  #checkSize(): void {
    const dataBytes = Math.max(this.#lines.length, this.#data?.length ?? 0);
    const bytes = dataBytes + Math.max(0, this.#line.length - fieldNameBytesMax);
    if (bytes <= this.#bytesMax) return;
    this.#dead = true;
    const line = this.#line.take();
    const lines = this.#lines.take();
    const head = lines.length > 0 ? lines : (this.#data ?? withoutFieldName(line));
    this.#data = undefined;
    this.#onTooLarge(bytes, head);
  }
}

function withoutFieldName(line: Buffer): Buffer {
  if (line.toString('latin1', 0, 5) !== 'data:') return EMPTY;
  return line.subarray(line[5] === SPACE ? 6 : 5);
}

function readId(bytes: Buffer, from: number, to: number): string | undefined {
  if (to - from > idCharsMax) return undefined;
  for (let i = from; i < to; i++) {
    const byte = bytes[i] as number;
    if (byte < 0x20 || byte > 0x7e) return undefined;
  }
  return bytes.toString('latin1', from, to);
}

function readRetry(bytes: Buffer, from: number, to: number): number | undefined {
  if (to === from || to - from > retryDigitsMax) return undefined;
  const text = bytes.toString('latin1', from, to);
  return /^\d+$/.test(text) ? Number(text) : undefined;
}
