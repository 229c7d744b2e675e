/**
 * The last bytes a server wrote to stderr, for errors and status pages.
 * Not here: redaction and neutralising of terminal codes (handed in as `clean`), writing logs to disk.
 * Invariant: feeding costs one copy and no look at the bytes, so a server that floods stderr cannot slow its own calls.
 */
import { crashLine } from './crash-line.js';

const NEWLINE = 0x0a;
/** A stack trace, with what was said right before it. */
const crashBytes = 16 * 1024;

export class StderrRing {
  readonly #capacity: number;
  readonly #clean: (text: string) => string;
  /** Allocated with the first byte: most servers say nothing. Pages never written cost no memory. */
  #ring: Buffer | undefined;
  #next = 0;
  /** All bytes ever written, kept or not. */
  #total = 0;

  constructor(capacity: number, clean: (text: string) => string) {
    this.#capacity = capacity;
    this.#clean = clean;
  }

  push(chunk: Buffer): void {
    if (chunk.length === 0) return;
    this.#ring ??= Buffer.allocUnsafeSlow(this.#capacity);
    this.#total += chunk.length;
    const from = Math.max(0, chunk.length - this.#capacity);
    const first = chunk.copy(this.#ring, this.#next, from);
    const second = from + first < chunk.length ? chunk.copy(this.#ring, 0, from + first) : 0;
    this.#next = second > 0 ? second : (this.#next + first) % this.#capacity;
  }

  /** At most the last `maxBytes`, cleaned. When something was cut off, the line it was cut in is left out. */
  tail(maxBytes: number = this.#capacity): string {
    const ring = this.#ring;
    if (!ring) return '';
    const length = Math.min(maxBytes, this.#total, this.#capacity);
    const start = (this.#next - length + this.#capacity) % this.#capacity;
    const bytes =
      start + length <= this.#capacity
        ? ring.subarray(start, start + length)
        : Buffer.concat([ring.subarray(start), ring.subarray(0, this.#next)], length);
    if (length === this.#total) return this.#clean(bytes.toString('utf8'));
    // A secret cut in half is one that redaction no longer recognises: never show the first, partial line.
    const newline = bytes.indexOf(NEWLINE);
    return newline < 0 ? '' : this.#clean(bytes.toString('utf8', newline + 1));
  }

  /** The line that says why the server ended, cut to `maxChars`; '' when there is none. */
  crashLine(maxChars: number): string {
    return crashLine(this.tail(crashBytes), maxChars);
  }
}
