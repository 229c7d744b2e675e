/**
 * Attributes what a server sends on its own to the request that caused it: its requests to a client (legacy era) and notifications.
 * Not here: which request that is (cause.ts), bounds on open server requests (inbound-requests.ts).
 *
 * Invariants: a server request or log line reaches the one request that certainly caused it, or the handler of the connection, or
 * no client (with a single client, its newest or next request counts as the cause); when a request ends, the server requests
 * attributed to it end; while one of those is open, the server waits for us and does not count as silent.
 */
import type { Clock } from '../kernel/clock.js';
import { AbandonedRequests, type CancelNotice } from './abandoned-requests.js';
import { type Cause, causeOf, isOfSession, mayCause, RecentClients, refusalFor } from './cause.js';
import { type MessageOrigin, type OutboundFrame, originId } from './channel.js';
import type { Envelope } from './envelope.js';
import type { IdTable } from './id-table.js';
import { type InboundRequest, InboundRequests, type Taker } from './inbound-requests.js';
import { QueuedServerRequests, queuedRequestsMax } from './queued-server-requests.js';
import { NOTIFICATION, RPC } from './rpc-codes.js';

/** Each progress moves the deadline to at least now + `byMs`, but never past `untilMs`. */
export interface DeadlineExtension {
  readonly byMs: number;
  readonly untilMs: number;
  /** How long the server may take, even if its caller allows less. Absent: until the deadline of the request. */
  readonly allowedUntilMs?: number;
}

/** Receivers of what a server sends because of a request. */
export interface CauseHandlers {
  /** Takes and answers a server request that this request caused. Without it the server request is refused. */
  readonly onServerRequest?: ((request: InboundRequest) => void) | undefined;
  /** Other notifications that this request caused. Progress goes to `onProgress`. */
  readonly onServerNotification?: ((method: string, params: Buffer | undefined) => void) | undefined;
}

/** A request of ours in progress. */
export interface Attributable {
  readonly frame: OutboundFrame;
  readonly options: CauseHandlers & {
    readonly extend?: DeadlineExtension | undefined;
    /** Opaque, the same for all requests of one client. */
    readonly client?: string | undefined;
  };
  deadlineAtMs: number;
  /** Server requests that it caused and that wait for an answer; undefined when there never was one. */
  serverRequests: Set<InboundRequest> | undefined;
  /** When the last of them came. */
  askedAtMs: number;
  /** The server has sent a request because of it, or may have. */
  wasAsked: boolean;
}

interface AttributionParts<T extends Attributable> {
  readonly clock: Clock;
  readonly underway: IdTable<T>;
  /** False: all requests are of one client. */
  readonly isShared: boolean;
  /** Handlers of the connection as a whole. */
  readonly handlers: { request?(request: InboundRequest): void };
  readonly send: (frame: OutboundFrame) => void;
  readonly handlerError: (error: unknown) => void;
  /** A server request or log line reached no client, because several requests could have caused it. */
  readonly unattributed: (method: string) => void;
  /** A deadline may be earlier now. */
  readonly deadlineMoved: (atMs: number) => void;
}

/** Server requests that one call causes together come within this time; later, the call waits for their answer. */
export const askTogetherMs = 250;

export class Attribution<T extends Attributable> {
  /** Server requests and log lines that reached no client, because several requests could have caused them. */
  unattributed = 0;
  readonly #parts: AttributionParts<T>;
  readonly #inbound: InboundRequests;
  readonly #abandoned: AbandonedRequests;
  readonly #recent = new RecentClients();
  /** Only for servers with a single client. */
  readonly #queued: QueuedServerRequests<T>;

