/**
 * Writes messages to a pipe, one line each, in batches. Each line records its phase.
 * Not here: the limit on queued bytes and the reaction to a broken pipe (callers).
 * Invariants:
 * - A line is `queued` until its bytes are passed to the stream, so the other side sees no byte of a withdrawn line.
 * - While the stream buffers bytes that the system has not accepted, lines stay here and can be withdrawn.
 * - Withdrawn lines are removed from memory at a bound, even if the stream accepts nothing.
 * - One message is one line: a line break within a relayed payload would let its sender forge messages.
 */
import type { Writable } from 'node:stream';
import type { JsonText, OutboundFrame } from './channel.js';
import { toBuffer } from './json-edit.js';

type OutboundLine = Pick<OutboundFrame, 'head' | 'payload' | 'tail' | 'bytes' | 'batch' | 'phase'>;

interface LineWriterOptions {
  readonly defer: (run: () => void) => void;
  /** Queued lines are about to be written, and may be withdrawn now. */
  readonly beforeWrite?: () => void;
  readonly onTaken?: () => void;
  /** The stream refused a write; called at most once. Lines keep their phase until `abandon`. */
  readonly onBroken?: () => void;
}

/** Well below the capacity of a pipe: a larger batch would turn lines `writing` (uncertain) earlier than needed. */
const batchBytesMax = 64 * 1024;
const withdrawnBytesMax = 1024 * 1024;
const NEWLINE = 0x0a;
/** Many line readers, including those of Node and Python, also end a line at a lone CR. */
const CARRIAGE_RETURN = 0x0d;
const BLANK = 0x20;

export class LineWriter<Line extends OutboundLine = OutboundLine> {
  readonly #stream: Writable;
  readonly #options: LineWriterOptions;
  /** An array, because a Set with many inserts and deletes leaves copies behind (id-table.ts). */
  #queued: Line[] = [];
  #first = 0;
  /** Withdrawn lines in `#queued`, which a flush skips. So withdrawing is O(1), even if ten thousand requests time out at once. */
  readonly #withdrawn = new Set<Line>();
  /** One entry for each unconfirmed write, oldest first. */
  #inFlight: Line[][] = [];
  #withdrawnBytes = 0;
  readonly #everWithdrawn = new WeakSet<Line>();
  #queuedBytes = 0;
  #writingBytes = 0;
  #isScheduled = false;
  #isOpen = true;
  #onEmpty: (() => void) | undefined;

  constructor(stream: Writable, options: LineWriterOptions) {
    this.#stream = stream;
    this.#options = options;
  }

  /** Bytes that the system has not accepted yet. */
  get bytes(): number {
    return this.#queuedBytes + this.#writingBytes;
  }

  write(line: Line): void {
    if (!this.#isOpen) return;
    this.#queued.push(line);
    this.#queuedBytes += line.bytes;
    // Requests of many clients arrive one by one, each in a separate tick. A full batch is written at once, because the server
    // would be idle until the end of the tick.
    const waiting = this.#waiting;
    if (waiting >= line.batch) {
      if (waiting > 1) this.#flushQueued();
      else this.#flush();
    } else if (!this.#isScheduled) {
      this.#isScheduled = true;
      this.#options.defer(this.#flushTick);
    }
  }

  /** Returns true if the line was still queued. It will never be written. */
  withdraw(line: Line): boolean {
    if (line.phase !== 'queued' || this.#everWithdrawn.has(line) || !this.#isOpen) return false;
    this.#everWithdrawn.add(line);
    this.#withdrawn.add(line);
    this.#withdrawnBytes += line.bytes;
    this.#queuedBytes -= line.bytes;
    if (this.#withdrawnBytes > withdrawnBytesMax || this.#withdrawn.size > this.#waiting) this.#dropWithdrawn();
    return true;
  }

  /** Resolves when all lines are accepted, or no more can be. */
  drained(): Promise<void> {
    if (!this.#isOpen || this.bytes === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onEmpty = resolve;
    });
  }

  /** Stops writing, and returns every line that was not completely written, oldest first. */
  abandon(): { readonly writing: Line[]; readonly queued: Line[] } {
    const queued = this.#queued.filter((line, i) => i >= this.#first && !this.#withdrawn.has(line));
    const left = { writing: this.#inFlight.flat(), queued };
    this.#isOpen = false;
    this.#inFlight = [];
    this.#queued = [];
    this.#first = 0;
    this.#withdrawn.clear();
    this.#withdrawnBytes = this.#queuedBytes = this.#writingBytes = 0;
    this.#onEmpty?.();
    return left;
  }

  readonly #flushTick = (): void => {
    this.#isScheduled = false;
    this.#flushQueued();
  };

  /** A line that is written at once needs no `beforeWrite`; a queued line does. */
  #flushQueued(): void {
    if (this.#mayWrite) this.#options.beforeWrite?.();
    this.#flush();
  }

  get #mayWrite(): boolean {
    return this.#isOpen && this.#waiting > 0 && this.#stream.writableLength === 0;
  }

  #flush(): void {
    if (!this.#mayWrite) return;
    const batch: Line[] = [];
    let bytes = 0;
    let isText = true;
    for (; this.#first < this.#queued.length; this.#first++) {
      const line = this.#queued[this.#first] as Line;
      if (this.#withdrawn.size > 0 && this.#withdrawn.delete(line)) {
        this.#withdrawnBytes -= line.bytes;
        continue;
      }
      if (bytes + line.bytes > batchBytesMax && bytes > 0) break;
      bytes += line.bytes;
      if (typeof line.payload !== 'string') isText = false;
      line.phase = 'writing';
      batch.push(line);
    }
    this.#dropWritten();
    this.#inFlight.push(batch);
    this.#queuedBytes -= bytes;
    this.#writingBytes += bytes;
    if (isText) this.#stream.write(joinText(batch), 'utf8', this.#taken);
    else this.#stream.write(joinBytes(batch, bytes), this.#taken);
  }

  get #waiting(): number {
    return this.#queued.length - this.#first - this.#withdrawn.size;
  }

