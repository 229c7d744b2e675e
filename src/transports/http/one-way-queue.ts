/**
 * Queue of messages that have no answer: notifications and responses. HTTP+SSE also POSTs requests with OneWayPost, because
 * their answers arrive on the event stream.
 * A server that does not read these messages must cost neither memory nor calls. They have separate connections, bounds and
 * deadlines. Messages beyond the bounds are dropped and counted, as the protocol allows.
 * Invariant: at most `messagesMax` messages are queued or in flight, and none is added while they have `bytesMax` bytes or
 * more. So one large response is always accepted after the messages before it are sent.
 */
import type { Dispatcher } from 'undici';
import type { Cancel } from '../../kernel/clock.js';
import type { HostError } from '../../kernel/errors.js';
import { type ChannelCounters, newCounters, type OutboundFrame } from '../../wire/channel.js';
import type { AuthToken } from './auth-token.js';
import type { ConnectionSlots } from './call-queue.js';
import { isEventStream, type ResponseHeaders } from './headers.js';
import type { ExchangeSink, HttpExchange } from './http-exchange.js';
import type { HttpDeps } from './http-pool.js';

/** Maximum number of messages in flight. Further messages wait. */
export const oneWayConnections = 16;
/** The time starts when a message gets a connection, so a message that had to wait has its full time. */
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
 * The owner gets at most one of `refused` and `failed`, and neither after the message was accepted or given up.
 */
export class OneWayPost implements ExchangeSink {
  readonly frame: OutboundFrame;
  readonly isControl: boolean;
  isWaiting = false;
  pendingBytes: number;
  exchange: HttpExchange | undefined;
  token: AuthToken | undefined;
  readonly #owner: PostOwner;
  #bytes = 0;
  #refusal: (() => void) | undefined;

  constructor(owner: PostOwner, frame: OutboundFrame, isControl: boolean) {
    this.#owner = owner;
    this.frame = frame;
    this.isControl = isControl;
    this.pendingBytes = frame.bytes;
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
