/**
 * Frames on their way into one server's stdin: bounded, written in batches, each frame knowing how far it came.
 * Not here: what a broken pipe means for the channel (stdio-channel.ts), answers and deadlines (the peer).
 *
 * Invariants:
 * - A frame is `queued` until the very moment its bytes are handed to the stream, so a withdrawn one was never seen.
 * - The stream is given no more while it holds bytes the system has not taken. What comes meanwhile waits here, where it
 *   can still be withdrawn, and not in the stream's own buffer, where it could not.
 * - What was withdrawn is held on to only up to a bound, however long the stream takes nothing.
 * - One frame is one line: a newline within a relayed payload would let its sender forge messages.
 */
import type { Writable } from 'node:stream';
import type { HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import type { OutboundFrame } from '../../wire/channel.js';
import { overloaded } from '../../wire/wire-errors.js';

interface OutboundQueueOptions {
  readonly server: string;
  readonly stream: Writable;
  /** Frames that waited are about to be written, and may be withdrawn now. */
  readonly beforeWrite?: () => void;
  /** The stream refused a write; called at most once. Frames stay as they are until `abandon`. */
  readonly onBroken: (error: Error) => void;
}

/** Well within what a pipe takes at once: more would only turn frames `writing` (uncertain) sooner than needed. */
const batchBytesMax = 64 * 1024;
/** Of frames that were withdrawn and are still in the list; and never more of them than of those that wait. */
const withdrawnBytesMax = 1024 * 1024;
const NEWLINE = 0x0a;
/** Many readers of lines, Node's and Python's among them, end a line at a lone CR too. */
const CARRIAGE_RETURN = 0x0d;
const BLANK = 0x20;

export class OutboundQueue {
  readonly #server: string;
  readonly #stream: Writable;
  readonly #beforeWrite: (() => void) | undefined;
  readonly #onBroken: (error: Error) => void;
  /** A list, because a set that is filled and emptied without end leaves copies behind (wire/id-table.ts). */
  #queued: OutboundFrame[] = [];
  /** Those before it are gone. */
  #first = 0;
  /** Still in the list, to be passed over: so any frame is forgotten in constant time, though ten thousand time out at once. */
  readonly #withdrawn = new Set<OutboundFrame>();
  /** One entry for each write not confirmed yet, oldest first: those the system took in this tick, and one it has not. */
  #inFlight: OutboundFrame[][] = [];
  #withdrawnBytes = 0;
  /** All that ever were. */
  readonly #gone = new WeakSet<OutboundFrame>();
  #queuedBytes = 0;
  #writingBytes = 0;
  #scheduled = false;
  #open = true;

  constructor(options: OutboundQueueOptions) {
    this.#server = options.server;
    this.#stream = options.stream;
    this.#beforeWrite = options.beforeWrite;
    this.#onBroken = options.onBroken;
  }

  /** Bytes accepted and not yet taken by the system. */
  get bytes(): number {
    return this.#queuedBytes + this.#writingBytes;
  }

  send(frame: OutboundFrame): HostError | undefined {
    if (this.bytes + frame.bytes > LIMITS.outboundBytes) return overloaded(this.#server, this.bytes);
    frame.phase = 'queued';
    this.#queued.push(frame);
    this.#queuedBytes += frame.bytes;
    // Otherwise when everything that came in has been looked at: requests of many clients come one by one, each in a tick of
    // its own. Not all of them wait for that: the server would have nothing to do meanwhile, and the two would wait in turns.
    const waiting = this.#waiting;
    if (waiting >= frame.batch) {
      if (waiting > 1) this.#flushWaited();
      else this.#flush();
    } else if (!this.#scheduled) {
      this.#scheduled = true;
      setImmediate(this.#flushTick);
    }
    return undefined;
  }

  /** True when the frame was still here and will now never be written. */
  withdraw(frame: OutboundFrame): boolean {
    // Once it is no longer queued, or was withdrawn before, it is not here.
    if (frame.phase !== 'queued' || this.#gone.has(frame) || !this.#open) return false;
    this.#gone.add(frame);
    this.#withdrawn.add(frame);
    this.#withdrawnBytes += frame.bytes;
    this.#queuedBytes -= frame.bytes;
    if (this.#withdrawnBytes > withdrawnBytesMax || this.#withdrawn.size > this.#waiting) this.#dropWithdrawn();
    return true;
  }

  /**
   * Gives up: returns every frame that was not completely written, oldest first, and writes no more. Of those that still waited,
   * the requests: nobody waits for our answers and notices, of which there may be some hundred thousand.
   */
  abandon(): { readonly writing: OutboundFrame[]; readonly queued: OutboundFrame[] } {
    const queued: OutboundFrame[] = [];
    for (let i = this.#first; i < this.#queued.length; i++) {
      const frame = this.#queued[i] as OutboundFrame;
      if (frame.kind === 'request' && !this.#withdrawn.has(frame)) queued.push(frame);
    }
    const left = { writing: this.#inFlight.flat(), queued };
    this.#open = false;
    this.#inFlight = [];
    this.#queued = [];
    this.#first = 0;
    this.#withdrawn.clear();
    this.#withdrawnBytes = this.#queuedBytes = this.#writingBytes = 0;
    return left;
  }

  readonly #flushTick = (): void => {
    this.#scheduled = false;
    this.#flushWaited();
  };

  /** What is written as it is sent was looked at then; this was not. */
  #flushWaited(): void {
    if (this.#beforeWrite && this.#mayWrite) this.#beforeWrite();
    this.#flush();
  }

  get #mayWrite(): boolean {
    return this.#open && this.#waiting > 0 && this.#stream.writableLength === 0;
  }

  #flush(): void {
    if (!this.#mayWrite) return;
    const batch: OutboundFrame[] = [];
    let bytes = 0;
    let allText = true;
    for (; this.#first < this.#queued.length; this.#first++) {
      const frame = this.#queued[this.#first] as OutboundFrame;
      if (this.#withdrawn.size > 0 && this.#withdrawn.delete(frame)) {
        this.#withdrawnBytes -= frame.bytes;
        continue;
      }
      // A frame larger than a batch goes alone.
      if (bytes + frame.bytes > batchBytesMax && bytes > 0) break;
      bytes += frame.bytes;
      if (typeof frame.payload !== 'string') allText = false;
      frame.phase = 'writing';
      batch.push(frame);
    }
    this.#dropGone();
    this.#inFlight.push(batch);
    this.#queuedBytes -= bytes;
    this.#writingBytes += bytes;
    if (allText) this.#stream.write(joinText(batch), 'utf8', this.#written);
    else this.#stream.write(joinBytes(batch, bytes), this.#written);
  }

  /** Frames that are to be written. */
  get #waiting(): number {
    return this.#queued.length - this.#first - this.#withdrawn.size;
  }

  /** All at once when all are gone, else when they are most of the list: each is moved at most once on average. */
  #dropGone(): void {
    if (this.#first === this.#queued.length) this.#queued.length = 0;
    else if (this.#first * 2 > this.#queued.length) this.#queued.splice(0, this.#first);
    else return;
    this.#first = 0;
  }

  /** While nothing is written nobody passes over them, and callers who give up may go on to come. */
  #dropWithdrawn(): void {
    this.#queued = this.#queued.filter((frame, i) => i >= this.#first && !this.#withdrawn.has(frame));
    this.#first = 0;
    this.#withdrawn.clear();
    this.#withdrawnBytes = 0;
  }

  readonly #written = (error?: Error | null): void => {
    if (!this.#open) return;
    if (error) {
      this.#open = false;
      this.#onBroken(error);
      return;
    }
    for (const frame of this.#inFlight.shift() ?? []) {
      this.#writingBytes -= frame.bytes;
      // The first of a batch may have been answered while its last was still on the way.
      if (frame.phase === 'writing') frame.phase = 'written';
    }
    // Not by way of nextTick: what waited for this write has waited long enough to be a batch.
    this.#flushWaited();
  };
}

function joinText(frames: OutboundFrame[]): string {
  let text = '';
  for (const frame of frames) text += `${frame.head}${oneLine(frame.payload as string)}${frame.tail}\n`;
  return text;
}

/** Between tokens a line break is white space, and within strings JSON allows none: a blank means the same. */
const oneLine = (text: string) => (text.includes('\n') || text.includes('\r') ? text.replaceAll(/[\r\n]/g, ' ') : text);

function blankBreaks(bytes: Buffer): void {
  for (const lineBreak of [NEWLINE, CARRIAGE_RETURN]) {
    for (let i = bytes.indexOf(lineBreak); i >= 0; i = bytes.indexOf(lineBreak, i + 1)) bytes[i] = BLANK;
  }
}

function joinBytes(frames: OutboundFrame[], expectedBytes: number): Buffer {
  // Three bytes per unit for heads and tails is the worst case, so that writing them cannot run out of room.
  let room = expectedBytes;
  for (const frame of frames) room += 2 * (frame.head.length + frame.tail.length);
  const out = Buffer.allocUnsafe(room);
  let at = 0;
  for (const { head, payload, tail } of frames) {
    at += out.write(head, at, 'utf8');
    const start = at;
    if (typeof payload === 'string') {
      at += out.write(payload, at, 'utf8');
    } else {
      out.set(payload, at);
      at += payload.byteLength;
    }
    blankBreaks(out.subarray(start, at));
    at += out.write(tail, at, 'utf8');
    out[at++] = NEWLINE;
  }
  return out.subarray(0, at);
}
