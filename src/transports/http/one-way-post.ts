/**
 * One message that is POSTed and owed nothing but a status: a notification, an answer to the server, and with HTTP+SSE
 * also a request, whose answer comes over the stream. Not here: what a refusal means.
 *
 * Invariants:
 * - The owner hears at most one of `refused` and `failed`, and neither once the message was accepted or given up.
 * - A response is not read for longer than its head is worth: no event stream, and not a long page.
 */
import type { HostError } from '../../kernel/errors.js';
import type { OutboundFrame } from '../../wire/channel.js';
import type { ExchangeSink, HttpExchange, ResponseHeaders } from './http-exchange.js';
import { headerText } from './status-error.js';

/** The body is of no interest; this much of it is read to keep the connection. */
const bodyBytesMax = 64 * 1024;

interface PostOwner {
  /** Something of the message was written, or of its acknowledgement heard. */
  active?(): void;
  refused(status: number, headers: ResponseHeaders): void;
  failed(error: HostError): void;
  released(): void;
}

export class OneWayPost implements ExchangeSink {
  exchange: HttpExchange | undefined;
  readonly #frame: OutboundFrame;
  readonly #to: PostOwner;
  #bytes = 0;
  #refusal: (() => void) | undefined;

  constructor(frame: OutboundFrame, to: PostOwner) {
    this.#frame = frame;
    this.#to = to;
  }

  /** The server has answered, and with no refusal. */
  get accepted(): boolean {
    return this.#frame.phase === 'written' && !this.#refusal;
  }

  giveUp(): void {
    this.exchange?.abort();
  }

  started(): void {
    this.#frame.phase = 'writing';
    this.#to.active?.();
  }

  head(status: number, headers: ResponseHeaders): HostError | undefined {
    this.#frame.phase = 'written';
    this.#to.active?.();
    if (status > 299) this.#refusal = () => this.#to.refused(status, headers);
    else if (headerText(headers, 'content-type')?.toLowerCase().startsWith('text/event-stream')) this.giveUp();
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
    // Once accepted, the answer may still come over the stream: a lost acknowledgement is no failure.
    else if (this.#frame.phase !== 'written') this.#to.failed(error);
  }

  released(): void {
    this.#to.released();
  }
}
