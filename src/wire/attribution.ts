/**
 * Attributes server requests (legacy era) and notifications to the client request that caused them.
 * An origin from the channel is proof: the response stream of one request (HTTP), or a request id named by the server. Without
 * an origin, the only request in progress is the cause, unless a request of another client ended recently. With two requests of
 * one client, a request that waits for the answer to its server request is excluded.
 * Not here: bounds on open server requests (inbound-requests.ts).
 * Invariants: in doubt there is no cause, because a guess would show one client a message for another. With a single client,
 * its newest or next request counts as the cause. When a request ends, its server requests end. While one of these is open, the
 * server waits for an answer and does not count as silent.
 */
import type { Clock } from '../kernel/clock.js';
import { AbandonedRequests, type CancelNotice } from './abandoned-requests.js';
import { type Cause, isSessionCause, mayCause, RecentClients, refusalFor } from './cause.js';
import { type MessageOrigin, type OutboundFrame, originId } from './channel.js';
import type { Deadlines } from './deadlines.js';
import type { Envelope } from './envelope.js';
import { type InboundRequest, InboundRequests, type RequestHandler } from './inbound-requests.js';
import type { CauseHandlers, PeerHandlers } from './peer-interface.js';
import type { PendingRequest, PendingRequests } from './pending-requests.js';
import { QueuedServerRequests, queuedRequestsMax } from './queued-server-requests.js';
import { NOTIFICATION, RPC } from './rpc-codes.js';

/** Server requests that one call sends together arrive within this time. After it, the call waits for their answers. */
export const askTogetherMs = 250;

export class Attribution {
  /** Number of server requests and log lines that reached no client, because several requests could have caused them. */
  unattributed = 0;
  readonly #clock: Clock;
  readonly #pending: PendingRequests;
  readonly #deadlines: Deadlines;
  readonly #handlers: PeerHandlers;
  readonly #isShared: boolean;
  readonly #inbound: InboundRequests;
  readonly #abandoned: AbandonedRequests;
  readonly #recent = new RecentClients();
  /** Used only for a server with a single client. */
  readonly #queued: QueuedServerRequests;