  /** Moves the rest only when most of the array is written, so each line is moved at most once on average. */
  #dropWritten(): void {
    if (this.#first === this.#queued.length) this.#queued.length = 0;
    else if (this.#first * 2 > this.#queued.length) this.#queued.splice(0, this.#first);
    else return;
    this.#first = 0;
  }

  #dropWithdrawn(): void {
    this.#queued = this.#queued.filter((line, i) => i >= this.#first && !this.#withdrawn.has(line));
    this.#first = 0;
    this.#withdrawn.clear();
    this.#withdrawnBytes = 0;
  }

  readonly #taken = (error?: Error | null): void => {
    if (!this.#isOpen) return;
    if (error) {
      this.#isOpen = false;
      this.#options.onBroken?.();
      return;
    }
    for (const line of this.#inFlight.shift() ?? []) {
      this.#writingBytes -= line.bytes;
      // The first line of a batch may be answered before the last one is accepted.
      if (line.phase === 'writing') line.phase = 'written';
    }
    this.#flushQueued();
    this.#options.onTaken?.();
    if (this.bytes === 0) this.#onEmpty?.();
  };
}

/** Makes one line of several parts. Text before the first and after the last byte part stays a string. */
export function lineOf(parts: readonly JsonText[]): OutboundLine {
  const first = parts.findIndex(isBytes);
  const last = parts.findLastIndex(isBytes);
  const [head, payload, tail] =
    first < 0
      ? ['', parts.join(''), '']
      : [parts.slice(0, first).join(''), joined(parts.slice(first, last + 1)), parts.slice(last + 1).join('')];
  const bytes = Buffer.byteLength(head) + Buffer.byteLength(payload) + Buffer.byteLength(tail) + 1;
  return { head, payload, tail, bytes, batch: Number.POSITIVE_INFINITY, phase: 'queued' };
}

const isBytes = (part: JsonText): boolean => typeof part !== 'string';

const joined = ([only, ...others]: readonly JsonText[]): JsonText =>
  others.length === 0 ? (only as JsonText) : Buffer.concat([only as JsonText, ...others].map(toBuffer));

function joinText(lines: readonly OutboundLine[]): string {
  let text = '';
  for (const { head, payload, tail } of lines) text += `${head}${oneLine(payload as string)}${tail}\n`;
  return text;
}

/** JSON strings contain no line breaks, and between tokens a break is white space, so a space has the same meaning. */
const oneLine = (text: string) => (text.includes('\n') || text.includes('\r') ? text.replaceAll(/[\r\n]/g, ' ') : text);

function joinBytes(lines: readonly OutboundLine[], bytes: number): Buffer {
  const out = Buffer.allocUnsafe(bytes);
  let at = 0;
  for (const { head, payload, tail } of lines) {
    const start = at;
    at += out.write(head, at, 'utf8');
    if (typeof payload === 'string') at += out.write(payload, at, 'utf8');
    else {
      out.set(payload, at);
      at += payload.byteLength;
    }
    at += out.write(tail, at, 'utf8');
    blankBreaks(out.subarray(start, at));
    out[at++] = NEWLINE;
  }
  return out.subarray(0, at);
}

function blankBreaks(bytes: Buffer): void {
  for (const lineBreak of [NEWLINE, CARRIAGE_RETURN]) {
    for (let i = bytes.indexOf(lineBreak); i >= 0; i = bytes.indexOf(lineBreak, i + 1)) bytes[i] = BLANK;
  }
}
