/**
 * Background work of one session that no caller waits for: list reads and subscriptions. Sends such requests only while the
 * server is not throttled, and repeats failed work after growing pauses.
 * Not here: calls (host/dispatch.ts), opening a lost session again (session/).
 *
 * Invariants: at most one timer is set. Its work runs neither during a throttle nor after the end of the session.
 */
import { backoffMs } from '../kernel/backoff.js';
import type { Cancel, Clock } from '../kernel/clock.js';
import { isHostError } from '../kernel/errors.js';
import type { ServerThrottle } from '../policy/throttles.js';
import type { Session } from '../session/session.js';
import { RPC } from '../wire/methods.js';

export interface SessionWork {
  readonly clock: Clock;
  readonly session: Pick<Session, 'server' | 'closedBy'>;
  readonly throttle: Pick<ServerThrottle, 'refusal' | 'leftMs' | 'failed' | 'succeeded'>;
}

/** Pauses between repetitions. */
const retryMs = { first: 1_000, max: 60_000 } as const;

export class SessionRetry {
  readonly #work: SessionWork;
  readonly #pauses: { readonly first: number; readonly max: number };
  #failures = 0;
  #timer: { readonly atMs: number; readonly cancel: Cancel } | undefined;
  #isStopped = false;

  constructor(work: SessionWork, pauses: { readonly first: number; readonly max: number } = retryMs) {
    this.#work = work;
    this.#pauses = pauses;
  }

  /** True: work is scheduled. */
  get isSet(): boolean {
    return this.#timer !== undefined;
  }

  get isStopped(): boolean {
    return this.#isStopped;
  }

  get isThrottled(): boolean {
    return this.#work.throttle.leftMs(this.#work.session.server) !== undefined;
  }

  /** True until `succeeded`, if `retry` was called. */
  get hasFailed(): boolean {
    return this.#failures > 0;
  }

  /** Rejects without sending if the server is throttled. A response that asks for fewer requests starts a throttle. */
  async send<T>(request: () => Promise<T>): Promise<T> {
    const { session, throttle } = this.#work;
    const refusal = throttle.refusal(session.server);
    if (refusal) throw refusal;
    try {
      const answer = await request();
      throttle.succeeded(session.server);
      return answer;
    } catch (error) {
      throw throttle.failed(session.server, error);
    }
  }

  /** Runs `run` after `delayMs` and any throttle. No effect if work is scheduled for an earlier time. */
  after(delayMs: number, run: () => void): void {
    const { clock, session, throttle } = this.#work;
    const atMs = clock.nowMs() + delayMs;
    if (this.#isStopped || (this.#timer && this.#timer.atMs <= atMs)) return;
    this.#timer?.cancel();
    const cancel = clock.at(atMs, () => {
      this.#timer = undefined;
      if (session.closedBy) return;
      const leftMs = throttle.leftMs(session.server);
      if (leftMs === undefined) run();
      else this.after(leftMs, run);
    });
    this.#timer = { atMs, cancel };
  }

  /** Runs `run` again after a pause, which doubles with each failure. */
  retry(run: () => void, leastMs = 0): void {
    this.after(Math.max(backoffMs(this.#pauses.first, this.#failures++, this.#pauses.max), leastMs), run);
  }

  succeeded(): void {
    this.#failures = 0;
  }

  stop(): void {
    this.#isStopped = true;
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}

/** JSON-RPC errors that blame the request. Any other error may be a temporary problem of the server. */
const requestFaults: ReadonlySet<number> = new Set([RPC.invalidRequest, RPC.methodNotFound, RPC.invalidParams]);

/**
 * True: the same request may succeed later. False for an invalid or too large list, and for a request that the server refuses as
 * invalid.
 */
export function isTemporary(error: unknown): boolean {
  if (!isHostError(error) || error.code === 'result_too_large') return false;
  if (error.code !== 'protocol_error') return true;
  const { rpcCode, httpStatus, reason } = error.details;
  if (rpcCode !== undefined) return !requestFaults.has(rpcCode);
  // A proxy gives such an answer while the server behind it is unavailable.
  return httpStatus !== undefined || reason === 'content_type';
}
