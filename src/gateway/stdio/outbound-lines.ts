/**
 * Messages on their way to the one client of a pipe: each one line, written as they come and together while the pipe is busy.
 * Not here: what is said (stdio-exchange.ts), what to do when the client does not read (stdio-ingress.ts asks for `bytes`).
 *
 * Invariants: one message is one line, whatever line breaks a relayed payload has between its tokens; the stream is given no
 * more while it holds bytes that the system has not taken, so that what waits is counted here.
 */
import type { Writable } from 'node:stream';
import type { JsonText } from '../../wire/frame.js';
import { toBuffer } from '../../wire/json-text.js';

/** What the stream is handed at once. */
const batchBytesMax = 64 * 1024;
const NEWLINE = 0x0a;
/** Many readers of lines end a line at a lone CR too. */
const CARRIAGE_RETURN = 0x0d;
const BLANK = 0x20;

export interface OutboundLinesOptions {
  readonly stream: Writable;
  /** Something that waited was taken. */
  readonly onTaken: () => void;
}

export class OutboundLines {
  readonly #stream: Writable;
  readonly #onTaken: () => void;
  #waiting: (string | Buffer)[] = [];
  /** Those before it are gone. */
  #first = 0;
  #waitingBytes = 0;
  #writingBytes = 0;
  #isScheduled = false;
  #isOpen = true;
  #onEmpty: (() => void) | undefined;

  constructor({ stream, onTaken }: OutboundLinesOptions) {
    this.#stream = stream;
    this.#onTaken = onTaken;
  }

  /** Written and not yet taken by the system. */
  get bytes(): number {
    return this.#waitingBytes + this.#writingBytes;
  }

  /** `parts` are joined to the text of one message. */
  write(parts: readonly JsonText[]): void {
    if (!this.#isOpen) return;
    const line = lineOf(parts);
    this.#waiting.push(line);
    this.#waitingBytes += sizeOf(line);
    // At the end of the tick: many requests come in one chunk, and some are answered at once.
    if (this.#isScheduled || this.#writingBytes > 0) return;
    this.#isScheduled = true;
    process.nextTick(this.#flushTick);
  }

  /** Resolves when all is taken, or nothing more can be. */
  drained(): Promise<void> {
    if (!this.#isOpen || this.bytes === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onEmpty = resolve;
    });
  }

  /** What waits is dropped. */
  close(): void {
    this.#isOpen = false;
    this.#waiting = [];
    this.#first = this.#waitingBytes = this.#writingBytes = 0;
    this.#onEmpty?.();
  }

  readonly #flushTick = (): void => {
    this.#isScheduled = false;
    this.#flush();
  };

  #flush(): void {
    if (!this.#isOpen || this.#writingBytes > 0 || this.#first === this.#waiting.length) return;
    const batch: (string | Buffer)[] = [];
    let bytes = 0;
    // A line larger than a batch goes alone, but all of it.
    for (; this.#first < this.#waiting.length && bytes < batchBytesMax; this.#first++) {
      const line = this.#waiting[this.#first] as string | Buffer;
      const last = batch[batch.length - 1];
      if (typeof line === 'string' && typeof last === 'string') batch[batch.length - 1] = last + line;
      else batch.push(line);
      bytes += sizeOf(line);
    }
    this.#dropGone();
    this.#waitingBytes -= bytes;
    this.#writingBytes = bytes;
    this.#stream.cork();
    for (const chunk of batch.slice(0, -1)) this.#stream.write(chunk);
    this.#stream.write(batch[batch.length - 1], this.#taken);
    this.#stream.uncork();
  }

  readonly #taken = (error?: Error | null): void => {
    if (error || !this.#isOpen) return;
    this.#writingBytes = 0;
    this.#flush();
    this.#onTaken();
    if (this.bytes === 0) this.#onEmpty?.();
  };

  #dropGone(): void {
    if (this.#first === this.#waiting.length) this.#waiting = [];
    else if (this.#first * 2 > this.#waiting.length) this.#waiting.splice(0, this.#first);
    else return;
    this.#first = 0;
  }
}

function lineOf(parts: readonly JsonText[]): string | Buffer {
  if (parts.every((part) => typeof part === 'string')) return `${oneLine(parts.join(''))}\n`;
  const line = Buffer.concat([...parts.map(toBuffer), lineEnd]);
  blankBreaks(line.subarray(0, -1));
  return line;
}

const sizeOf = (line: string | Buffer): number => (typeof line === 'string' ? Buffer.byteLength(line) : line.length);
const lineEnd = Buffer.from('\n');

/** Between tokens a line break is white space, and within strings JSON allows none: a blank means the same. */
const oneLine = (text: string) => (text.includes('\n') || text.includes('\r') ? text.replaceAll(/[\r\n]/g, ' ') : text);

function blankBreaks(bytes: Buffer): void {
  for (const lineBreak of [NEWLINE, CARRIAGE_RETURN]) {
    for (let i = bytes.indexOf(lineBreak); i >= 0; i = bytes.indexOf(lineBreak, i + 1)) bytes[i] = BLANK;
  }
}
