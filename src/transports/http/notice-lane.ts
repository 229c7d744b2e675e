/**
 * Notifications and answers on their way to a server. Nobody waits for them here, so a server that does not take them
 * must cost neither memory nor the calls: they have connections, bounds and deadlines of their own, and what exceeds
 * these is dropped and counted, as the protocol allows for messages that are owed no answer.
 *
 * Invariant: at most `noticesMax` notices are held, and none is begun while they have `noticeBytesMax` bytes or more. So
 * one large answer always finds room once the notices before it are gone.
 */
import type { Cancel, Clock } from '../../kernel/clock.js';
import { type ChannelCounters, newCounters, type OutboundFrame } from '../../wire/channel.js';
import type { ConnectionSlots } from './connection-slots.js';
import type { ExchangeSink, HttpExchange } from './http-exchange.js';
import { OneWayPost } from './one-way-post.js';

/** On the wire at the same time; more wait. */
export const noticeConnectionsMax = 16;
/** From the moment it may use a connection: what waits behind notices that hang still gets its turn. */
export const noticeTimeoutMs = 10_000;
/** On the wire and waiting together. */
const noticesMax = 256;
const noticeBytesMax = 1024 * 1024;

export interface HttpCounters extends ChannelCounters {
  /** Notices that were dropped past the bounds, not taken in time, refused, or lost with their connection. */
  noticesLost: number;
}

export const newHttpCounters = (): HttpCounters => ({ ...newCounters(), noticesLost: 0 });

interface NoticeOwner {
  readonly clock: Clock;
  readonly counters: HttpCounters;
  readonly slots: ConnectionSlots;
  readonly timeoutMs: number;
  /** Starts the POST. */
  post(frame: OutboundFrame, sink: ExchangeSink): HttpExchange;
}

export class NoticeLane {
  readonly #to: NoticeOwner;
  readonly #waiting = new Set<OutboundFrame>();
  readonly #done = new Map<OutboundFrame, () => void>();
  readonly #onWire = new Map<OneWayPost, Cancel>();
  #bytes = 0;

  constructor(to: NoticeOwner) {
    this.#to = to;
    to.slots.subscribe(() => this.#drain());
  }

  /** Takes the notice or drops it; whoever sent it is not told. `done` is called when it is taken, dropped or lost. */
  add(frame: OutboundFrame, done?: () => void): void {
    const count = this.#waiting.size + this.#onWire.size;
    if (count >= noticesMax || this.#bytes >= noticeBytesMax) {
      this.#lost();
      done?.();
      return;
    }
    if (done) this.#done.set(frame, done);
    this.#bytes += frame.bytes;
    if (this.#to.slots.take()) return this.#go(frame);
    this.#waiting.add(frame);
    // A server may keep the streams of requests it has answered open, and hold every slot with them.
    this.#to.slots.want();
  }

  close(): void {
    this.#waiting.clear();
    this.#done.clear();
    for (const [post, cancelDeadline] of this.#onWire) {
      cancelDeadline();
      post.giveUp();
    }
  }

  #go(frame: OutboundFrame): void {
    const { clock, timeoutMs } = this.#to;
    const post = new OneWayPost(frame, {
      refused: () => this.#lost(),
      failed: () => this.#lost(),
      released: () => this.#released(post, frame),
    });
    const cancelDeadline = clock.at(clock.nowMs() + timeoutMs, () => {
      if (!post.accepted) this.#lost();
      post.giveUp();
    });
    this.#onWire.set(post, cancelDeadline);
    post.exchange = this.#to.post(frame, post);
  }

  #released(post: OneWayPost, frame: OutboundFrame): void {
    this.#onWire.get(post)?.();
    this.#onWire.delete(post);
    this.#bytes -= frame.bytes;
    this.#done.get(frame)?.();
    this.#done.delete(frame);
    this.#to.slots.release();
  }

  #drain(): void {
    for (const next of this.#waiting) {
      if (!this.#to.slots.take()) return;
      this.#waiting.delete(next);
      this.#go(next);
    }
  }

  #lost(): void {
    this.#to.counters.noticesLost++;
  }
}
