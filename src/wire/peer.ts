/**
 * One JSON-RPC connection: who asked what, until when, and how far it came.
 * Matches answers to requests, keeps absolute deadlines, maps progress, withdraws what is given up, and hands everything
 * the server starts on its own up with its raw bytes.
 * Not here: moving bytes (transports), what MCP methods mean (session), whether a call may be repeated (policy).
 *
 * Invariants: every request settles exactly once; an answer is given only to the request whose id it carries and only
 * after that request was written; `execution: "not_executed"` is said only when no byte was handed to the system.
 */
import type { Clock } from '../kernel/clock.js';
import { type ErrorCode, HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { BatchSize } from './batch-size.js';
import type { Agreement, Channel, ChannelListener, HttpFacts, OutboundFrame } from './channel.js';
import { Deadlines } from './deadlines.js';
import type { Envelope } from './envelope.js';
import { type JsonText, notificationFrame, requestFrame } from './frame.js';
import { IdTable } from './id-table.js';
import type { InboundRequest } from './inbound-request.js';
import { InboundRequests } from './inbound-requests.js';
import { findMember, memberText } from './json-members.js';
import { NOTIFICATION } from './rpc-codes.js';
import { givenUp, lost, refused, tooLarge, tooManyPending } from './wire-errors.js';

export interface Answer {
  readonly kind: 'result' | 'error';
  /** The result or error object as the server wrote it. A view: copy it to keep it for long. */
  readonly bytes: Buffer;
  /** Keys that may be in it (json-scan.ts). */
  readonly mayHold: number;
}

/** Each progress moves the deadline to at least now + `byMs`, but never past `untilMs`. */
export interface DeadlineExtension {
  readonly byMs: number;
  readonly untilMs: number;
}

export interface RequestOptions {
  /** On the peer's clock. Waiting to be written counts. */
  readonly deadlineAtMs: number;
  readonly signal?: AbortSignal | undefined;
  /** Params of each progress notification, raw. The token of a request is its id (`nextId`), and must stand in its params. */
  readonly onProgress?: ((params: Buffer) => void) | undefined;
  readonly extend?: DeadlineExtension | undefined;
  /** The token in the params, where it is another: that of an earlier request with the same params. */
  readonly progressToken?: number | undefined;
  readonly http?: HttpFacts | undefined;
  /** `initialize` must not be cancelled: it is only given up. */
  readonly uncancellable?: boolean;
  /** Stays open for as long as the connection does, such as `subscriptions/listen`: it is not among what the server owes. */
  readonly isStanding?: boolean | undefined;
}

export interface InboundNotification {
  readonly method: string;
  readonly params: Buffer | undefined;
  /** Our request in whose response stream it came, where the transport can tell. */
  readonly origin: number | undefined;
}

export interface PeerHandlers {
  request?(request: InboundRequest): void;
  notification?(notification: InboundNotification): void;
  closed?(error: HostError): void;
  /** The server has forgotten our session; the connection is still good. */
  sessionLost?(): void;
  /** A handler above threw. The connection goes on. */
  handlerError?(error: unknown): void;
}

export interface PeerCounters {
  /** Answers and progress for requests that were already settled. */
  late: number;
  /** Answers with an id we never sent, or that came before their request was written. */
  unknown: number;
  /** Requests a modern server must not send, dropped. */
  forbidden: number;
}

type Told = (outcome: Answer | HostError) => void;

interface Pending {
  readonly frame: OutboundFrame;
  readonly options: RequestOptions;
  readonly done: Told;
  readonly onAbort: (() => void) | undefined;
  deadlineAtMs: number;
}

export class Peer implements ChannelListener {
  readonly counters: PeerCounters = { late: 0, unknown: 0, forbidden: 0 };
  /** Told each time the last answer that was owed is in, or given up. */
  onClear: (() => void) | undefined;
  readonly #server: string;
  readonly #channel: Channel;
  readonly #clock: Clock;
  readonly #handlers: PeerHandlers;
  readonly #pending = new IdTable<Pending>();
  /** By a progress token that is not the id of its request. */
  readonly #byToken = new Map<number, Pending>();
  readonly #inbound: InboundRequests;
  readonly #deadlines: Deadlines;
  /** Of those pending, requests that are meant to stay open. */
  #standing = 0;
  #nextId = 1;
  readonly #batch = new BatchSize();
  #era: Agreement['era'] | undefined;
  #closed: HostError | undefined;
  #lastMessageAtMs: number;
  #heard = false;

  constructor(server: string, channel: Channel, clock: Clock, handlers: PeerHandlers = {}) {
    this.#server = server;
    this.#channel = channel;
    this.#clock = clock;
    this.#handlers = handlers;
    this.#deadlines = new Deadlines(clock, (nowMs) => this.#expire(nowMs));
    this.#inbound = new InboundRequests(handlers, (frame) => {
      if (!this.#closed) this.#send(frame);
    });
    this.#lastMessageAtMs = clock.nowMs();
    channel.start(this);
  }

  get channel(): Channel {
    return this.#channel;
  }

  /** Requests of ours that the server still owes an answer to. */
  get owed(): number {
    return this.#pending.size - this.#standing;
  }

  /** When the server last said anything at all. */
  get lastMessageAtMs(): number {
    return this.#lastMessageAtMs;
  }

  /** Whether the server has said anything at all yet. */
  get heard(): boolean {
    return this.#heard;
  }

  get closedBy(): HostError | undefined {
    return this.#closed;
  }

  /** The id of the next request, for who must write it into the params. */
  get nextId(): number {
    return this.#nextId;
  }

  adopt(agreement: Agreement): void {
    this.#era = agreement.era;
    this.#channel.adopt(agreement);
  }

  /** Rejects with a HostError; an error the server answers with is an answer, not a rejection. */
  request(method: string, params: JsonText | undefined, options: RequestOptions): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.ask(method, params, options, (outcome) =>
        outcome instanceof HostError ? reject(outcome) : resolve(outcome),
      );
    });
  }

  /** As `request`. The outcome is told once, in the tick it comes in, and even before this returns. */
  ask(method: string, params: JsonText | undefined, options: RequestOptions, done: Told): void {
    const refusal = this.#refusal(method, options);
    if (refusal) return done(refusal);
    const { signal, progressToken } = options;
    const id = this.#nextId++;
    const frame = requestFrame(id, method, params, options.http);
    const onAbort = signal ? () => this.#giveUp(pending, 'cancelled', 'the caller cancelled it') : undefined;
    const pending: Pending = { frame, options, done, onAbort, deadlineAtMs: options.deadlineAtMs };
    this.#pending.set(id, pending);
    if (options.isStanding) this.#standing++;
    if (progressToken !== undefined) this.#byToken.set(progressToken, pending);
    frame.batch = this.#batch.next(this.owed);
    const refusedNow = this.#send(frame);
    if (refusedNow) {
      this.#forget(id, pending);
      return done(refusedNow);
    }
    if (onAbort) signal?.addEventListener('abort', onAbort, { once: true });
    this.#deadlines.add(pending.deadlineAtMs);
  }

  /** Best effort: a notification that cannot be written is lost, as the protocol allows. */
  notify(method: string, params?: JsonText): HostError | undefined {
    return this.#closed ?? this.#send(notificationFrame(method, params));
  }

  close(): Promise<void> {
    return this.#channel.close();
  }

  /** Gives the connection up: everything owed fails now, and the channel is closed. */
  abandon(error: HostError): Promise<void> {
    this.closed(error);
    return this.#channel.close();
  }

  // --- ChannelListener

  message(envelope: Envelope, origin: OutboundFrame | undefined): void {
    this.#lastMessageAtMs = this.#clock.nowMs();
    this.#heard = true;
    switch (envelope.kind) {
      case 'result':
      case 'error':
        return this.#answered(envelope, origin);
      case 'notification':
        return this.#notified(envelope, origin);
      case 'request':
        return this.#asked(envelope, origin);
    }
  }

  failed(frame: OutboundFrame, error: HostError): void {
    const pending = frame.id === undefined ? undefined : this.#pending.get(frame.id);
    if (pending?.frame !== frame) return;
    this.#forget(frame.id as number, pending);
    this.#tell(pending, error);
  }

  sessionLost(): void {
    this.#guard(() => this.#handlers.sessionLost?.());
  }

  closed(error: HostError): void {
    if (this.#closed) return;
    this.#closed = error;
    this.#deadlines.stop();
    for (const pending of this.#pending.values()) {
      // Whoever heard of another's end may have given this one up.
      if (this.#pending.get(pending.frame.id as number) !== pending) continue;
      this.#forget(pending.frame.id as number, pending);
      this.#tell(pending, lost(this.#server, error, pending.frame));
    }
    this.#inbound.cancelAll();
    this.#guard(() => this.#handlers.closed?.(error));
  }

  // --- answers

  #answered(envelope: Envelope, origin: OutboundFrame | undefined): void {
    const id = envelope.numericId();
    const pending = this.#pending.get(id);
    if (!pending) {
      if (id > 0 && id < this.#nextId) this.counters.late++;
      else this.counters.unknown++;
      return;
    }
    const { frame } = pending;
    if (frame.phase === 'queued' || (origin && origin !== frame)) {
      this.counters.unknown++;
      return;
    }
    frame.phase = 'answered';
    this.#forget(id, pending);
    const { kind, mayHold } = envelope;
    this.#tell(pending, { kind: kind as Answer['kind'], bytes: envelope.payload() as Buffer, mayHold });
  }

  #notified(envelope: Envelope, origin: OutboundFrame | undefined): void {
    const method = envelope.method();
    const params = envelope.payload();
    if (method === NOTIFICATION.progress) return this.#progressed(params);
    if (method === NOTIFICATION.cancelled && this.#cancelledByServer(params)) return;
    this.#guard(() => this.#handlers.notification?.({ method, params, origin: origin?.id }));
  }

  #progressed(params: Buffer | undefined): void {
    const pending = params && this.#ownerOf(params);
    if (!pending || !params) {
      this.counters.late++;
      return;
    }
    const { extend, onProgress } = pending.options;
    if (extend) {
      const { byMs, untilMs } = extend;
      pending.deadlineAtMs = Math.max(pending.deadlineAtMs, Math.min(this.#clock.nowMs() + byMs, untilMs));
    }
    this.#guard(() => onProgress?.(params));
  }

  /** Whose progress it is. Our tokens are numbers: `"7"` is nobody's. */
  #ownerOf(params: Buffer): Pending | undefined {
    const span = findMember(params, 'progressToken');
    const token = span && Number(params.toString('latin1', span.start, span.end));
    if (token === undefined) return undefined;
    const pending = this.#byToken.get(token) ?? this.#pending.get(token);
    // What was not written yet the server cannot report on: it guessed the token.
    return pending?.frame.phase === 'queued' ? undefined : pending;
  }

  /** Ends our own request (how a modern stdio server ends a subscription) or one of the server's. */
  #cancelledByServer(params: Buffer | undefined): boolean {
    const idText = params && memberText(params, 'requestId');
    if (idText === undefined) return false;
    const ours = this.#pending.get(Number(idText));
    // What was not written yet the server cannot know of: it guessed the id.
    if (ours && ours.frame.phase !== 'queued') {
      this.#forget(ours.frame.id as number, ours);
      this.#channel.withdraw(ours.frame);
      this.#tell(
        ours,
        new HostError('cancelled', `server '${this.#server}' cancelled ${ours.frame.method}`, {
          server: this.#server,
          reason: 'by_server',
          phase: ours.frame.phase,
          execution: 'uncertain',
        }),
      );
      return true;
    }
    return this.#inbound.cancel(idText);
  }

  // --- requests of the server's own

  #asked(envelope: Envelope, origin: OutboundFrame | undefined): void {
    if (this.#era === 'modern') {
      this.counters.forbidden++;
      return;
    }
    this.#inbound.receive(envelope, origin?.id);
  }

  // --- sending

  #send(frame: OutboundFrame): HostError | undefined {
    return frame.bytes > LIMITS.frameBytes ? tooLarge(this.#server, frame.bytes) : this.#channel.send(frame);
  }

  // --- giving up

  #refusal(method: string, { deadlineAtMs, signal }: RequestOptions): HostError | undefined {
    const server = this.#server;
    if (this.#closed) return lost(server, this.#closed);
    if (signal?.aborted) return refused(server, 'cancelled', `${method} was cancelled before it was sent`);
    // Written this way round, a deadline that is no number has passed too.
    if (!(deadlineAtMs > this.#clock.nowMs())) {
      return refused(server, 'timeout', `${method} was past its deadline before it was sent`);
    }
    if (this.#pending.size >= LIMITS.pendingRequests) return tooManyPending(server);
    return undefined;
  }

  #giveUp(pending: Pending, code: ErrorCode, why: string): void {
    const { frame } = pending;
    const id = frame.id as number;
    if (this.#pending.get(id) !== pending) return;
    this.#forget(id, pending);
    const withdrawal = this.#channel.withdraw(frame);
    if (withdrawal === 'notify' && !pending.options.uncancellable)
      this.notify(NOTIFICATION.cancelled, `{"requestId":${id},"reason":${JSON.stringify(why)}}`);
    this.#tell(pending, givenUp(this.#server, frame, code, why, withdrawal === 'unsent'));
  }

  #forget(id: number, { options, onAbort }: Pending): void {
    this.#pending.delete(id);
    if (options.isStanding) this.#standing--;
    if (options.progressToken !== undefined) this.#byToken.delete(options.progressToken);
    if (onAbort) options.signal?.removeEventListener('abort', onAbort);
    if (this.#pending.size === this.#standing) this.onClear?.();
  }

  /** Gives up what is past its deadline; returns the earliest deadline that is left. */
  #expire(nowMs: number): number {
    let earliest = Number.POSITIVE_INFINITY;
    for (const pending of this.#pending.values()) {
      if (pending.deadlineAtMs <= nowMs) this.#giveUp(pending, 'timeout', 'no answer by the deadline');
      else if (pending.deadlineAtMs < earliest) earliest = pending.deadlineAtMs;
    }
    return earliest;
  }

  #tell(pending: Pending, outcome: Answer | HostError): void {
    try {
      pending.done(outcome);
    } catch (error) {
      this.#handlers.handlerError?.(error);
    }
  }

  #guard(run: () => void): void {
    try {
      run();
    } catch (error) {
      this.#handlers.handlerError?.(error);
    }
  }
}
