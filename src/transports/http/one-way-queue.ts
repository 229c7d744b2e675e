/**
 * Notifications and responses on their way to a server. No caller waits for them, so a server that does not read them must cost
 * neither memory nor calls. They have connections, bounds and deadlines of their own; messages beyond these are dropped and
 * counted, which the protocol allows for messages without an answer.
 *
 * Invariant: at most `messagesMax` messages are queued or in flight, and none is added while they have `bytesMax` bytes or more.
 * So one large response is always accepted once the messages before it are gone.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import { type ChannelCounters, newCounters, type OutboundFrame } from '../../wire/channel.js';
import type { ConnectionSlots } from './connection-slots.js';
import type { ExchangeSink, HttpExchange } from './http-exchange.js';
import { OneWayPost } from './one-way-post.js';

/** In flight at the same time; more wait. */
export const oneWayConnections = 16;
/** Counted from the moment a message gets a connection, so one that waited behind hanging messages has its full time. */
export const oneWayTimeoutMs = 10_000;
const messagesMax = 256;
const bytesMax = 1024 * 1024;

export interface HttpCounters extends ChannelCounters {
  /** Notifications and responses that were dropped past the bounds, timed out, were refused, or were lost with their connection. */
  noticesLost: number;
}

export const newHttpCounters = (): HttpCounters => ({ ...newCounters(), noticesLost: 0 });

export class OneWayQueue {
  readonly #clock: Clock;
  readonly #counters: HttpCounters;
  readonly #slots: ConnectionSlots;
  readonly #timeoutMs: number;
  /** Starts the POST. */
  readonly #post: (frame: OutboundFrame, sink: ExchangeSink) => HttpExchange;
  readonly #waiting = new Set<OutboundFrame>();
  readonly #done = new Map<OutboundFrame, () => void>();
  readonly #inFlight = new Map<OneWayPost, Cancel>();
  #bytes = 0;

  constructor(
    clock: Clock,
    counters: HttpCounters,
    slots: ConnectionSlots,
    timeoutMs: number,
    post: (frame: OutboundFrame, sink: ExchangeSink) => HttpExchange,
  ) {
    this.#clock = clock;
    this.#counters = counters;
    this.#slots = slots;
    this.#timeoutMs = timeoutMs;
    this.#post = post;
    slots.subscribe(() => this.#drain());
  }

  /** Queues or drops the message; its sender is not notified. `done` is called when it is accepted, dropped or lost. */
  add(frame: OutboundFrame, done?: () => void): void {
    const count = this.#waiting.size + this.#inFlight.size;
    if (count >= messagesMax || this.#bytes >= bytesMax) {
      this.#lost();
      done?.();
      return;
    }
    if (done) this.#done.set(frame, done);
    this.#bytes += frame.bytes;
    if (this.#slots.take()) return this.#send(frame);
    this.#waiting.add(frame);
    // A server may keep the streams of answered requests open, and occupy every slot with them.
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
    this.#lost();
  }

  failed(): void {
    this.#lost();
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
    const post = new OneWayPost(this, frame, false);
    const cancelDeadline = this.#clock.at(this.#clock.nowMs() + this.#timeoutMs, () => {
      if (!post.isAccepted) this.#lost();
      post.giveUp();
    });
    this.#inFlight.set(post, cancelDeadline);
    post.exchange = this.#post(frame, post);
  }

  #drain(): void {
    for (const next of this.#waiting) {
      if (!this.#slots.take()) return;
      this.#waiting.delete(next);
      this.#send(next);
    }
  }

  #lost(): void {
    this.#counters.noticesLost++;
  }
}
