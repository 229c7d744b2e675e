/**
 * Byte chunks → lines. Each byte is read once; a line that lies within one chunk is not copied.
 * A line above `maxBytes` ends the framer. Its first bytes are reported at once, and its last bytes, on request, at its end.
 * Invariant: at most `maxBytes` of an unfinished line are buffered.
 */
import { ByteBuffer } from '../kernel/byte-buffer.js';
import { oversizedEdgeBytes } from './oversized-answer.js';

const NEWLINE = 0x0a;
/** An oversized line is read up to this many times the limit to find its end. */
const skippedTimesMax = 8;

export class LineFramer {
  readonly #maxBytes: number;
  readonly #onLine: (bytes: Buffer, start: number, end: number) => void;
  readonly #onTooLong: (bytes: number, head: Buffer) => void;
  /** The line that has not ended yet. */
  readonly #line = new ByteBuffer();
  #dead = false;
  /** Set while an oversized line is read to its end. */
  #skipping: { tail: Buffer; bytes: number; readonly onTail: (tail: Buffer) => void } | undefined;

  constructor(
    maxBytes: number,
    onLine: (bytes: Buffer, start: number, end: number) => void,
    onTooLong: (bytes: number, head: Buffer) => void,
  ) {
    this.#maxBytes = maxBytes;
    this.#onLine = onLine;
    this.#onTooLong = onTooLong;
  }

  /** Bytes of the line that has not ended yet. */
  get pendingBytes(): number {
    return this.#line.length;
  }

  push(chunk: Buffer): void {
    if (this.#skipping) return this.#skip(chunk, 0);
    let from = 0;
    while (!this.#dead && from < chunk.length) {
      const newline = chunk.indexOf(NEWLINE, from);
      if (newline < 0) return this.#buffer(chunk, from, chunk.length);
      if (this.#line.length > 0) {
        this.#buffer(chunk, from, newline);
        if (!this.#dead) this.#finish();
      } else if (newline - from > this.#maxBytes) {
        this.#overflow(newline - from, chunk, from);
      } else {
        this.#onLine(chunk, from, newline);
      }
      from = newline + 1;
    }
  }

  /**
   * Only from within `onTooLong`: reads the oversized line to its end, or to a bound, and reports its last bytes once.
   * The report may come before `push` returns.
   */
  skipToEnd(onTail: (tail: Buffer) => void): void {
    this.#skipping = { tail: Buffer.alloc(0), bytes: 0, onTail };
  }

  /** The stream is over. The rest may be a whole message that only lacks its newline. */
  end(): void {
    if (!this.#dead && this.#line.length > 0) this.#finish();
    this.#dead = true;
  }

  #buffer(chunk: Buffer, from: number, to: number): void {
    const bytes = this.#line.length + to - from;
    if (bytes > this.#maxBytes) this.#overflow(bytes, chunk, from);
    else this.#line.add(chunk, from, to);
  }

  #finish(): void {
    const line = this.#line.take();
    this.#onLine(line, 0, line.length);
  }

  /** `chunk` has the bytes of the line from `from` on that are not buffered. */
  #overflow(bytes: number, chunk: Buffer, from: number): void {
    const rest = chunk.subarray(from, Math.min(chunk.length, from + oversizedEdgeBytes));
    const head = Buffer.concat([this.#line.take().subarray(0, oversizedEdgeBytes), rest]);
    this.#dead = true;
    this.#onTooLong(bytes, head.subarray(0, oversizedEdgeBytes));
    if (this.#skipping) this.#skip(chunk, from);
  }

  #skip(chunk: Buffer, from: number): void {
    const skipping = this.#skipping;
    if (!skipping) return;
    const newline = chunk.indexOf(NEWLINE, from);
    const end = newline < 0 ? chunk.length : newline;
    const last = Buffer.concat([skipping.tail, chunk.subarray(Math.max(from, end - oversizedEdgeBytes), end)]);
    skipping.tail = last.subarray(-oversizedEdgeBytes);
    skipping.bytes += end - from;
    if (newline < 0 && skipping.bytes <= skippedTimesMax * this.#maxBytes) return;
    this.#skipping = undefined;
    skipping.onTail(newline < 0 ? Buffer.alloc(0) : skipping.tail);
  }
}
