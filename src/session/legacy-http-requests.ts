/**
 * Sends requests in a legacy HTTP session, which the server may forget. A request that was refused because of that is sent once
 * more in a new session, and a request that is made while there is no session waits for one.
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
  /** Called when opening a session takes long; nothing else can be sent meanwhile. */
  readonly onSlow: () => void;
  readonly renewed: () => void;
}

export class LegacyHttpRequests {
  readonly #peer: Peer;
  readonly #clock: Clock;
  readonly #renewal: SessionRenewal;
  readonly #check: SessionCheck;

  constructor({ server, peer, clock, open, onSlow, renewed }: LegacyHttpParts) {
    this.#peer = peer;
    this.#clock = clock;
    this.#check = new SessionCheck(clock, (deadlineAtMs) => peer.request('ping', undefined, { deadlineAtMs }));
    this.#renewal = new SessionRenewal({
      ...{ server, clock, open, onSlow, renewed },
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

  /** The server refused the standalone stream. If the session is gone, it is renewed now, or notifications would be missed. */
  doubted(): void {
    const { count } = this.#renewal;
    this.#isGone(count)
      .then((isGone) => (isGone ? this.#renewal.renew(count) : undefined))
      .catch(() => {});
  }

  /** The request gets a new id here, so it is also found by the progress token that its params already contain. */
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

  /** Also false when the caller leaves before the check has ended: it then gets what the server said. */
  #isRefusedForSession(error: unknown, { deadlineAtMs, signal }: RequestOptions, seen: number): Promise<boolean> {
    // A request whose session was lost while the answer was on its way may have run.
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

  /** Whether the server has forgotten the session of `seen`. */
  #isGone(seen: number): Promise<boolean> {
    if (!this.#renewal.isHeld || seen !== this.#renewal.count) return Promise.resolve(true);
    return this.#check.isGone(seen);
  }
}

/** The session is known, so the 400 is the answer. A JSON-RPC error in its body is passed on like any other answer. */
function answerOf(error: unknown): Answer {
  if (error instanceof BadRequest && error.answer) return { kind: 'error', ...error.answer };
  throw error;
}
