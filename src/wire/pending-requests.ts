/**
 * Requests that wait for an answer, by id or by progress token.
 * Not here: settling them (peer.ts), attributing server requests to them (attribution.ts).
 * Invariant: progress or a cancel for a request that was not written yet is ignored, because the server guessed its id.
 */
import type { HostError } from '../kernel/errors.js';
import type { OutboundFrame } from './channel.js';
import { IdTable } from './id-table.js';
import type { InboundRequest } from './inbound-requests.js';
import { memberText } from './json-members.js';
import type { Answer, RequestOptions } from './peer-interface.js';
import { isSessionRequest } from './rpc-codes.js';

export interface PendingRequest {
  readonly frame: OutboundFrame;
  readonly options: RequestOptions;
  readonly done: (outcome: Answer | HostError) => void;
  readonly onAbort: (() => void) | undefined;
  deadlineAtMs: number;
  /** Open server requests that this request caused; undefined if there was none. */
  serverRequests: Set<InboundRequest> | undefined;
  askedAtMs: number;
  /** The server has sent a request because of this one, or may have. */
  wasAsked: boolean;
}

/** A larger batch saves nothing. */
const batchFramesMax = 16;
/** Per request: a peak is forgotten after some hundred calls. */
const peakDecay = 1 / 256;

export class PendingRequests {
  readonly byId = new IdTable<PendingRequest>();
  /** Requests by a progress token that is not their id. */
  readonly #byToken = new Map<number, PendingRequest>();
  /** Number of requests with `isLongLived`. */
  #longLived = 0;
  /** Recent maximum of `unanswered`; decays with each request. */
  #peakUnanswered = 0;

  get size(): number {
    return this.byId.size;
  }

  get unanswered(): number {
    return this.byId.size - this.#longLived;
  }

  /**
   * Number of frames to write together: a quarter of the requests that are usually unanswered. The server works on one part while
   * callers prepare the next. The peak counts, because callers that were answered together send their next requests one by one.
   */
  nextBatch(): number {
    const { unanswered } = this;
    this.#peakUnanswered =
      unanswered >= this.#peakUnanswered ? unanswered : this.#peakUnanswered - this.#peakUnanswered * peakDecay;
    return Math.min(batchFramesMax, Math.max(1, Math.round(this.#peakUnanswered / 4)));
  }

  /** Frames that the server cannot have read completely. */
  unread(): OutboundFrame[] {
    const frames: OutboundFrame[] = [];
    this.byId.forEach(({ frame }) => {
      if (frame.phase === 'queued' || frame.phase === 'writing') frames.push(frame);
    });
    return frames;
  }

  /** Whether the server may work on a request. Long-lived requests and session requests do not count. */
  get isAtWork(): boolean {
    let found = false;
    this.byId.forEach(({ frame, options }) => {
      if (frame.phase !== 'queued' && !options.isLongLived && !isSessionRequest(frame.method)) found = true;
    });
    return found;
  }

  due(nowMs: number): { unsent: PendingRequest[]; sent: PendingRequest[]; nextAtMs: number } {
    const unsent: PendingRequest[] = [];
    const sent: PendingRequest[] = [];
    let nextAtMs = Number.POSITIVE_INFINITY;
    for (const pending of this.byId.values()) {
      if (pending.deadlineAtMs > nowMs) nextAtMs = Math.min(nextAtMs, pending.deadlineAtMs);
      else (pending.frame.phase === 'queued' ? unsent : sent).push(pending);
    }
    return { unsent, sent, nextAtMs };
  }

  add(pending: PendingRequest): void {
    const { frame, options } = pending;
    this.byId.set(frame.id as number, pending);
    if (options.isLongLived) this.#longLived++;
    if (options.progressToken !== undefined) this.#byToken.set(options.progressToken, pending);
  }

  delete({ frame, options }: PendingRequest): void {
    this.byId.delete(frame.id as number);
    if (options.isLongLived) this.#longLived--;
    if (options.progressToken !== undefined) this.#byToken.delete(options.progressToken);
  }

  has(pending: PendingRequest): boolean {
    return this.byId.get(pending.frame.id as number) === pending;
  }

  /** Returns the request of a progress notification. Tokens are numbers, so `"7"` is not one. */
  findByProgress(params: Buffer): PendingRequest | undefined {
    const text = memberText(params, 'progressToken');
    if (text === undefined) return undefined;
    const token = Number(text);
    return written(this.#byToken.get(token) ?? this.byId.get(token));
  }

  findByCancel(params: Buffer): PendingRequest | undefined {
    const idText = memberText(params, 'requestId');
    return idText === undefined ? undefined : written(this.byId.get(Number(idText)));
  }
}

const written = (pending: PendingRequest | undefined): PendingRequest | undefined =>
  pending?.frame.phase === 'queued' ? undefined : pending;
