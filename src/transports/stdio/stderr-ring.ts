/**
 * Stores the last bytes that a server wrote to stderr, for errors and status pages.
 * Not here: redaction and removal of terminal codes (the `redact` argument).
 * Invariant: `push` copies the bytes and does not inspect them, so a server that floods stderr cannot slow its calls.
 */
import { crashLine } from './crash-line.js';

const NEWLINE = 0x0a;
/** Enough for a stack trace and the lines before it. */
const crashBytes = 16 * 1024;

export class StderrRing {
  readonly #capacity: number;
  readonly #redact: (text: string) => string;
  /** Allocated with the first byte, because most servers write nothing. Unused pages cost no memory. */
  #ring: Buffer | undefined;
  #next = 0;
  /** Number of bytes ever written, including overwritten ones. */
  #total = 0;

  constructor(capacity: number, redact: (text: string) => string) {
    this.#capacity = capacity;
    this.#redact = redact;
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

  /** Returns at most the last `maxBytes`, redacted, without a partial first line. */
  tail(maxBytes: number = this.#capacity): string {
    const ring = this.#ring;
    if (!ring) return '';
    const length = Math.min(maxBytes, this.#total, this.#capacity);
    const start = (this.#next - length + this.#capacity) % this.#capacity;
    const bytes =
      start + length <= this.#capacity
        ? ring.subarray(start, start + length)
        : Buffer.concat([ring.subarray(start), ring.subarray(0, this.#next)], length);
    if (length === this.#total) return this.#redact(bytes.toString('utf8'));
    // Redaction does not recognise a truncated secret, so a partial first line is never shown.
    const newline = bytes.indexOf(NEWLINE);
    return newline < 0 ? '' : this.#redact(bytes.toString('utf8', newline + 1));
  }

  crashLine(maxChars: number): string {
    return crashLine(this.tail(crashBytes), maxChars);
  }
}
