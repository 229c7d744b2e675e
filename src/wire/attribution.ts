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
import type { Cancel, Clock } from '../kernel/clock.js';
import { type MessageOrigin, type OutboundFrame, originId } from './channel.js';
import type { Envelope } from './envelope.js';
import { type InboundRequest, InboundRequests, type RequestHandler } from './inbound-requests.js';
import { METHODS, NOTIFICATION, RPC } from './methods.js';
import type { CauseHandlers, PeerHandlers } from './peer-interface.js';
import {
  AbandonedRequests,
  type CancelNotice,
  type Deadlines,
  type PendingRequest,
  type PendingRequests,
} from './pending-requests.js';

/**
 * Server requests that one call causes together arrive within this time. After it, the call counts as waiting for their answers.
 */
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

  /** A person may take minutes to answer, so the deadline moves to the limit of the caller. */
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

/** Time for which a server may continue the work of an answered request. */
export const recentEndMs = 30_000;

/**
 * Clients with a recently ended request on a connection. Two times are enough for any number of clients: the last end, and the
 * last end of any other client. So memory is constant, and no object is allocated per request.
 */
export class RecentClients {
  /** Client whose request ended last. */
  #last: string | undefined;
  #lastEndAtMs = Number.NEGATIVE_INFINITY;
  /** Last end of a request of any client except `#last`. */
  #othersEndAtMs = Number.NEGATIVE_INFINITY;

  /** `client` undefined: the request was made for no client; all such requests count as one client. */
  ended(client: string | undefined, atMs: number): void {
    if (client !== this.#last) {
      this.#othersEndAtMs = this.#lastEndAtMs;
      this.#last = client;
    }
    this.#lastEndAtMs = atMs;
  }

  hasOther(client: string | undefined, nowMs: number): boolean {
    const endAtMs = client === this.#last ? this.#othersEndAtMs : this.#lastEndAtMs;
    return nowMs - endAtMs < recentEndMs;
  }

  hasAny(nowMs: number): boolean {
    return nowMs - this.#lastEndAtMs < recentEndMs;
  }
}

export type Cause =
  | { readonly kind: 'known'; readonly owner: PendingRequest }
  /** The message belongs to a request that has ended. */
  | { readonly kind: 'over' }
  /** No request in progress could have caused it. */
  | { readonly kind: 'none' }
  /** A recently ended request may have caused it. At most one request is in progress, and it belongs to another client. */
  | { readonly kind: 'ended'; readonly count: number }
  /** Any of `count` requests in progress, or of `abandoned` requests that were given up, could have caused it. */
  | { readonly kind: 'unclear'; readonly count: number; readonly abandoned: number };

const mayCause = (method: string | undefined): boolean => method !== undefined && !METHODS.get(method)?.isHousekeeping;

/** Notifications that belong to the session and not to one request. */
const sessionCause = /\/list_changed$|^notifications\/(?:subscriptions|tasks)(?:\/|$)/;
const isSessionCause = (method: string): boolean =>
  method === NOTIFICATION.resourceUpdated || sessionCause.test(method);

function refusalFor(cause: Cause, method: string): readonly [code: number, message: string] {
  const shown = method.slice(0, methodCharsMax);
  switch (cause.kind) {
    case 'known':
      return [RPC.methodNotFound, `the client cannot be asked for ${shown}`];
    case 'none':
      return [RPC.methodNotFound, `this client does not offer ${shown}`];
    case 'over':
      return [RPC.internalError, 'the request that caused this has ended'];
    case 'ended':
      return [
        RPC.internalError,
        `ambiguous: a request that ended in the last ${recentEndS} s ${mayStillWork}, ${advice}`,
      ];
    case 'unclear':
      return [RPC.internalError, unclear(cause.count, cause.abandoned)];
    default:
      return cause satisfies never;
  }
}

const methodCharsMax = 100;
const recentEndS = recentEndMs / 1_000;
const mayStillWork = 'may still be at work';
const advice = 'Hostler does not guess which one asked; set isolation: per-client';

function unclear(count: number, abandoned: number): string {
  const working = count === 0 ? [] : [`${count} ${count === 1 ? 'request is' : 'requests are'} in progress`];
  const left = `${abandoned} ${count > 0 ? '' : abandoned === 1 ? 'request ' : 'requests '}`;
  const gone = abandoned === 0 ? [] : [`${left}${abandoned === 1 ? 'was' : 'were'} given up and ${mayStillWork}`];
  return `ambiguous: ${[...working, ...gone].join(' and ')}, ${advice}`;
}

export const queuedRequestsMax = 16;
export const queuedRequestMs = 5_000;

interface Queued {
  readonly request: InboundRequest;
  readonly assign: (owner: PendingRequest) => void;
  readonly cancelTimer: Cancel;
}

/**
 * Server requests that arrive before the client has sent a request, for example right after the handshake. They wait for the
 * first client request. On a server shared by several clients such a request is refused at once.
 * Invariant: at most `queuedRequestsMax` are queued, none for longer than `queuedRequestMs`; then each is refused.
 */
export class QueuedServerRequests {
  readonly #clock: Clock;
  readonly #refuse: (request: InboundRequest) => void;
  readonly #queue = new Set<Queued>();

  constructor(clock: Clock, refuse: (request: InboundRequest) => void) {
    this.#clock = clock;
    this.#refuse = refuse;
  }

  get size(): number {
    return this.#queue.size;
  }

  /** `assign` is called at most once, with the client request to which the server request is attributed. */
  add(request: InboundRequest, assign: (owner: PendingRequest) => void): void {
    const queued: Queued = {
      request,
      assign,
      cancelTimer: this.#clock.at(this.#clock.nowMs() + queuedRequestMs, () => {
        this.#queue.delete(queued);
        this.#refuse(request);
      }),
    };
    this.#queue.add(queued);
  }

  remove(request: InboundRequest): void {
    for (const queued of this.#queue) if (queued.request === request) this.#take(queued);
  }

  assignAll(owner: PendingRequest): void {
    for (const queued of [...this.#queue]) {
      // Answering one server request may end another one.
      if (!this.#queue.has(queued)) continue;
      this.#take(queued);
      queued.assign(owner);
    }
  }

  #take(queued: Queued): void {
    queued.cancelTimer();
    this.#queue.delete(queued);
  }
}
