/**
 * What a server says on its own, brought to the request that caused it: its questions to a client (legacy era) and its notes.
 * Not here: who that is (cause.ts), bounds on what waits for an answer (inbound-requests.ts).
 *
 * Invariants: a question or a log line reaches the one request that is surely behind it, or the handler of the connection as a
 * whole, or no client (where all requests are of one client, the newest of them, or the next that comes, will do); when a request
 * ends, its questions end; while one is open the server is not silent, it waits for us.
 */
import type { Clock } from '../kernel/clock.js';
import { type Cause, causeOf, isOfSession, mayCause, refusalFor } from './cause.js';
import type { OutboundFrame } from './channel.js';
import type { Envelope } from './envelope.js';
import { Ghosts, type Told } from './ghosts.js';
import { HeldAsks, heldAsksMax } from './held-asks.js';
import type { IdTable } from './id-table.js';
import type { InboundRequest } from './inbound-request.js';
import { InboundRequests, type Taker } from './inbound-requests.js';
import { type MessageOrigin, originId } from './message-origin.js';
import { RecentClients } from './recent-clients.js';
import { NOTIFICATION, RPC } from './rpc-codes.js';

/** Each progress moves the deadline to at least now + `byMs`, but never past `untilMs`. */
export interface DeadlineExtension {
  readonly byMs: number;
  readonly untilMs: number;
  /** How long the server may take, even if its caller allows less. Absent: until the deadline of the request. */
  readonly allowedUntilMs?: number;
}

/** Who is told what a server says because of a request. */
export interface CauseHandlers {
  /** Takes what the server asks because of this request, and answers it. Without it the server is refused. */
  readonly onServerRequest?: ((request: InboundRequest) => void) | undefined;
  /** What else the server says because of this request. Progress goes to `onProgress`. */
  readonly onServerNotification?: ((method: string, params: Buffer | undefined) => void) | undefined;
}

/** A request of ours that is under way, as far as this is concerned with it. */
export interface Attributable {
  readonly frame: OutboundFrame;
  readonly options: CauseHandlers & {
    readonly extend?: DeadlineExtension | undefined;
    /** Opaque, the same for all requests of one client. */
    readonly client?: string | undefined;
  };
  deadlineAtMs: number;
  /** Questions of the server's that wait for an answer; undefined when there never was one. */
  asks: Set<InboundRequest> | undefined;
  /** When the last question was taken. */
  askedAtMs: number;
  /** The server has asked something, or may have, because of it. */
  wasAsked: boolean;
}

export interface AttributionParts<T extends Attributable> {
  readonly clock: Clock;
  readonly underway: IdTable<T>;
  /** False: all requests are of one client. */
  readonly isShared: boolean;
  /** Of the connection as a whole. */
  readonly handlers: { request?(request: InboundRequest): void };
  readonly send: (frame: OutboundFrame) => void;
  readonly handlerError: (error: unknown) => void;
  /** A question or a log line reached no client, because several requests could be behind it. */
  readonly unattributed: (method: string) => void;
  /** A deadline may have come closer. */
  readonly deadlineMoved: (atMs: number) => void;
}

/** What one request asks at once comes within this time; who asked before it waits for the answer. */
export const askTogetherMs = 250;

export class Attribution<T extends Attributable> {
  /** Questions and log lines that reached no client, because several requests could be behind them. */
  unattributed = 0;
  readonly #parts: AttributionParts<T>;
  readonly #inbound: InboundRequests;
  readonly #ghosts: Ghosts;
  readonly #recent = new RecentClients();
  /** Of one client's server only. */
  readonly #held: HeldAsks<T>;

