/**
 * Sends requests in a legacy HTTP session, which the server may lose. A request that was refused for this reason is sent once
 * more in a new session, and a request without a session waits for one.
 * Not here: opening the new session (session-renewal.ts).
 *
 * Invariants:
 * - A request is sent again once, and only if the server refused it before doing anything.
 * - In a new session, tool calls wait until the tools were read there, but for at most 5 s.
 * - A request that waited is checked again before it is sent (`resend`). Without an open session no request reaches the channel.
 * - A `ping` checks whether the server knows the session (checked-requests.ts).
 */
import type { Clock } from '../../../kernel/clock.js';
import { isHostError } from '../../../kernel/errors.js';
import { BadRequest } from '../../../transports/http/http-errors.js';
import type { JsonText } from '../../../wire/channel.js';
import { METHODS } from '../../../wire/methods.js';
import type { Peer } from '../../../wire/peer.js';
import type { Answer, RequestOptions } from '../../../wire/peer-interface.js';
import { lost } from '../../../wire/wire-errors.js';
import { answerOf, pingVerdict, RefusalCheck, whileAwaited } from '../checked-requests.js';
import type { HttpSession, HttpSessionOwner } from '../server-era.js';
import { SessionRenewal } from './session-renewal.js';

export class LegacyHttpSession implements HttpSession {
  readonly #peer: Peer;
  readonly #clock: Clock;
  readonly #renewal: SessionRenewal;
  readonly #check: RefusalCheck;
  /** Set in a new session until its tools are known. */
  #toolsAwaited: (() => Promise<void> | undefined) | undefined;

  constructor(owner: HttpSessionOwner) {
    const { server, peer, clock } = owner;
    this.#peer = peer;
    this.#clock = clock;
    this.#check = new RefusalCheck(clock, pingVerdict(peer));
    this.#renewal = new SessionRenewal({
      server,
      clock,
      reset: () => peer.channel.resetSession?.(),
      open: () => owner.open(),
      closedBy: () => peer.closedBy && lost(server, peer.closedBy),
      onSlow: () => owner.onSlow(),
      renewed: () => {
        this.#toolsAwaited = owner.renewed();
      },
      lost: () => owner.lost(),
      over: () => owner.over(),
    });
  }

  send(
    method: string,
    params: JsonText | undefined,
    options: RequestOptions,
    progressToken: number | undefined,
  ): Promise<Answer> {
    return this.#send(method, params, options, progressToken, true);
  }

  get isLost(): boolean {
    return !this.#renewal.isOpen;
  }

  close(): void {
    this.#renewal.close();
  }

  /** Renews a lost session now: otherwise notifications would be missed until the next request. */
  sessionMaybeLost(): void {
    const { count } = this.#renewal;
    this.#isGone(count)
      .then((isGone) => (isGone ? this.#renewal.renew(count) : undefined))
      .catch(() => {});
  }

  /** `mayRepeat`: the request was not sent before. */
  #send(
    method: string,
    params: JsonText | undefined,
    options: RequestOptions,
    progressToken: number | undefined,
    mayRepeat: boolean,
  ): Promise<Answer> {
    const waitsFor = this.#obstacle(method);
    if (waitsFor) return this.#sendAfter(waitsFor, method, params, options, progressToken, mayRepeat);
    const seen = this.#renewal.count;
    const answer = this.#request(method, params, options, seen);
    if (!mayRepeat) return answer.catch(answerOf);
    return answer.catch(async (error: unknown) => {
      if (!(await this.#isRefusedForSession(error, options, seen))) return answerOf(error);
      return this.#sendAfter(() => this.#renewal.renew(seen), method, params, options, progressToken, false);
    });
  }

  /** Returns the wait that must end before the request is sent. Undefined: send it now. */
  #obstacle(method: string): (() => Promise<void>) | undefined {
    if (!this.#renewal.isOpen) return () => this.#renewal.renew(this.#renewal.count);
    if (this.#toolsAwaited === undefined || method !== 'tools/call') return undefined;
    const known = this.#toolsAwaited();
    if (known === undefined) this.#toolsAwaited = undefined;
    return known && (() => known);
  }

  /**
   * The session may be lost again during the wait, so everything is checked again in the tick of sending. The waits end with
   * the deadline of the request. The request gets a new id, but its params contain the old progress token: the peer finds the
   * request by both.
   */
  async #sendAfter(
    ready: () => Promise<void>,
    method: string,
    params: JsonText | undefined,
    options: RequestOptions,
    progressToken: number | undefined,
    mayRepeat: boolean,
  ): Promise<Answer> {
    const { deadlineAtMs, signal, resend } = options;
    await this.#renewal.await({ method, deadlineAtMs, signal }, ready);
    const refusal = resend?.refusal();
    if (refusal) throw refusal;
    return this.#send(method, params, { ...options, progressToken }, progressToken, mayRepeat);
  }

  #request(method: string, params: JsonText | undefined, options: RequestOptions, seen: number): Promise<Answer> {
    const request = this.#peer.request(method, params, options);
    // Lists that Hostler itself reads do not prove a session: a server that answers them but forgets each session would get an
    // `initialize` every second.
    if (!this.#renewal.isUnproven || METHODS.get(method)?.isHousekeeping) return request;
    return request.then((answer) => {
      this.#renewal.answered(seen);
      return answer;
    });
  }

  /** Also false if the caller cancels during the check: the caller then gets the response of the server. */
  #isRefusedForSession(error: unknown, options: RequestOptions, seen: number): Promise<boolean> {
    // A request whose session was lost before its answer arrived may have run.
    const isRefused = isHostError(error) && error.details.execution === 'not_executed';
    if (isRefused && error.details.reason === 'session_expired') return Promise.resolve(true);
    if (!isRefused || !(error instanceof BadRequest)) return Promise.resolve(false);
    return whileAwaited(this.#clock, this.#isGone(seen), options);
  }

  /** True: the server has lost the session numbered `seen`. */
  #isGone(seen: number): Promise<boolean> {
    if (!this.#renewal.isOpen || seen !== this.#renewal.count) return Promise.resolve(true);
    return this.#check.isRefused(seen);
  }
}
