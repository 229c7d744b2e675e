/**
 * The requests a peer is owed an answer to: found by their id, or by the token that a report of progress bears.
 * Not here: what becomes of them (peer.ts), which of them a question belongs to (attribution.ts).
 *
 * Invariant: a server can only mean what was written to it: one that names a request which still waits to be sent guessed.
 */
import type { OutboundFrame } from './channel.js';
import { IdTable } from './id-table.js';
import { memberText } from './json-members.js';
import { isSessionRequest } from './rpc-codes.js';

export interface Pendable {
  readonly frame: OutboundFrame;
  readonly options: { readonly progressToken?: number | undefined; readonly isStanding?: boolean | undefined };
  readonly deadlineAtMs: number;
}

/** The requests past their deadline, and the earliest deadline of the others. */
export interface DueRequests<T> {
  readonly unsent: readonly T[];
  readonly sent: readonly T[];
  readonly nextAtMs: number;
}

/** Past this, a larger batch saves nothing. */
const batchFramesMax = 16;
/** Per request: a peak is forgotten after some hundred calls. */
const peakDecay = 1 / 256;

export class PendingRequests<T extends Pendable> {
  readonly byId = new IdTable<T>();
  /** By a progress token that is not the id of its request. */
  readonly #byToken = new Map<number, T>();
  /** Of them all, requests that are meant to stay open. */
  #standing = 0;
  /** The most requests owed at once, decaying. */
  #peakOwed = 0;

  get size(): number {
    return this.byId.size;
  }

  /** Those that the server owes an answer to. */
  get owed(): number {
    return this.byId.size - this.#standing;
  }

  /**
   * How many frames may be written together when a request is sent: a quarter of the requests usually owed, so that the server works
   * on one part while callers make the next. The peak counts, because callers that were all answered at once come back one by one.
   */
  nextBatch(): number {
    const { owed } = this;
    this.#peakOwed = owed >= this.#peakOwed ? owed : this.#peakOwed - this.#peakOwed * peakDecay;
    return Math.min(batchFramesMax, Math.max(1, Math.round(this.#peakOwed / 4)));
  }

  /** The frames that the server cannot have read as a whole. */
  unread(): OutboundFrame[] {
    const frames: OutboundFrame[] = [];
    this.byId.forEach(({ frame }) => {
      if (frame.phase === 'queued' || frame.phase === 'writing') frames.push(frame);
    });
    return frames;
  }

  /** Whether the server may be working on one of them. Those that stay open, or open or check a session, do not count. */
  get isAtWork(): boolean {
    let found = false;
    this.byId.forEach(({ frame, options }) => {
      if (frame.phase !== 'queued' && !options.isStanding && !isSessionRequest(frame.method)) found = true;
    });
    return found;
  }

  due(nowMs: number): DueRequests<T> {
    const unsent: T[] = [];
    const sent: T[] = [];
    let nextAtMs = Number.POSITIVE_INFINITY;
    for (const pending of this.byId.values()) {
      if (pending.deadlineAtMs > nowMs) nextAtMs = Math.min(nextAtMs, pending.deadlineAtMs);
      else (pending.frame.phase === 'queued' ? unsent : sent).push(pending);
    }
    return { unsent, sent, nextAtMs };
  }

  add(pending: T): void {
    const { frame, options } = pending;
    this.byId.set(frame.id as number, pending);
    if (options.isStanding) this.#standing++;
    if (options.progressToken !== undefined) this.#byToken.set(options.progressToken, pending);
  }

  /** It must be in it. */
  delete({ frame, options }: T): void {
    this.byId.delete(frame.id as number);
    if (options.isStanding) this.#standing--;
    if (options.progressToken !== undefined) this.#byToken.delete(options.progressToken);
  }

  /** Whether it is still owed, and no other has its id. */
  has(pending: T): boolean {
    return this.byId.get(pending.frame.id as number) === pending;
  }

  /** Whose progress it is. Our tokens are numbers: `"7"` is nobody's. */
  ofProgress(params: Buffer): T | undefined {
    const text = memberText(params, 'progressToken');
    if (text === undefined) return undefined;
    const token = Number(text);
    return written(this.#byToken.get(token) ?? this.byId.get(token));
  }

  /** Which of ours the server says that it cancels. */
  ofCancel(params: Buffer): T | undefined {
    const idText = memberText(params, 'requestId');
    return idText === undefined ? undefined : written(this.byId.get(Number(idText)));
  }
}

const written = <T extends Pendable>(pending: T | undefined): T | undefined =>
  pending?.frame.phase === 'queued' ? undefined : pending;