  constructor(parts: AttributionParts<T>) {
    this.#parts = parts;
    this.#inbound = new InboundRequests(parts.send, parts.handlerError);
    this.#ghosts = new Ghosts(parts.clock);
    this.#held = new HeldAsks(parts.clock, (request) =>
      request.refuse(...refusalFor({ kind: 'none' }, request.method)),
    );
  }

  /** Questions of the server's that wait for our answer. */
  get asks(): number {
    return this.#inbound.size;
  }

  asked(envelope: Envelope, origin: MessageOrigin | undefined): void {
    this.#inbound.receive(envelope, originId(origin), ({ method }) => this.#takerOf(method, origin));
  }

  /** A request of ours is on its way: it is what the server waited for, if it asked before anybody had asked it anything. */
  sent(owner: T): void {
    if (this.#held.size === 0 || !mayCause(owner.frame.method)) return;
    // In a tick of its own: whoever sends it may not be prepared to be asked yet.
    queueMicrotask(() => {
      if (this.#parts.underway.get(owner.frame.id as number) === owner) this.#held.giveAll(owner);
    });
  }

  /** Who is told of it, if that is certain. */
  listenerFor(method: string, origin: MessageOrigin | undefined): CauseHandlers['onServerNotification'] {
    const isLate = method === NOTIFICATION.elicitationComplete && this.#parts.isShared;
    // That somebody is done elsewhere may be told long after the call that sent them there has ended.
    if (isOfSession(method) || (isLate && origin === undefined)) return undefined;
    // A request that waits for an answer may still say something.
    const cause = this.#causeOf(origin, undefined);
    if (cause.kind === 'known') return cause.owner.options.onServerNotification;
    // A server that logs while it has nothing to do tells no client anything: no client is kept from it either.
    if (isInDoubt(cause) && cause.count > 0 && method === NOTIFICATION.message) this.#noteUnattributed(method);
    return undefined;
  }

  /** The server no longer wants an answer. False when there is no such question. */
  cancel(idText: string): boolean {
    return this.#inbound.cancel(idText);
  }

  cancelAll(): void {
    this.#inbound.cancelAll();
  }

  /** The request is over: nobody is asked any more because of it, and the server gets no answer. */
  ended({ asks, frame, options }: T, nowMs: number): void {
    if (asks) for (const request of [...asks]) this.#inbound.cancel(request.idText);
    if (this.#parts.isShared && frame.phase !== 'queued' && mayCause(frame.method))
      this.#recent.ended(options.client, nowMs);
  }

  /** It was given up, and the server may not have heard of that yet. `told`: how it does. */
  gaveUp({ frame, options }: T, told: Told): void {
    const { id, method, phase } = frame;
    if (mayCause(method) && phase !== 'queued') this.#ghosts.add(id as number, told, options.client);
  }

  /** An answer came to what is no longer under way: only now has the server ended it. */
  answeredLate(id: number): void {
    const ghost = this.#ghosts.answered(id);
    if (ghost && this.#parts.isShared) this.#recent.ended(ghost.client, this.#parts.clock.nowMs());
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
    if (cause.kind === 'none' && !this.#parts.isShared && this.#held.size < heldAsksMax) return this.#takerLater();
    if (isInDoubt(cause)) this.#noteUnattributed(method);
    return refusalFor(cause, method);
  }

  #takerFor(owner: T, take: (request: InboundRequest) => void): Taker {
    return {
      take: (request) => {
        owner.asks ??= new Set();
        owner.asks.add(request);
        owner.askedAtMs = this.#parts.clock.nowMs();
        this.#suspend(owner);
        take(request);
      },
      over: (request) => {
        owner.asks?.delete(request);
        if (owner.asks?.size === 0) this.#resume(owner);
      },
    };
  }

  /** Nobody yet; once there is somebody, it is as if that one had been there from the start. */
  #takerLater(): Taker {
    let taker: Taker | undefined;
    return {
      take: (request) =>
        this.#held.hold(request, (owner) => {
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
        this.#held.drop(request);
        taker?.over?.(request);
      },
    };
  }

  /** A person may take minutes to answer: that is no silence of the server. What the caller itself allows stays. */
  #suspend(owner: T): void {
    const { extend } = owner.options;
    if (extend) owner.deadlineAtMs = Math.max(owner.deadlineAtMs, extend.untilMs);
  }

  #resume(owner: T): void {
    const { extend } = owner.options;
    const isUnderway = this.#parts.underway.get(owner.frame.id as number) === owner;
    if (!extend || !isUnderway) return;
    owner.deadlineAtMs = Math.min(this.#parts.clock.nowMs() + extend.byMs, extend.untilMs);
    this.#parts.deadlineMoved(owner.deadlineAtMs);
  }

  /** Any of them may have been the one that was refused: its answer is not what it would be at another time. */
  #suspectAll(): void {
    this.#parts.underway.forEach((one) => {
      if (mayCause(one.frame.method)) one.wasAsked = true;
    });
  }

  readonly #isWaiting = ({ asks, askedAtMs }: T): boolean =>
    asks !== undefined && asks.size > 0 && this.#parts.clock.nowMs() - askedAtMs > askTogetherMs;

  #causeOf(origin: MessageOrigin | undefined, isWaiting: ((one: T) => boolean) | undefined): Cause<T> {
    const { underway, isShared, clock } = this.#parts;
    const nowMs = clock.nowMs();
    return causeOf(underway, { origin, ghosts: this.#ghosts.count, isShared, isWaiting, recent: this.#recent, nowMs });
  }

  #noteUnattributed(method: string): void {
    this.unattributed++;
    this.#parts.unattributed(method);
  }
}

/** Some request may be behind it, and it cannot be told which. */
const isInDoubt = (cause: Cause<unknown>): cause is Extract<Cause<unknown>, { readonly count: number }> =>
  cause.kind === 'unclear' || cause.kind === 'ended';
