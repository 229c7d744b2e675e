/**
 * One message whose POST is answered by a status alone: a notification, a response to the server, and with HTTP+SSE also a
 * request, whose answer arrives on the event stream. Not here: what a refusal means.
 *
 * Invariants:
 * - The owner gets at most one of `refused` and `failed`, and neither once the message was accepted or given up.
 * - Little of the response is read beyond its head: no event stream, and no long page.
 */
import type { HostError } from '../../kernel/errors.js';
import type { OutboundFrame } from '../../wire/channel.js';
import type { AuthToken } from './auth-token.js';
import { isEventStream, type ResponseHeaders } from './headers.js';
import type { ExchangeSink, HttpExchange } from './http-exchange.js';

/** So much of an unused body is read to keep the connection. */
const bodyBytesMax = 64 * 1024;

interface PostOwner {
  /** Bytes of the message were written, or of its response received. */
  active?(post: OneWayPost): void;
  refused(post: OneWayPost, status: number, headers: ResponseHeaders): void;
  failed(post: OneWayPost, error: HostError): void;
  released(post: OneWayPost): void;
}

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

  /** The server responded, and did not refuse the message. */
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
    // Once accepted, the answer may still arrive on the stream: a lost acknowledgement is no failure.
    else if (this.frame.phase !== 'written') this.#owner.failed(this, error);
  }

  released(): void {
    this.#owner.released(this);
  }
}
