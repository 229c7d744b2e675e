/**
 * A channel to a server in this process, for embedding and tests. The server end has the shape of `Transport` of the MCP SDK:
 * it receives parsed objects and sends objects or JSON text. Messages from the server pass the usual decoder and limits.
 * Invariant: in both directions, delivery is asynchronous (a microtask) and in order. A queued frame can be withdrawn unsent.
 */
import { ByteBudget } from '../../kernel/byte-budget.js';
import { HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import {
  type Agreement,
  type Channel,
  type ChannelListener,
  frameText,
  type OutboundFrame,
  type Withdrawal,
} from '../../wire/channel.js';
import { MessageDecoder, newCounters } from '../../wire/envelope.js';
import { inboundTooLarge, notOpen, overloaded } from '../../wire/wire-errors.js';

export interface MemoryServerEnd {
  // biome-ignore lint/suspicious/noExplicitAny: the SDK assigns handlers of its own message types.
  onmessage?: (message: any, extra?: any) => void;
  onclose?: () => void;
  onerror?: (error: Error) => void;
  sessionId?: string;
  start(): Promise<void>;
  /** Sends an object, or one JSON message as text or bytes. Rejects if the message is too large or the channel is closed. */
  send(message: object | string | Uint8Array): Promise<void>;
  close(): Promise<void>;
}

export interface MemoryLink {
  readonly channel: Channel;
  readonly server: MemoryServerEnd;
}

export function createMemoryLink(serverName = 'memory'): MemoryLink {
  const link = new MemoryChannel(serverName);
  return { channel: link, server: link.far };
}

const inboundBytesMax = 16 * 1024 * 1024;

class MemoryChannel implements Channel {
  readonly kind = 'memory';
  readonly counters = newCounters();
  readonly far: MemoryServerEnd;
  readonly #server: string;
  readonly #decoder = new MessageDecoder(this.counters);
  #listener: ChannelListener | undefined;
  #farStarted = false;
  #closed = false;
  readonly #outbound = new Set<OutboundFrame>();
  readonly #outboundBytes = new ByteBudget(LIMITS.outboundBytes);
  #outboundScheduled = false;
  #inbound: Buffer[] = [];
  #inboundBytes = 0;
  #inboundScheduled = false;

  constructor(server: string) {
    this.#server = server;
    this.far = {
      start: async () => {
        this.#farStarted = true;
        this.#scheduleOutbound();
      },
      send: async (message) => this.#receive(message),
      close: async () => {
        // Messages that the server sent earlier are delivered first.
        await Promise.resolve();
        this.#end('the server closed its end');
      },
    };
  }

  start(listener: ChannelListener): void {
    this.#listener = listener;
    this.#scheduleInbound();
  }

  send(frame: OutboundFrame): HostError | undefined {
    if (this.#closed || !this.#listener) return notOpen(this.#server);
    if (!this.#outboundBytes.take(frame.bytes)) return overloaded(this.#server, this.#outboundBytes.used);
    this.#outbound.add(frame);
    this.#scheduleOutbound();
    return undefined;
  }

  withdraw(frame: OutboundFrame): Withdrawal {
    if (!this.#outbound.delete(frame)) return 'notify';
    this.#outboundBytes.release(frame.bytes);
    return 'unsent';
  }

  adopt(_agreement: Agreement): void {}

  async close(): Promise<void> {
    this.#end('the connection was closed');
  }

  #scheduleOutbound(): void {
    if (this.#outboundScheduled || !this.#farStarted || this.#outbound.size === 0) return;
    this.#outboundScheduled = true;
    queueMicrotask(() => {
      this.#outboundScheduled = false;
      for (const frame of this.#outbound) {
        this.#outbound.delete(frame);
        this.#outboundBytes.release(frame.bytes);
        frame.phase = 'written';
        this.#deliver(frame);
      }
    });
  }

  /** A handler that throws must not affect later frames. */
  #deliver(frame: OutboundFrame): void {
    try {
      this.far.onmessage?.(JSON.parse(frameText(frame)));
    } catch (error) {
      this.far.onerror?.(error instanceof Error ? error : new Error(String(error)));
    }
  }

  #receive(message: object | string | Uint8Array): void {
    if (this.#closed) throw notOpen(this.#server);
    const bytes =
      message instanceof Uint8Array
        ? Buffer.from(message)
        : Buffer.from(typeof message === 'string' ? message : JSON.stringify(message));
    if (bytes.length > LIMITS.frameBytes) throw inboundTooLarge(this.#server, bytes.length);
    if (this.#inboundBytes + bytes.length > inboundBytesMax) throw overloaded(this.#server, this.#inboundBytes);
    this.#inbound.push(bytes);
    this.#inboundBytes += bytes.length;
    this.#scheduleInbound();
  }

  #scheduleInbound(): void {
    if (this.#inboundScheduled || !this.#listener || this.#inbound.length === 0) return;
    this.#inboundScheduled = true;
    queueMicrotask(() => {
      this.#inboundScheduled = false;
      const batch = this.#inbound;
      this.#inbound = [];
      this.#inboundBytes = 0;
      for (const bytes of batch) {
        this.#decoder.decode(bytes, 0, bytes.length, (envelope) => {
          if (!this.#closed) this.#listener?.message(envelope, undefined);
        });
      }
    });
  }

  #end(message: string): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#outbound.clear();
    this.#inbound = [];
    this.#listener?.closed(
      new HostError('transport', `server '${this.#server}': ${message}`, { server: this.#server, reason: 'closed' }),
    );
    this.far.onclose?.();
  }
}
