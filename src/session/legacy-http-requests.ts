/**
 * Sends requests in a legacy HTTP session, which the server may forget: a request that the server refused for its session is
 * sent once more in a new one, and a request that is made while there is no session waits for one.
 * Not here: opening the new session (session-renewal.ts), asking whether the old one is known (session-check.ts).
 *
 * Invariant: a request is sent again only when the server refused it before doing anything, and once only.
 */
import { type Clock, sleep } from '../kernel/clock.js';
import { isHostError } from '../kernel/errors.js';
import { BadRequest } from '../transports/http/bad-request.js';
import type { JsonText } from '../wire/frame.js';
import type { Peer } from '../wire/peer.js';
import type { Answer, RequestOptions } from '../wire/peer-interface.js';
import { lost } from '../wire/wire-errors.js';
import { SessionCheck } from './session-check.js';
import { SessionRenewal } from './session-renewal.js';

export interface LegacyHttpParts {
  readonly server: string;
  readonly peer: Peer;
  readonly clock: Clock;
  /** Opens a new session on the same channel. */
  readonly open: () => Promise<void>;
  /** Opening it takes long: nothing can be sent meanwhile. */
  readonly isSlow: () => void;
  readonly renewed: () => void;
}

export class LegacyHttpRequests {
  readonly #peer: Peer;
  readonly #clock: Clock;
  readonly #renewal: SessionRenewal;
  readonly #check: SessionCheck;

  constructor({ server, peer, clock, open, isSlow, renewed }: LegacyHttpParts) {
    this.#peer = peer;
    this.#clock = clock;
    this.#check = new SessionCheck(clock, (deadlineAtMs) => peer.request('ping', undefined, { deadlineAtMs }));
    this.#renewal = new SessionRenewal({
      ...{ server, clock, open, isSlow, renewed },
      reset: () => peer.channel.resetSession?.(),
      closedBy: () => peer.closedBy && lost(server, peer.closedBy),
    });
  }

  /** `token`: the progress token in the params, if there is one. */
  send(
    method: string,
    params: JsonText | undefined,
    options: RequestOptions,
    token: number | undefined,
  ): Promise<Answer> {
    const seen = this.#renewal.count;
    if (!this.#renewal.isHeld) return this.#sendInNewSession(method, params, options, token, seen);
    return this.#peer.request(method, params, options).catch(async (error: unknown) => {
      if (!(await this.#isRefusedForSession(error, options, seen))) return answerOf(error);
      return this.#sendInNewSession(method, params, options, token, seen);
    });
  }

  /** The server refused the stream on which it speaks unasked. Without a session its announcements would not reach us. */
  doubted(): void {
    const { count } = this.#renewal;
    this.#isGone(count)
      .then((isGone) => (isGone ? this.#renewal.renew(count) : undefined))
      .catch(() => {});
  }

  /** The id of this request is not the one that stands as progress token in its params. */
  async #sendInNewSession(
    method: string,
    params: JsonText | undefined,
    options: RequestOptions,
    progressToken: number | undefined,
    seen: number,
  ): Promise<Answer> {
    const { deadlineAtMs, signal } = options;
    await this.#renewal.within({ method, deadlineAtMs, signal }, seen);
    return this.#peer.request(method, params, { ...options, progressToken }).catch(answerOf);
  }

  /** False as well when the caller does not wait for the check: then it hears what the server said. */
  #isRefusedForSession(error: unknown, { deadlineAtMs, signal }: RequestOptions, seen: number): Promise<boolean> {
    // A session that was lost while the answer was on its way is no refusal.
    const isRefused = isHostError(error) && error.details.execution === 'not_executed';
    if (isRefused && error.details.reason === 'session_expired') return Promise.resolve(true);
    if (!isRefused || !(error instanceof BadRequest)) return Promise.resolve(false);
    const over = new AbortController();
    const end = () => over.abort();
    signal?.addEventListener('abort', end, { once: true });
    if (signal?.aborted) end();
    const late = sleep(this.#clock, deadlineAtMs - this.#clock.nowMs(), over.signal).then(() => false);
    return Promise.race([this.#isGone(seen), late]).finally(() => {
      signal?.removeEventListener('abort', end);
      end();
    });
  }

  /** Whether the server knows the session of `seen` no more. */
  #isGone(seen: number): Promise<boolean> {
    if (!this.#renewal.isHeld || seen !== this.#renewal.count) return Promise.resolve(true);
    return this.#check.isGone(seen);
  }
}

/** A 400 that stands. The server may have given a JSON-RPC error with it, which is an answer like any other. */
function answerOf(error: unknown): Answer {
  if (error instanceof BadRequest && error.answer) return { kind: 'error', ...error.answer };
  throw error;
}
