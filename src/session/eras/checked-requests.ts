/**
 * Finds out why a request was refused. Servers use the same status codes for a wrong request, a session that they no longer know, and
 * a protocol that they no longer speak. So Hostler sends one request that is valid in the era of the connection. If the server refuses
 * this one too, the session or the connection is over.
 * Not here: opening the next session (legacy/session-renewal.ts) or the next connection, which negotiates again (supervisor/).
 *
 * Invariants:
 * - At most one check per session and 10 s (1 s if the check got no answer). Requests that are refused meanwhile share it.
 * - No text of the server is compared, and nothing is added to a request that succeeds.
 */
import { type Clock, sleep } from '../../kernel/clock.js';
import { type HostError, isHostError } from '../../kernel/errors.js';
import { BadRequest, refusesProtocol } from '../../transports/http/http-errors.js';
import type { JsonText } from '../../wire/channel.js';
import type { Peer } from '../../wire/peer.js';
import type { Answer, RequestOptions } from '../../wire/peer-interface.js';
import { lost } from '../../wire/wire-errors.js';
import { readRpcError } from '../rpc-response.js';
import type { HttpSession, HttpSessionOwner, Verdict } from './server-era.js';

const checkIntervalMs = 10_000;
const unansweredIntervalMs = 1_000;
const checkTimeoutMs = 5_000;

export class RefusalCheck {
  readonly #clock: Clock;
  readonly #ask: (deadlineAtMs: number) => Promise<Verdict>;
  #session: number | undefined;
  #nextAtMs = 0;
  #isRefused: Promise<boolean> = Promise.resolve(false);

  constructor(clock: Clock, ask: (deadlineAtMs: number) => Promise<Verdict>) {
    this.#clock = clock;
    this.#ask = ask;
  }

  /** `session`: number of the present session. False also if the check got no answer. */
  isRefused(session: number): Promise<boolean> {
    const nowMs = this.#clock.nowMs();
    if (session === this.#session && nowMs < this.#nextAtMs) return this.#isRefused;
    this.#session = session;
    this.#nextAtMs = nowMs + checkIntervalMs;
    this.#isRefused = this.#ask(nowMs + checkTimeoutMs).then((verdict) => {
      if (verdict === 'unanswered' && session === this.#session)
        this.#nextAtMs = this.#clock.nowMs() + unansweredIntervalMs;
      return verdict === 'refused';
    });
    return this.#isRefused;
  }
}

/**
 * Result of the check. False also at the deadline of the request, or if the caller cancels: the caller then gets the refusal.
 */
export function whileAwaited(
  clock: Clock,
  checking: Promise<boolean>,
  { deadlineAtMs, signal }: RequestOptions,
): Promise<boolean> {
  const over = new AbortController();
  const end = () => over.abort();
  signal?.addEventListener('abort', end, { once: true });
  if (signal?.aborted) end();
  const late = sleep(clock, deadlineAtMs - clock.nowMs(), over.signal).then(() => false);
  return Promise.race([checking, late]).finally(() => {
    signal?.removeEventListener('abort', end);
    end();
  });
}

/**
 * Converts a refusal to the answer for the caller: a JSON-RPC error in its body is passed on like any other answer. Throws all
 * other errors.
 */
export function answerOf(error: unknown): Answer {
  if (error instanceof BadRequest && error.answer) return { kind: 'error', ...error.answer };
  throw error;
}

/** Checks the session with a `ping`. */
export const pingVerdict =
  (peer: Peer) =>
  (deadlineAtMs: number): Promise<Verdict> =>
    peer.request('ping', undefined, { deadlineAtMs }).then(
      () => 'known',
      (error: unknown) => {
        const status = isHostError(error) ? error.details.httpStatus : undefined;
        return refusesProtocol(status) ? 'refused' : 'unanswered';
      },
    );

interface CheckedParts extends Pick<HttpSessionOwner, 'server' | 'peer' | 'clock' | 'over'> {
  readonly ask: (deadlineAtMs: number) => Promise<Verdict>;
  /** True: only a server that speaks the era answers this request with this error. */
  readonly isOwnError: (code: number, method: string) => boolean;
  /** True: an error with this code may mean that the server speaks another era, whatever the status. */
  readonly isForeignError: (code: number, method: string) => boolean;
}

/** Requests of a connection that cannot be renewed: once the server refuses it as a whole, the connection is over. */
export class CheckedRequests implements HttpSession {
  readonly #parts: CheckedParts;
  readonly #check: RefusalCheck;

  constructor(parts: CheckedParts) {
    this.#parts = parts;
    this.#check = new RefusalCheck(parts.clock, parts.ask);
  }

  send(method: string, params: JsonText | undefined, options: RequestOptions): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.requestWithCallback(method, params, options, (outcome) =>
        outcome instanceof Error ? reject(outcome) : resolve(outcome),
      );
    });
  }

  /** Like the method of `Peer`. */
  requestWithCallback(
    method: string,
    params: JsonText | undefined,
    options: RequestOptions,
    done: (outcome: Answer | Error) => void,
  ): void {
    this.#parts.peer.requestWithCallback(method, params, options, (outcome) => {
      if (this.#isInDoubt(outcome, method)) void this.#judge(outcome, method, options).then(done, done);
      else done(outcome);
    });
  }

  /** No effect: such a connection has no standalone stream. */
  sessionMaybeLost(): void {}

  #isInDoubt(outcome: Answer | HostError, method: string): boolean {
    if (isHostError(outcome)) return outcome instanceof BadRequest;
    return outcome.kind === 'error' && this.#parts.isForeignError(readRpcError(outcome.bytes).code, method);
  }

  async #judge(refusal: Answer | HostError, method: string, options: RequestOptions): Promise<Answer> {
    const { server, peer, clock, over, isOwnError } = this.#parts;
    const answer = isHostError(refusal) ? (refusal as BadRequest).answer : undefined;
    const isOwn = answer !== undefined && isOwnError(readRpcError(answer.bytes).code, method);
    const isOver = !isOwn && (await whileAwaited(clock, this.#check.isRefused(0), options));
    const ended = isOver ? over() : undefined;
    if (!isHostError(refusal)) return refusal;
    const isUnread = refusal.details.execution === 'not_executed';
    // The request was refused unread, so the next connection may send it.
    if (ended && isUnread)
      await whileAwaited(
        clock,
        ended.then(() => true),
        options,
      );
    if (peer.closedBy && isUnread) throw lost(server, peer.closedBy);
    return answerOf(refusal);
  }
}

/** In HTTP+SSE, the endpoint for requests identifies the session, which ends with the stream. */
export const httpSseRequests = ({ server, peer, clock, over }: HttpSessionOwner): HttpSession =>
  new CheckedRequests({
    ...{ server, peer, clock, over },
    ask: pingVerdict(peer),
    isOwnError: () => false,
    isForeignError: () => false,
  });