  /** `isShared` false: all requests belong to one client. */
  constructor(
    clock: Clock,
    pending: PendingRequests,
    deadlines: Deadlines,
    handlers: PeerHandlers,
    isShared: boolean,
    send: (frame: OutboundFrame) => void,
  ) {
    this.#clock = clock;
    this.#pending = pending;
    this.#deadlines = deadlines;
    this.#handlers = handlers;
    this.#isShared = isShared;
    this.#inbound = new InboundRequests(send, (error) => handlers.handlerError?.(error));
    this.#abandoned = new AbandonedRequests(clock);
    this.#queued = new QueuedServerRequests(clock, (request) =>
      request.refuse(...refusalFor({ kind: 'none' }, request.method)),
    );
  }

  get openServerRequests(): number {
    return this.#inbound.size;
  }

  receive(envelope: Envelope, origin: MessageOrigin | undefined): void {
    this.#inbound.receive(envelope, originId(origin), ({ method }) => this.#handlerOf(method, origin));
  }

  /** Attributes queued server requests to this new request. */
  sent(owner: PendingRequest): void {
    if (this.#queued.size === 0 || !mayCause(owner.frame.method)) return;
    // In a microtask, because the sender may not be ready for server requests yet.
    queueMicrotask(() => {
      if (this.#pending.has(owner)) this.#queued.assignAll(owner);
    });
  }

  listenerFor(method: string, origin: MessageOrigin | undefined): CauseHandlers['onServerNotification'] {
    const isLate = method === NOTIFICATION.elicitationComplete && this.#isShared;
    // A URL elicitation may complete long after its call has ended.
    if (isSessionCause(method) || (isLate && origin === undefined)) return undefined;
    // A request with an open server request may still cause notifications.
    const cause = this.#causeOf(origin, false);
    if (cause.kind === 'known') return cause.owner.options.onServerNotification;
    // A log line without a request in progress is not counted, because no client waits for it.
    if (isInDoubt(cause) && cause.count > 0 && method === NOTIFICATION.message) this.#noteUnattributed(method);
    return undefined;
  }

  /** Returns false if the server has no such open request. */
  cancel(idText: string): boolean {
    return this.#inbound.cancel(idText);
  }

  cancelAll(): void {
    this.#inbound.cancelAll();
  }

  /** Server requests caused by this request end without an answer. */
  ended({ serverRequests, frame, options }: PendingRequest, nowMs: number): void {
    if (serverRequests) for (const request of [...serverRequests]) this.#inbound.cancel(request.idText);
    if (this.#isShared && frame.phase !== 'queued' && mayCause(frame.method)) this.#recent.ended(options.client, nowMs);
  }

  gaveUp({ frame, options }: PendingRequest, notice: CancelNotice): void {
    const { id, method, phase } = frame;
    if (mayCause(method) && phase !== 'queued') this.#abandoned.add(id as number, notice, options.client);
  }

  /** A late answer shows that the server has ended a request that was given up. */
  answeredLate(id: number): void {
    const abandoned = this.#abandoned.answered(id);
    if (abandoned && this.#isShared) this.#recent.ended(abandoned.client, this.#clock.nowMs());
  }

  #handlerOf(method: string, origin: MessageOrigin | undefined): RequestHandler | readonly [number, string] {
    const cause = this.#causeOf(origin, true);
    if (cause.kind === 'known') {
      const { owner } = cause;
      owner.wasAsked = true;
      const { onServerRequest } = owner.options;
      if (onServerRequest) return this.#handlerForCall(owner, onServerRequest);
    } else if (isInDoubt(cause)) this.#suspectAll();
    const handlers = this.#handlers;
    if (handlers.request) return { handle: (request) => handlers.request?.(request) };
    if (cause.kind === 'none' && !this.#isShared && this.#queued.size < queuedRequestsMax)
      return this.#queueingHandler();
    if (isInDoubt(cause)) this.#noteUnattributed(method);
    return refusalFor(cause, method);
  }

  #handlerForCall(owner: PendingRequest, take: (request: InboundRequest) => void): RequestHandler {
    return {
      handle: (request) => {
        owner.serverRequests ??= new Set();
        owner.serverRequests.add(request);
        owner.askedAtMs = this.#clock.nowMs();
        this.#suspend(owner);
        take(request);
      },
      ended: (request) => {
        owner.serverRequests?.delete(request);
        if (owner.serverRequests?.size === 0) this.#resume(owner);
      },
    };
  }

  /** Queues the server request until a client request exists to attribute it to. */
  #queueingHandler(): RequestHandler {
    let handler: RequestHandler | undefined;
    return {
      handle: (request) =>
        this.#queued.add(request, (owner) => {
          owner.wasAsked = true;
          const { onServerRequest } = owner.options;
          if (!onServerRequest) return request.refuse(...refusalFor({ kind: 'known', owner }, request.method));
          handler = this.#handlerForCall(owner, onServerRequest);
          try {
            handler.handle(request);
          } catch (error) {
            request.refuse(RPC.internalError, 'the request could not be handled');
            this.#handlers.handlerError?.(error);
          }
        }),
      ended: (request) => {
        this.#queued.remove(request);
        handler?.ended?.(request);
      },
    };
  }

  /** A person may take minutes to answer, while the server is not silent. The limit of the caller still applies. */
  #suspend(owner: PendingRequest): void {
    const { extend } = owner.options;
    if (extend) owner.deadlineAtMs = Math.max(owner.deadlineAtMs, extend.untilMs);
  }

  #resume(owner: PendingRequest): void {
    const { extend } = owner.options;
    if (!extend || !this.#pending.has(owner)) return;
    owner.deadlineAtMs = Math.min(this.#clock.nowMs() + extend.byMs, extend.untilMs);
    this.#deadlines.add(owner.deadlineAtMs);
  }

  /** Any of these requests may have caused the refused server request, so none of their answers may be cached or shared. */
  #suspectAll(): void {
    this.#pending.byId.forEach((one) => {
      if (mayCause(one.frame.method)) one.wasAsked = true;
    });
  }

  /** Whether a request waits for the answer to an earlier server request, and so did not cause this one. */
  #isWaiting({ serverRequests, askedAtMs }: PendingRequest, nowMs: number): boolean {
    return serverRequests !== undefined && serverRequests.size > 0 && nowMs - askedAtMs > askTogetherMs;
  }

  #causeOf(origin: MessageOrigin | undefined, isServerRequest: boolean): Cause {
    const { byId } = this.#pending;
    if (origin !== undefined) {
      const id = originId(origin);
      const owner = id === undefined ? undefined : byId.get(id);
      // A request that was not written yet cannot be the cause: the server guessed its id.
      return owner && owner.frame.phase !== 'queued' ? { kind: 'known', owner } : { kind: 'over' };
    }
    const nowMs = this.#clock.nowMs();
    let newest: PendingRequest | undefined;
    let count = 0;
    let asking: PendingRequest | undefined;
    let askingCount = 0;
    let isOneClient = true;
    byId.forEach((one) => {
      if (!mayCause(one.frame.method) || one.frame.phase === 'queued') return;
      count++;
      if (newest !== undefined && one.options.client !== newest.options.client) isOneClient = false;
      if (newest === undefined || (one.frame.id as number) > (newest.frame.id as number)) newest = one;
      if (isServerRequest && this.#isWaiting(one, nowMs)) return;
      askingCount++;
      asking = one;
    });
    if (newest !== undefined && !this.#isShared) return { kind: 'known', owner: newest };
    const abandoned = this.#abandoned.count;
    if (count + abandoned === 0) return this.#recent.hasAny(nowMs) ? { kind: 'ended', count } : { kind: 'none' };
    const owner: PendingRequest | undefined =
      count === 1 ? newest : isOneClient && askingCount === 1 ? asking : undefined;
    if (owner === undefined || abandoned > 0) return { kind: 'unclear', count, abandoned };
    return this.#recent.hasOther(owner.options.client, nowMs) ? { kind: 'ended', count } : { kind: 'known', owner };
  }

  #noteUnattributed(method: string): void {
    this.unattributed++;
    try {
      this.#handlers.unattributed?.(method);
    } catch (error) {
      this.#handlers.handlerError?.(error);
    }
  }
}

const isInDoubt = (cause: Cause): cause is Extract<Cause, { readonly count: number }> =>
  cause.kind === 'unclear' || cause.kind === 'ended';
