/**
 * Converts byte chunks to lines. Each byte is scanned once; a line within one chunk is not copied.
 * Invariant: at most `maxBytes` of an unfinished line are buffered. A longer line is reported once with its first bytes and
 * skipped; the next line is read normally.
 */
import { ByteBuffer } from '../kernel/byte-buffer.js';

const NEWLINE = 0x0a;
/** An oversized line is read up to this multiple of the limit to find its last bytes. */
const tailTimesMax = 8;

export class LineReader {
  readonly #maxBytes: number;
  readonly #onLine: (bytes: Buffer, start: number, end: number) => void;
  readonly #onTooLong: (bytes: number, head: Buffer) => void;
  readonly #pending = new ByteBuffer();
  #isSkipping = false;
  #onTail: ((tail: Buffer) => void) | undefined;
  #tail: Buffer = Buffer.alloc(0);
  #skippedBytes = 0;

  constructor(
    maxBytes: number,
    onLine: (bytes: Buffer, start: number, end: number) => void,
    onTooLong: (bytes: number, head: Buffer) => void,
  ) {
    this.#maxBytes = maxBytes;
    this.#onLine = onLine;
    this.#onTooLong = onTooLong;
  }

  get pendingBytes(): number {
    return this.#pending.length;
  }

  push(chunk: Buffer): void {
    for (let from = 0; from < chunk.length; ) {
      const newline = chunk.indexOf(NEWLINE, from);
      const to = newline < 0 ? chunk.length : newline;
      const bytes = this.#pending.length + to - from;
      if (this.#isSkipping) this.#skip(chunk, from, newline);
      else if (bytes > this.#maxBytes) this.#overflow(bytes, chunk, from, newline);
      else if (newline >= 0 && this.#pending.length === 0) this.#onLine(chunk, from, newline);
      else {
        this.#pending.add(chunk, from, to);
        if (newline >= 0) this.#finish();
      }
      from = to + 1;
    }
  }

  /**
   * May be called only from within `onTooLong`. `report` gets the last bytes of the line when it ends, or no bytes if the line exceeds
   * `tailTimesMax` times the limit. `report` may be called before `push` returns.
   */
  onTail(report: (tail: Buffer) => void): void {
    this.#onTail = report;
  }

  /** The stream ended. The rest may be a whole message without its newline. */
  end(): void {
    if (this.#pending.length > 0) this.#finish();
  }

  #finish(): void {
    const line = this.#pending.take();
    this.#onLine(line, 0, line.length);
  }

  #overflow(bytes: number, chunk: Buffer, from: number, newline: number): void {
    const rest = chunk.subarray(from, newline < 0 ? chunk.length : newline).subarray(0, oversizedEdgeBytes);
    const head = Buffer.concat([this.#pending.take().subarray(0, oversizedEdgeBytes), rest]);
    this.#isSkipping = true;
    this.#skippedBytes = 0;
    this.#tail = Buffer.alloc(0);
    this.#onTooLong(bytes, head.subarray(0, oversizedEdgeBytes));
    this.#skip(chunk, from, newline);
  }

  #skip(chunk: Buffer, from: number, newline: number): void {
    const end = newline < 0 ? chunk.length : newline;
    this.#isSkipping = newline < 0;
    const report = this.#onTail;
    if (!report) return;
    const last = Buffer.concat([this.#tail, chunk.subarray(Math.max(from, end - oversizedEdgeBytes), end)]);
    this.#tail = last.subarray(-oversizedEdgeBytes);
    this.#skippedBytes += end - from;
    if (newline < 0 && this.#skippedBytes <= tailTimesMax * this.#maxBytes) return;
    this.#onTail = undefined;
    report(newline < 0 ? Buffer.alloc(0) : this.#tail);
  }
}

/**
 * Finds the id of an oversized answer in its first or last bytes. Libraries put the id before the result (Python, Go) or after
 * it (the TypeScript SDK).
 * Not here: settling the request (peer.ts).
 */
export const oversizedEdgeBytes = 256;

/** `unnamed`: an answer whose id may be at its end. `none`: not an answer. */
export type OversizedHead = number | 'unnamed' | 'none';

const version = String.raw`"jsonrpc"\s*:\s*"2\.0"`;
const id = String.raw`"id"\s*:\s*(\d{1,15})`;
const payload = String.raw`"(?:result|error)"\s*:`;
const namedHead = new RegExp(
  String.raw`^\uFEFF?\s*\{\s*(?:${version}\s*,\s*)?${id}\s*,\s*(?:${version}\s*,\s*)?${payload}`,
);
const unnamedHead = new RegExp(String.raw`^\uFEFF?\s*\{\s*(?:${version}\s*,\s*)?${payload}`);
// The last brace closes the message, and a string would end in a quote. So an id right before the brace belongs to the message.
const namedTail = new RegExp(String.raw`,\s*${id}\s*(?:,\s*${version}\s*)?\}\s*$`);

export function oversizedHead(head: Buffer): OversizedHead {
  const text = head.toString('utf8');
  const found = namedHead.exec(text)?.[1];
  if (found !== undefined) return Number(found);
  return unnamedHead.test(text) ? 'unnamed' : 'none';
}

export function oversizedTail(tail: Buffer): number | undefined {
  const found = namedTail.exec(tail.toString('utf8'))?.[1];
  return found === undefined ? undefined : Number(found);
}
