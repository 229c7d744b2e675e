import type { Dispatcher } from 'undici';
import type { Cancel } from '../../kernel/clock.js';
import type { HostError } from '../../kernel/errors.js';
import type { OutboundFrame } from '../../wire/channel.js';
import { type ChannelCounters, newCounters } from '../../wire/envelope.js';
import { isEventStream, type ResponseHeaders } from './headers.js';
import { type ExchangeSink, type HttpExchange, PostedFrame } from './http-exchange.js';
import type { HttpDeps } from './http-pool.js';

/**
 * FIFO queue of requests that wait for a connection.
 * A hold pauses the queue while a session is opened, because a call must not overtake the messages that open it.
 * Invariant: no request waits while a slot is free and no hold is active.
 */
export class CallQueue<Call extends { giveUp(): void }> {
  readonly #slots: ConnectionSlots;
  readonly #dispatch: (call: Call) => void;
  readonly #waiting = new Set<Call>();
  /** Answered calls whose stream the server has not closed. These are closed first when a connection is needed. */
  readonly #lingering = new Set<Call>();
  #holds = 0;

  constructor(slots: ConnectionSlots, dispatch: (call: Call) => void) {
    this.#slots = slots;
    this.#dispatch = dispatch;
    slots.subscribe(
      () => this.#drain(),
      () => this.#spare(),
    );
  }

