/**
 * One message of the HTTP+SSE transport on its way. That it was accepted says nothing; its answer comes over the stream.
 * Invariant: a request that was accepted is never reported as failed here.
 */
import type { HostError } from '../../kernel/errors.js';
import type { OutboundFrame } from '../../wire/channel.js';
import type { ExchangeSink, HttpExchange, ResponseHeaders } from './http-exchange.js';

/** The body is of no interest; this much of it is read to keep the connection. */
const bodyBytes = 64 * 1024;

export interface PostOwner {
  refused(status: number, headers: ResponseHeaders): void;
  failed(error: HostError): void;
  released(): void;
}

export class SsePost implements ExchangeSink {
  exchange: HttpExchange | undefined;
  readonly #frame: OutboundFrame;
  readonly #to: PostOwner;
  #bytes = 0;
  #refusal: (() => void) | undefined;

  constructor(frame: OutboundFrame, to: PostOwner) {
    this.#frame = frame;
    this.#to = to;
  }

  started(): void {
    this.#frame.phase = 'writing';
  }

  head(status: number, headers: ResponseHeaders): HostError | undefined {
    this.#frame.phase = 'written';
    if (status > 299) this.#refusal = () => this.#to.refused(status, headers);
    return undefined;
  }

  data(chunk: Buffer): undefined {
    this.#bytes += chunk.length;
    if (this.#bytes <= bodyBytes) return;
    this.#refusal?.();
    this.exchange?.abort();
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
