/**
 * A channel whose other end is the test: it records sent frames and delivers the messages of the test. Used by the unit tests of
 * all code above the channel port.
 */
import { HostError } from '../../src/kernel/errors.js';
import {
  type Agreement,
  type Channel,
  type ChannelListener,
  frameText,
  type MessageOrigin,
  type OutboundFrame,
  type Withdrawal,
} from '../../src/wire/channel.js';
import { MessageDecoder, newCounters } from '../../src/wire/envelope.js';

export class ScriptedChannel implements Channel {
  readonly kind = 'memory';
  readonly counters = newCounters();
  readonly sent: OutboundFrame[] = [];
  readonly withdrawn: OutboundFrame[] = [];
  agreement: Agreement | undefined;
  /** When true, frames stay `queued` until `flush`. */
  held = false;
  refuseWith: HostError | undefined;
  closes = 0;
  /** Called for each frame when it is written. Tests script a fake server here. */
  onSend: ((message: Record<string, unknown>, frame: OutboundFrame) => void) | undefined;
  #listener: ChannelListener | undefined;
  readonly #decoder = new MessageDecoder(this.counters);

  start(listener: ChannelListener): void {
    this.#listener = listener;
  }

  send(frame: OutboundFrame): HostError | undefined {
    if (this.refuseWith) return this.refuseWith;
    this.sent.push(frame);
    if (!this.held) this.#write(frame);
    return undefined;
  }

  flush(): void {
    for (const frame of this.sent) if (frame.phase === 'queued') this.#write(frame);
  }

  /** Reports `beforeWrite`, as a channel does before it writes waiting frames. */
  beforeWrite(): void {
    this.#listener?.beforeWrite?.();
  }

  /** Writes the next waiting frame. */
  flushOne(): void {
    const next = this.sent.find(({ phase }) => phase === 'queued');
    if (next) this.#write(next);
  }

  withdraw(frame: OutboundFrame): Withdrawal {
    this.withdrawn.push(frame);
    if (frame.phase !== 'queued') return this.agreement?.era.closeCancels ? 'aborted' : 'notify';
    this.sent.splice(this.sent.indexOf(frame), 1);
    return 'unsent';
  }

  adopt(agreement: Agreement): void {
    this.agreement = agreement;
  }

  close(): Promise<void> {
    this.closes++;
    this.lose(new HostError('transport', 'closed', { reason: 'closed' }));
    return Promise.resolve();
  }

  /** Delivers a message of the server. */
  say(message: unknown, origin?: MessageOrigin): void {
    const bytes = Buffer.from(typeof message === 'string' ? message : JSON.stringify(message));
    this.#decoder.decode(bytes, 0, bytes.length, (envelope) => this.#listener?.message(envelope, origin));
  }

  fail(frame: OutboundFrame, error: HostError): void {
    this.#listener?.failed(frame, error);
  }

  tooLarge(id: number, error: HostError): void {
    this.#listener?.tooLarge?.(id, error);
  }

  lose(error: HostError): void {
    this.#listener?.closed(error);
  }

  /** Written messages, parsed. */
  get messages(): Record<string, unknown>[] {
    return this.sent.map((frame) => JSON.parse(frameText(frame)) as Record<string, unknown>);
  }

  #write(frame: OutboundFrame): void {
    frame.phase = 'written';
    this.onSend?.(JSON.parse(frameText(frame)) as Record<string, unknown>, frame);
  }
}