  add(call: Call): void {
    if (this.#holds === 0 && this.#slots.take()) return this.#dispatch(call);
    this.#waiting.add(call);
    this.#slots.want();
  }

  /** Returns true if the call was waiting. No byte of it was sent, and none will be. */
  remove(call: Call): boolean {
    return this.#waiting.delete(call);
  }

  linger(call: Call): void {
    this.#lingering.add(call);
    if (this.#slots.isWanted) call.giveUp();
  }

  released(call: Call): void {
    this.#lingering.delete(call);
    this.#slots.release();
  }

  /** Pauses the queue until the returned function is called. Every code path must call it; a second call does nothing. */
  hold(): () => void {
    let isHeld = true;
    this.#holds++;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.#holds--;
      this.#drain();
    };
  }

  /** A copy, because failing the calls changes the queue. */
  get waiting(): Call[] {
    return [...this.#waiting];
  }

  close(): void {
    this.#waiting.clear();
    for (const call of this.#lingering) call.giveUp();
  }

  #spare(): void {
    const [lingering] = this.#lingering;
    lingering?.giveUp();
  }

  #drain(): void {
    for (const next of this.#waiting) {
      if (this.#holds > 0) return;
      // Calls that were added during a hold requested no slot, even if one was free.
      if (!this.#slots.take()) return this.#slots.want();
      this.#waiting.delete(next);
      this.#dispatch(next);
    }
  }
}

/**
 * Connections that several queues share. Requests wait in these queues, because undici cannot return a queued request.
 * A freed slot is offered to the queues in the order of their subscription.
 */
export class ConnectionSlots {
  #free: number;
  readonly #drains: (() => void)[] = [];
  readonly #spares: (() => void)[] = [];
  #isWanted = false;

  constructor(limit: number) {
    this.#free = limit;
  }

  /** `drain` sends waiting requests while slots are free. `spare` closes the stream of an answered request to free its slot. */
  subscribe(drain: () => void, spare?: () => void): void {
    this.#drains.push(drain);
    if (spare) this.#spares.push(spare);
  }

  /** True while a queue may be waiting for a slot. Answered requests should then free their slots. */
  get isWanted(): boolean {
    return this.#isWanted;
  }

  want(): void {
    if (this.#free > 0) return;
    this.#isWanted = true;
    for (const spare of this.#spares) spare();
  }

  take(): boolean {
    if (this.#free === 0) return false;
    this.#free--;
    return true;
  }

  release(): void {
    this.#free++;
    for (const drain of this.#drains) {
      if (this.#free === 0) return;
      drain();
    }
    if (this.#free > 0) this.#isWanted = false;
  }
}

/** Maximum number of messages in flight. Further messages wait. */
export const oneWayConnections = 16;
/** Time for one message. It starts when the message gets a connection, so a message that had to wait has its full time. */
export const oneWayTimeoutMs = 10_000;
const messagesMax = 256;
const bytesMax = 1024 * 1024;

export interface HttpCounters extends ChannelCounters {
  /** Notifications and responses that were dropped, timed out, refused, or lost with their connection. */
  noticesLost: number;
}

export const newHttpCounters = (): HttpCounters => ({ ...newCounters(), noticesLost: 0 });

interface OneWayChannel {
  readonly deps: HttpDeps;
  readonly counters: HttpCounters;
  post(frame: OutboundFrame, pool: Dispatcher, sink: ExchangeSink): HttpExchange;
}

/**
 * Queue of messages that have no answer: notifications and responses. HTTP+SSE also POSTs requests with OneWayPost, because
 * their answers arrive on the event stream.
 * A server that does not read these messages must cost neither memory nor calls. They have separate connections, bounds and
 * deadlines. Messages beyond the bounds are dropped and counted, as the protocol allows.
 * Invariant: at most `messagesMax` messages are queued or in flight, and none is added while they have `bytesMax` bytes or
 * more. So one large response is always accepted after the messages before it are sent.
 */
export class OneWayQueue implements PostOwner {
  readonly #channel: OneWayChannel;
  readonly #pool: Dispatcher;
  readonly #slots: ConnectionSlots;
  readonly #timeoutMs: number;
  readonly #waiting = new Set<OutboundFrame>();
  readonly #done = new Map<OutboundFrame, () => void>();
  readonly #inFlight = new Map<OneWayPost, Cancel>();
  #bytes = 0;

  constructor(channel: OneWayChannel, pool: Dispatcher, slots: ConnectionSlots, timeoutMs: number) {
    this.#channel = channel;
    this.#pool = pool;
    this.#slots = slots;
    this.#timeoutMs = timeoutMs;
    slots.subscribe(() => this.#drain());
  }

  /** Queues or drops the message; its sender is not notified. `done` is called when it is accepted, dropped or lost. */
  add(frame: OutboundFrame, done?: () => void): void {
    const count = this.#waiting.size + this.#inFlight.size;
    if (count >= messagesMax || this.#bytes >= bytesMax) {
      this.failed();
      done?.();
      return;
    }
    if (done) this.#done.set(frame, done);
    this.#bytes += frame.bytes;
    if (this.#slots.take()) return this.#send(frame);
    this.#waiting.add(frame);
    // Answered requests whose streams the server has not closed may occupy every slot.
    this.#slots.want();
  }

  close(): void {
    this.#waiting.clear();
    this.#done.clear();
    for (const [post, cancelDeadline] of this.#inFlight) {
      cancelDeadline();
      post.giveUp();
    }
  }

  refused(): void {
    this.failed();
  }

  failed(): void {
    this.#channel.counters.noticesLost++;
  }

  released(post: OneWayPost): void {
    const { frame } = post;
    this.#inFlight.get(post)?.();
    this.#inFlight.delete(post);
    this.#bytes -= frame.bytes;
    this.#done.get(frame)?.();
    this.#done.delete(frame);
    this.#slots.release();
  }

  #send(frame: OutboundFrame): void {
    const { clock } = this.#channel.deps;
    const post = new OneWayPost(this, frame, false);
    const cancelDeadline = clock.at(clock.nowMs() + this.#timeoutMs, () => {
      if (!post.isAccepted) this.failed();
      post.giveUp();
    });
    this.#inFlight.set(post, cancelDeadline);
    post.exchange = this.#channel.post(frame, this.#pool, post);
  }

  #drain(): void {
    for (const next of this.#waiting) {
      if (!this.#slots.take()) return;
      this.#waiting.delete(next);
      this.#send(next);
    }
  }
}

/** Maximum of an unused body that is read in order to reuse the connection. */
const bodyBytesMax = 64 * 1024;

interface PostOwner {
  active?(post: OneWayPost): void;
  refused(post: OneWayPost, status: number, headers: ResponseHeaders): void;
  failed(post: OneWayPost, error: HostError): void;
  released(post: OneWayPost): void;
}

/**
 * One message whose POST is answered by a status alone. The body is read up to `bodyBytesMax`; an event stream is closed.
 * The `PostOwner` gets at most one of `refused` and `failed`, and neither after the message was accepted or given up.
 */
export class OneWayPost extends PostedFrame implements ExchangeSink {
  readonly #owner: PostOwner;
  #bytes = 0;
  #refusal: (() => void) | undefined;

  constructor(owner: PostOwner, frame: OutboundFrame, isControl: boolean) {
    super(frame, isControl);
    this.#owner = owner;
  }

  get isAccepted(): boolean {
    return this.frame.phase === 'written' && !this.#refusal;
  }

  giveUp(): void {
    this.exchange?.abort();
  }

  started(): void {
    this.frame.phase = 'writing';
    this.#owner.active?.(this);
  }

  head(status: number, headers: ResponseHeaders): HostError | undefined {
    this.frame.phase = 'written';
    this.#owner.active?.(this);
    if (status > 299) this.#refusal = () => this.#owner.refused(this, status, headers);
    else if (isEventStream(headers)) this.giveUp();
    return undefined;
  }

  data(chunk: Buffer): undefined {
    this.#bytes += chunk.length;
    if (this.#bytes <= bodyBytesMax) return;
    this.#refusal?.();
    this.giveUp();
  }

  end(): void {
    this.#refusal?.();
  }

  failed(error: HostError): void {
    if (this.#refusal) this.#refusal();
    // After acceptance the answer may still arrive on the stream, so a broken connection is not a failure.
    else if (this.frame.phase !== 'written') this.#owner.failed(this, error);
  }

  released(): void {
    this.#owner.released(this);
  }
}
