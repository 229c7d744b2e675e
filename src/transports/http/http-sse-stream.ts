/**
 * The one GET of the HTTP+SSE transport: its events until it is over. Not here: what they mean (http-sse-channel.ts).
 * Invariant: `over` is said once, and no event after it.
 */
import { HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { inboundTooLarge } from '../../wire/wire-errors.js';
import type { AuthToken } from './auth-token.js';
import type { ExchangeSink, ResponseHeaders } from './http-exchange.js';
import type { HttpDeps } from './http-pool.js';
import { type SseEvent, SseParser } from './sse-parser.js';
import { headerText, statusError } from './status-error.js';

interface StreamOwner {
  event(event: SseEvent): void;
  /** A message with these first bytes is too large; `over` follows. */
  tooLarge(head: Buffer, error: HostError): void;
  /** The stream is over, or never began. */
  over(error: HostError): void;
}

export class SseStream implements ExchangeSink {
  readonly #server: string;
  readonly #deps: HttpDeps;
  readonly #to: StreamOwner;
  /** What the GET is authorized with. */
  readonly #sent: AuthToken | undefined;
  #parser: SseParser | undefined;
  #tooLarge: HostError | undefined;

  constructor(server: string, deps: HttpDeps, to: StreamOwner, sent: AuthToken | undefined) {
    this.#server = server;
    this.#deps = deps;
    this.#to = to;
    this.#sent = sent;
  }

  started(): void {}
  released(): void {}

  head(status: number, headers: ResponseHeaders): HostError | undefined {
    const server = this.#server;
    if (status !== 200) {
      const now = this.#deps.clock.date();
      return statusError({ server, status, headers, inSession: false, rpcCode: undefined, now, sent: this.#sent });
    }
    if (!headerText(headers, 'content-type')?.toLowerCase().startsWith('text/event-stream')) {
      const details = { server, reason: 'content_type', httpStatus: status, execution: 'not_executed' } as const;
      return new HostError('protocol_error', `server '${server}' answered with no event stream`, details);
    }
    this.#parser = new SseParser(LIMITS.frameBytes, this.#to.event, (actual, head) => {
      this.#tooLarge = inboundTooLarge(server, actual);
      this.#to.tooLarge(head, this.#tooLarge);
    });
    return undefined;
  }

  data(chunk: Buffer): HostError | undefined {
    this.#parser?.push(chunk);
    return this.#tooLarge;
  }

  end(): void {
    this.#parser?.end();
    const details = { server: this.#server, reason: 'stream_ended', execution: 'uncertain' } as const;
    this.#to.over(new HostError('transport', `server '${this.#server}' ended its event stream`, details));
  }

  failed(error: HostError): void {
    this.#to.over(error);
  }
}
