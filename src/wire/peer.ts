/**
 * One JSON-RPC connection: matches answers to requests, enforces deadlines, maps progress, withdraws abandoned requests, and
 * passes on server messages as raw bytes.
 * Not here: moving bytes (transports/), attributing server messages (attribution.ts), MCP methods (session/), retries
 * (policy/).
 * Invariants: every request settles exactly once. An answer settles only the request with its id, and only after that request
 * was written. `execution: "not_executed"` is reported only if no byte was passed to the system.
 */
import type { Clock } from '../kernel/clock.js';
import { type ErrorCode, HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import { Attribution } from './attribution.js';
import {
  type Agreement,
  type Channel,
  type ChannelListener,
  type EraRules,
  type JsonText,
  type MessageOrigin,
  notificationFrame,
  type OutboundFrame,
  originId,
  requestFrame,
  type Withdrawal,
} from './channel.js';
import type { Envelope } from './envelope.js';
import { memberText } from './json-members.js';
import { NOTIFICATION } from './methods.js';
import type { Answer, PeerCounters, PeerHandlers, RequestOptions } from './peer-interface.js';
import { type CancelNotice, Deadlines, type PendingRequest, PendingRequests, refusalOf } from './pending-requests.js';
import { cancelledByServer, givenUp, inboundTooDeep, lost, tooLarge } from './wire-errors.js';

export class Peer implements ChannelListener {
  readonly #counters = { late: 0, unknown: 0, forbidden: 0 };
  readonly pending = new PendingRequests();
  /** Called each time the number of unanswered requests drops to 0. */
  onClear: (() => void) | undefined;
  /** Called for each request that is given up, with the time until which the server may still work on it. */
  onGivenUp: ((allowedUntilMs: number) => void) | undefined;
  readonly #server: string;
  readonly #channel: Channel;
  readonly #clock: Clock;
  readonly #handlers: PeerHandlers;
  readonly #attribution: Attribution;
  readonly #deadlines: Deadlines;
  #nextId = 1;
  #era: EraRules | undefined;
  #closed: HostError | undefined;
  #lastMessageAtMs: number;
  #hasMessage = false;

  /** `isShared: false`: all requests belong to one client, which gets all server requests. */
  constructor(
    server: string,
    channel: Channel,
    clock: Clock,
    handlers: PeerHandlers = {},
    { isShared = true }: { readonly isShared?: boolean | undefined } = {},
  ) {
    this.#server = server;
    this.#channel = channel;
    this.#clock = clock;
    this.#handlers = handlers;
    this.#deadlines = new Deadlines(clock, (nowMs) => this.#expire(nowMs));
    this.#attribution = new Attribution(
      clock,
      this.pending,
      this.#deadlines,
      handlers,
      isShared,
      (frame) => void (this.#closed ?? this.#send(frame)),
    );
    this.#lastMessageAtMs = clock.nowMs();
    channel.start(this);
  }

  get channel(): Channel {
    return this.#channel;
  }

  get counters(): Readonly<PeerCounters> {
    return { ...this.#counters, unattributed: this.#attribution.unattributed };
  }

  get openServerRequests(): number {
    return this.#attribution.openServerRequests;
  }

  get lastMessageAtMs(): number {
    return this.#lastMessageAtMs;
  }

  get hasMessage(): boolean {
    return this.#hasMessage;
  }

  get closedBy(): HostError | undefined {
    return this.#closed;
  }

  /** Id of the next request, which its params need as progress token. */
  get nextId(): number {
    return this.#nextId;
  }

  adopt(agreement: Agreement): void {
    this.#era = agreement.era;
    this.#channel.adopt(agreement);
  }

  /** Rejects with a HostError. A JSON-RPC error of the server is an answer, not a rejection. */
  request(method: string, params: JsonText | undefined, options: RequestOptions): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.requestWithCallback(method, params, options, (outcome) =>
        outcome instanceof HostError ? reject(outcome) : resolve(outcome),
      );
    });
  }

  /** Like `request`. `done` is called once, in the tick of the outcome, possibly before this method returns. */
  requestWithCallback(
    method: string,
    params: JsonText | undefined,
    options: RequestOptions,
    done: PendingRequest['done'],
  ): void {
    const refusal = this.#closed
      ? lost(this.#server, this.#closed)
      : refusalOf(this.#server, method, options, this.pending.size, this.#clock);
    if (refusal) return done(refusal);
    const { signal, deadlineAtMs } = options;
    const id = this.#nextId++;
    const frame = requestFrame(id, method, params, options.http);
    const onAbort = signal ? () => this.#giveUp(pending, 'cancelled', 'the caller cancelled it') : undefined;
    const pending: PendingRequest = {
      frame,
      options,
      done,
      onAbort,
      deadlineAtMs,
      serverRequests: undefined,
      askedAtMs: 0,
      wasAsked: false,
    };
    this.pending.add(pending);
    frame.batch = this.pending.nextBatch();
    const refusedNow = this.#send(frame);
    if (refusedNow) {
      this.#forget(pending);
      return done(refusedNow);
    }
    if (onAbort) signal?.addEventListener('abort', onAbort, { once: true });
    this.#deadlines.add(pending.deadlineAtMs);
    this.#attribution.sent(pending);
  }

  /** Best effort: a notification that cannot be written is lost, as the protocol allows. */
  notify(method: string, params?: JsonText): HostError | undefined {
    return this.#closed ?? this.#send(notificationFrame(method, params));
  }

  close(): Promise<void> {
    return this.#channel.close();
  }

  abandon(error: HostError): Promise<void> {
    this.closed(error);
    return this.#channel.close();
  }

  // --- ChannelListener

  message(envelope: Envelope, origin: MessageOrigin | undefined): void {
    this.#lastMessageAtMs = this.#clock.nowMs();
    this.#hasMessage = true;
    switch (envelope.kind) {
      case 'result':
      case 'error':
        return this.#onAnswer(envelope, origin);
      case 'notification':
        return this.#onNotification(envelope, origin);
      case 'request':
        return this.#onRequest(envelope, origin);
    }
  }

  /** A timer may be late, and a request past its deadline must not be written. */
  beforeWrite(): void {
    this.#deadlines.expireDue();
  }

  failed(frame: OutboundFrame, error: HostError): void {
    const pending = frame.id === undefined ? undefined : this.pending.byId.get(frame.id);
    if (pending?.frame !== frame) return;
    this.#forget(pending);
    // With an HTTP status the server has answered, and no longer works on the request.
    const { execution, httpStatus } = error.details;
    if (execution !== 'not_executed' && httpStatus === undefined) this.#attribution.gaveUp(pending, undefined);
    this.#settle(pending, error);
  }

  tooLarge(id: number, error: HostError): void {
    const pending = this.pending.byId.get(id);
    // A request that was not written cannot have been answered.
    if (pending && pending.frame.phase !== 'queued') this.failed(pending.frame, error.with({ phase: 'answered' }));
  }

  sessionMaybeLost(): void {
    this.#guard(() => this.#handlers.sessionMaybeLost?.());
  }

  stalled(activity: number): void {
    if (!this.#closed) this.#guard(() => this.#handlers.stalled?.(activity));
  }

  closed(error: HostError): void {
    if (this.#closed) return;
    this.#closed = error;
    this.#deadlines.stop();
    for (const pending of this.pending.byId.values()) {
      // A callback of an earlier request may have given this one up.
      if (!this.pending.has(pending)) continue;
      this.#forget(pending);
      this.#settle(pending, lost(this.#server, error, pending.frame));
    }
    this.#attribution.cancelAll();
    this.#guard(() => this.#handlers.closed?.(error));
  }

  // --- answers

  #onAnswer(envelope: Envelope, origin: MessageOrigin | undefined): void {
    const id = envelope.numericId();
    const pending = this.pending.byId.get(id);
    if (!pending) {
      this.#attribution.answeredLate(id);
      if (id > 0 && id < this.#nextId) this.#counters.late++;
      else this.#counters.unknown++;
      return;
    }
    const { frame } = pending;
    const isOfAnother = origin !== undefined && originId(origin) !== id;
    if (frame.phase === 'queued' || isOfAnother) return void this.#counters.unknown++;
    frame.phase = 'answered';
    this.#forget(pending, this.#lastMessageAtMs);
    if (envelope.isTooDeep) return this.#settle(pending, inboundTooDeep(this.#server));
    const { mayHold } = envelope;
    const kind = envelope.kind as Answer['kind'];
    const bytes = envelope.payload() as Buffer;
    this.#settle(pending, pending.wasAsked ? { kind, bytes, mayHold, wasAsked: true } : { kind, bytes, mayHold });
  }

  #onNotification(envelope: Envelope, origin: MessageOrigin | undefined): void {
    const method = envelope.method();
    const params = envelope.payload();
    if (method === NOTIFICATION.progress) return this.#onProgress(params);
    if (method === NOTIFICATION.cancelled && this.#cancelledByServer(params)) return;
    const listener = this.#attribution.listenerFor(method, origin);
    if (listener) this.#guard(() => listener(method, params));
    else this.#guard(() => this.#handlers.notification?.({ method, params, origin: originId(origin) }));
  }

  #onProgress(params: Buffer | undefined): void {
    const pending = params && this.pending.findByProgress(params);
    if (!pending || !params) {
      this.#counters.late++;
      return;
    }
    const { extend, onProgress } = pending.options;
    if (extend) {
      const { byMs, untilMs } = extend;
      pending.deadlineAtMs = Math.max(pending.deadlineAtMs, Math.min(this.#clock.nowMs() + byMs, untilMs));
    }
    this.#guard(() => onProgress?.(params));
  }

  /**
   * Ends a request of the peer (a modern stdio server ends a subscription this way) or a server request.
   * A legacy server uses the same request numbers as the peer, and can cancel only its own requests.
   */
  #cancelledByServer(params: Buffer | undefined): boolean {
    const ours = this.#era?.hasServerCancel === false ? undefined : params && this.pending.findByCancel(params);
    if (!ours) {
      const idText = params && memberText(params, 'requestId');
      return idText !== undefined && this.#attribution.cancel(idText);
    }
    this.#forget(ours);
    this.#channel.withdraw(ours.frame);
    this.#settle(ours, cancelledByServer(this.#server, ours.frame));
    return true;
  }

  // --- server requests

  #onRequest(envelope: Envelope, origin: MessageOrigin | undefined): void {
    if (this.#era?.hasServerRequests === false) {
      this.#counters.forbidden++;
      return;
    }
    this.#attribution.receive(envelope, origin);
  }

  // --- sending and giving up

  #send(frame: OutboundFrame): HostError | undefined {
    return frame.bytes > LIMITS.frameBytes ? tooLarge(this.#server, frame.bytes) : this.#channel.send(frame);
  }

  #giveUp(pending: PendingRequest, code: ErrorCode, why: string): void {
    if (this.pending.has(pending)) this.#endPending(pending, this.#withdraw(pending), code, why);
  }

  #withdraw(pending: PendingRequest): Withdrawal {
    this.#forget(pending);
    return this.#channel.withdraw(pending.frame);
  }

  #endPending(pending: PendingRequest, withdrawal: Withdrawal, code: ErrorCode, why: string): void {
    const { frame, options, deadlineAtMs } = pending;
    if (!options.isLongLived) {
      const { allowedUntilMs = deadlineAtMs } = options.extend ?? {};
      this.onGivenUp?.(withdrawal === 'unsent' ? Number.NEGATIVE_INFINITY : Math.max(deadlineAtMs, allowedUntilMs));
    }
    if (withdrawal !== 'unsent') this.#attribution.gaveUp(pending, this.#notifyCancelled(pending, withdrawal, why));
    this.#settle(pending, givenUp(this.#server, frame, code, why, withdrawal === 'unsent'));
  }

  /** Returns how the server learns of the cancellation. */
  #notifyCancelled({ frame, options }: PendingRequest, withdrawal: Withdrawal, why: string): CancelNotice {
    if (withdrawal === 'aborted') return 'stream_ended';
    if (options.uncancellable || this.#closed) return undefined;
    const params = `{"requestId":${frame.id},"reason":${JSON.stringify(why)}}`;
    const notice = notificationFrame(NOTIFICATION.cancelled, params);
    return this.#send(notice) ? undefined : notice;
  }

  #forget(pending: PendingRequest, nowMs = this.#clock.nowMs()): void {
    const { options, onAbort } = pending;
    this.pending.delete(pending);
    this.#attribution.ended(pending, nowMs);
    if (onAbort) options.signal?.removeEventListener('abort', onAbort);
    if (this.pending.unanswered === 0) this.onClear?.();
  }

  #expire(nowMs: number): number {
    const { unsent, sent, nextAtMs } = this.pending.due(nowMs);
    // Unsent requests first: over HTTP the connection of a withdrawn request is given to the next waiting request.
    const withdrawn = [...unsent, ...sent].map((pending) => [pending, this.#withdraw(pending)] as const);
    // Only after all are withdrawn: sending a cancel notification would also write the requests that are still queued.
    for (const [pending, withdrawal] of withdrawn)
      this.#endPending(pending, withdrawal, 'timeout', 'no answer by the deadline');
    return nextAtMs;
  }

  #settle(pending: PendingRequest, outcome: Answer | HostError): void {
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