  constructor(parts: AttributionParts<T>) {
    this.#parts = parts;
    this.#inbound = new InboundRequests(parts.send, parts.handlerError);
    this.#abandoned = new AbandonedRequests(parts.clock);
    this.#queued = new QueuedServerRequests(parts.clock, (request) =>
      request.refuse(...refusalFor({ kind: 'none' }, request.method)),
    );
  }

  /** Server requests that wait for our answer. */
  get openServerRequests(): number {
    return this.#inbound.size;
  }

  receive(envelope: Envelope, origin: MessageOrigin | undefined): void {
    this.#inbound.receive(envelope, originId(origin), ({ method }) => this.#takerOf(method, origin));
  }

  /** A request of ours was sent: queued server requests are attributed to it. */
  sent(owner: T): void {
    if (this.#queued.size === 0 || !mayCause(owner.frame.method)) return;
    // In a microtask: the sender may not be ready for server requests yet.
    queueMicrotask(() => {
      if (this.#parts.underway.get(owner.frame.id as number) === owner) this.#queued.assignAll(owner);
    });
  }

  /** The receiver of a notification, if its cause is certain. */
  listenerFor(method: string, origin: MessageOrigin | undefined): CauseHandlers['onServerNotification'] {
    const isLate = method === NOTIFICATION.elicitationComplete && this.#parts.isShared;
    // A URL elicitation may complete long after its call has ended.
    if (isOfSession(method) || (isLate && origin === undefined)) return undefined;
    // A request whose server request is open may still cause notifications.
    const cause = this.#causeOf(origin, undefined);
    if (cause.kind === 'known') return cause.owner.options.onServerNotification;
    // A log line that comes while no request is in progress is not counted: no client waits for it.
    if (isInDoubt(cause) && cause.count > 0 && method === NOTIFICATION.message) this.#noteUnattributed(method);
    return undefined;
  }

  /** The server cancelled its request. False when there is no such request. */
  cancel(idText: string): boolean {
    return this.#inbound.cancel(idText);
  }

  cancelAll(): void {
    this.#inbound.cancelAll();
  }

  /** The request is over: the server requests that it caused end without an answer. */
  ended({ serverRequests, frame, options }: T, nowMs: number): void {
    if (serverRequests) for (const request of [...serverRequests]) this.#inbound.cancel(request.idText);
    if (this.#parts.isShared && frame.phase !== 'queued' && mayCause(frame.method))
      this.#recent.ended(options.client, nowMs);
  }

  /** The request was given up, and the server may not know that yet. */
  gaveUp({ frame, options }: T, notice: CancelNotice): void {
    const { id, method, phase } = frame;
    if (mayCause(method) && phase !== 'queued') this.#abandoned.add(id as number, notice, options.client);
  }

  /** An answer came to a request that was given up: only now has the server ended it. */
  answeredLate(id: number): void {
    const abandoned = this.#abandoned.answered(id);
    if (abandoned && this.#parts.isShared) this.#recent.ended(abandoned.client, this.#parts.clock.nowMs());
  }

  #takerOf(method: string, origin: MessageOrigin | undefined): Taker | readonly [number, string] {
    const cause = this.#causeOf(origin, this.#isWaiting);
    if (cause.kind === 'known') {
      const { owner } = cause;
      owner.wasAsked = true;
      const { onServerRequest } = owner.options;
      if (onServerRequest) return this.#takerFor(owner, onServerRequest);
    } else if (isInDoubt(cause)) this.#suspectAll();
    const { handlers } = this.#parts;
    if (handlers.request) return { take: (request) => handlers.request?.(request) };
    if (cause.kind === 'none' && !this.#parts.isShared && this.#queued.size < queuedRequestsMax)
      return this.#takerLater();
    if (isInDoubt(cause)) this.#noteUnattributed(method);
    return refusalFor(cause, method);
  }

  #takerFor(owner: T, take: (request: InboundRequest) => void): Taker {
    return {
      take: (request) => {
        owner.serverRequests ??= new Set();
        owner.serverRequests.add(request);
        owner.askedAtMs = this.#parts.clock.nowMs();
        this.#suspend(owner);
        take(request);
      },
      over: (request) => {
        owner.serverRequests?.delete(request);
        if (owner.serverRequests?.size === 0) this.#resume(owner);
      },
    };
  }

  /** Queues the server request until there is a request of ours to attribute it to. */
  #takerLater(): Taker {
    let taker: Taker | undefined;
    return {
      take: (request) =>
        this.#queued.add(request, (owner) => {
          owner.wasAsked = true;
          const { onServerRequest } = owner.options;
          if (!onServerRequest) return request.refuse(...refusalFor({ kind: 'known', owner }, request.method));
          taker = this.#takerFor(owner, onServerRequest);
          try {
            taker.take(request);
          } catch (error) {
            request.refuse(RPC.internalError, 'the request could not be handled');
            this.#parts.handlerError(error);
          }
        }),
      over: (request) => {
        this.#queued.remove(request);
        taker?.over?.(request);
      },
    };
  }

  /** A person may take minutes to answer, while the server is not silent. The caller's own limit stays. */
  #suspend(owner: T): void {
    const { extend } = owner.options;
    if (extend) owner.deadlineAtMs = Math.max(owner.deadlineAtMs, extend.untilMs);
  }

  #resume(owner: T): void {
    const { extend } = owner.options;
    const isOpen = this.#parts.underway.get(owner.frame.id as number) === owner;
    if (!extend || !isOpen) return;
    owner.deadlineAtMs = Math.min(this.#parts.clock.nowMs() + extend.byMs, extend.untilMs);
    this.#parts.deadlineMoved(owner.deadlineAtMs);
  }

  /** Any of them may have caused the refused server request, so none of their answers may be cached or shared. */
  #suspectAll(): void {
    this.#parts.underway.forEach((one) => {
      if (mayCause(one.frame.method)) one.wasAsked = true;
    });
  }

  readonly #isWaiting = ({ serverRequests, askedAtMs }: T): boolean =>
    serverRequests !== undefined && serverRequests.size > 0 && this.#parts.clock.nowMs() - askedAtMs > askTogetherMs;

  #causeOf(origin: MessageOrigin | undefined, isWaiting: ((one: T) => boolean) | undefined): Cause<T> {
    const { underway, isShared, clock } = this.#parts;
    const nowMs = clock.nowMs();
    return causeOf(underway, {
      origin,
      abandoned: this.#abandoned.count,
      isShared,
      isWaiting,
      recent: this.#recent,
      nowMs,
    });
  }

  #noteUnattributed(method: string): void {
    this.unattributed++;
    this.#parts.unattributed(method);
  }
}

/** Some request caused it, and it is not known which one. */
const isInDoubt = (cause: Cause<unknown>): cause is Extract<Cause<unknown>, { readonly count: number }> =>
  cause.kind === 'unclear' || cause.kind === 'ended';
