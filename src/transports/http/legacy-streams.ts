/**
 * The event streams of a legacy session that are fetched by GET: the standalone one, on which the server speaks of its
 * own accord, and the rest of each call whose own stream broke.
 * Not here: fetching again and giving up (get-stream.ts), the session id (headers.ts).
 *
 * Invariant: what comes on a resumed stream is given to the call that the stream belongs to and to nobody else.
 */
import type { Clock } from '../../kernel/clock.js';
import type { HostError } from '../../kernel/errors.js';
import type { Random } from '../../kernel/random.js';
import { type AuthToken, TokenRefused, tokenHash } from './auth-token.js';
import { GetStream } from './get-stream.js';
import type { ExchangeSink, HttpExchange } from './http-exchange.js';
import type { PostCall } from './post-call.js';

interface LegacyStreamsOptions {
  readonly server: string;
  readonly clock: Clock;
  readonly random: Random;
  /** Starts a GET. */
  readonly open: (lastEventId: string | undefined, sink: ExchangeSink) => HttpExchange;
  readonly token: () => AuthToken | undefined;
  /** Data on the standalone stream. */
  readonly onData: (data: Buffer) => void;
  /** The standalone stream was refused with 404 or 400: the server has forgotten the session, or has no such stream. */
  readonly onSessionDoubted: () => void;
}

export class LegacyStreams {
  readonly #options: LegacyStreamsOptions;
  #standalone: GetStream | undefined;
  /** The standalone stream was refused for the token of this hash: worth another try with another one. */
  #refusedHash: string | undefined;
  readonly #resumed = new Map<PostCall, GetStream>();

  constructor(options: LegacyStreamsOptions) {
    this.#options = options;
  }

  /** Servers without one are left in peace. */
  openStandalone(): void {
    if (this.#standalone) return;
    this.#refusedHash = undefined;
    this.#standalone = new GetStream({
      ...this.#options,
      endless: true,
      onGiveUp: (cause) => {
        this.#standalone = undefined;
        if (cause.details.httpStatus === 404 || cause.details.httpStatus === 400) this.#options.onSessionDoubted();
        else if (cause instanceof TokenRefused) this.#refusedHash = cause.sentHash;
      },
    });
    this.#standalone.open();
  }

  /** The server took a request with this token. */
  tokenTaken(token: AuthToken | undefined): void {
    if (this.#refusedHash !== undefined && tokenHash(token) !== this.#refusedHash) this.openStandalone();
  }

  closeStandalone(): void {
    this.#refusedHash = undefined;
    this.#standalone?.stop();
    this.#standalone = undefined;
  }

  /** The stream of this call broke after `lastEventId`. */
  resume(call: PostCall, lastEventId: string): void {
    const stream = new GetStream({
      ...this.#options,
      lastEventId,
      retryMs: call.retryMs,
      endless: false,
      onData: (data) => call.receive(data),
      // Whatever the GET says of itself, the request it continues was received.
      onGiveUp: (cause) => call.fail(uncertain(cause)),
    });
    this.#resumed.set(call, stream);
    stream.openLater();
  }

  /** The call is answered, failed or withdrawn. */
  forget(call: PostCall): void {
    this.#resumed.get(call)?.stop();
    this.#resumed.delete(call);
  }

  close(): void {
    this.closeStandalone();
    for (const stream of this.#resumed.values()) stream.stop();
    this.#resumed.clear();
  }
}

/** `session_expired` means that the server refused a request; of one it received it says nothing. */
function uncertain(error: HostError): HostError {
  const isExpired = error.details.reason === 'session_expired';
  return error.with({ ...(isExpired ? { reason: 'stream_lost' } : {}), execution: 'uncertain', cause: error });
}
