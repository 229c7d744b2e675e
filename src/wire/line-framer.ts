/**
 * Byte chunks → lines. Each byte is looked at once; a line that lies within one chunk is not copied.
 * Bytes of an unfinished line go into fixed slabs, so a server that drips single bytes costs the same per byte however
 * much is already waiting, and at most `maxBytes` are ever held.
 * A line above `maxBytes` ends the framer. Its first bytes are reported at once, and its last bytes, on request, when it has ended.
 */
import { oversizedEdgeBytes } from './oversized-answer.js';

const NEWLINE = 0x0a;
const slabBytes = 64 * 1024;
/** An oversized line is read up to this many times the limit to find its end. */
const skippedTimesMax = 8;

export class LineFramer {
  readonly #maxBytes: number;
  readonly #onLine: (bytes: Buffer, start: number, end: number) => void;
  readonly #onTooLong: (bytes: number, head: Buffer) => void;
  #slabs: Buffer[] = [];
  #slabUsed = 0;
  #pendingBytes = 0;
  #dead = false;
  /** While a line that is too long is read to its end: its last bytes, how many were read, and the callback. */
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
    return this.#pendingBytes;
  }

  push(chunk: Buffer): void {
    if (this.#skipping) return this.#skip(chunk, 0);
    let from = 0;
    while (!this.#dead && from < chunk.length) {
      const newline = chunk.indexOf(NEWLINE, from);
      if (newline < 0) return this.#keep(chunk, from, chunk.length);
      if (this.#pendingBytes > 0) {
        this.#keep(chunk, from, newline);
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
   * Only from within `onTooLong`: reads the line that is too long to its end, or to a bound, and reports its last bytes once.
   * The report may come before `push` returns.
   */
  skipToEnd(onTail: (tail: Buffer) => void): void {
    this.#skipping = { tail: Buffer.alloc(0), bytes: 0, onTail };
  }

  /** The stream is over: what is left may be a whole message that only lacks its newline. */
  end(): void {
    if (!this.#dead && this.#pendingBytes > 0) this.#finish();
    this.#dead = true;
  }

  #keep(chunk: Buffer, from: number, to: number): void {
    this.#pendingBytes += to - from;
    if (this.#pendingBytes > this.#maxBytes) return this.#overflow(this.#pendingBytes, chunk, from);
    let at = from;
    while (at < to) {
      let slab = this.#slabs[this.#slabs.length - 1];
      if (!slab || this.#slabUsed === slabBytes) {
        slab = Buffer.allocUnsafeSlow(slabBytes);
        this.#slabs.push(slab);
        this.#slabUsed = 0;
      }
      const copied = chunk.copy(slab, this.#slabUsed, at, to);
      this.#slabUsed += copied;
      at += copied;
    }
  }

  #finish(): void {
    const length = this.#pendingBytes;
    const [only] = this.#slabs;
    const line = this.#slabs.length === 1 && only ? only : Buffer.concat(this.#slabs, length);
    this.#drop();
    this.#onLine(line, 0, length);
  }

  /** `chunk` holds the bytes of the line from `from` on that are not in the slabs. */
  #overflow(bytes: number, chunk: Buffer, from: number): void {
    const held = this.#slabs[0]?.subarray(0, this.#slabs.length > 1 ? slabBytes : this.#slabUsed);
    const rest = chunk.subarray(from, Math.min(chunk.length, from + oversizedEdgeBytes));
    const head = Buffer.concat([held?.subarray(0, oversizedEdgeBytes) ?? Buffer.alloc(0), rest]);
    this.#drop();
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

  #drop(): void {
    this.#slabs = [];
    this.#slabUsed = 0;
    this.#pendingBytes = 0;
  }
}
