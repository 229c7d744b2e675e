/**
 * The event streams of a session that are fetched with GET: the standalone stream, which carries messages that belong to no
 * request, and the rest of each call whose own stream broke.
 * Not here: retries (get-stream.ts), the session id (headers.ts).
 *
 * Invariant: messages on a resumed stream go to the call that the stream belongs to, and to no other.
 */
import type { HostError } from '../../kernel/errors.js';
import { type AuthToken, TokenRefused, tokenHash } from './auth-token.js';
import { GetStream, type StreamSource } from './get-stream.js';
import type { PostCall } from './post-call.js';

interface StreamOwner extends StreamSource {
  /** Data on the standalone stream. */
  receiveStandalone(data: Buffer): void;
  /** The standalone stream was refused with 404 or 400: the server has lost the session, or has no such stream. */
  sessionDoubted(): void;
}

export class ResumableStreams {
  readonly #owner: StreamOwner;
  #standalone: GetStream | undefined;
  /** The standalone stream was refused for the token with this hash: another token is worth another try. */
  #refusedHash: string | undefined;
  readonly #resumed = new Map<PostCall, GetStream>();

  constructor(owner: StreamOwner) {
    this.#owner = owner;
  }

  /** Tried once on servers that have no such stream. */
  openStandalone(): void {
    if (this.#standalone) return;
    this.#refusedHash = undefined;
    this.#standalone = new GetStream(this.#owner, {
      retries: 'endless',
      onEvent: ({ data }) => data.length > 0 && this.#owner.receiveStandalone(data),
      onGiveUp: (cause) => {
        this.#standalone = undefined;
        if (cause.details.httpStatus === 404 || cause.details.httpStatus === 400) this.#owner.sessionDoubted();
        else if (cause instanceof TokenRefused) this.#refusedHash = cause.sentHash;
      },
    });
    this.#standalone.open();
  }

  /** The server accepted a request with this token. */
  tokenAccepted(token: AuthToken | undefined): void {
    if (this.#refusedHash !== undefined && tokenHash(token) !== this.#refusedHash) this.openStandalone();
  }

  closeStandalone(): void {
    this.#refusedHash = undefined;
    this.#standalone?.stop();
    this.#standalone = undefined;
  }

  /** The stream of this call broke after `lastEventId`. */
  resume(call: PostCall, lastEventId: string): void {
    const stream = new GetStream(this.#owner, {
      retries: 'some',
      lastEventId,
      retryMs: call.retryMs,
      onEvent: ({ data }) => data.length > 0 && call.receive(data),
      // A failure of the GET does not change that the server received the request.
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

/** `session_expired` means that the server refused a request. This request was received, and may have run. */
function uncertain(error: HostError): HostError {
  const isExpired = error.details.reason === 'session_expired';
  return error.with({ ...(isExpired ? { reason: 'stream_lost' } : {}), execution: 'uncertain', cause: error });
}
