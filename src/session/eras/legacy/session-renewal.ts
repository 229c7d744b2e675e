/**
 * The life of a legacy HTTP session: open → lost → renewing → open, or back to lost when the renewal fails.
 * Not here: repeating refused requests (http-session.ts), opening a session (legacy-era.ts), the queue of requests meanwhile
 * (transports/http/call-queue.ts).
 *
 * Invariants:
 * - At most one `initialize` is in flight, and at most one per second is sent (one per 100 ms if connecting fails). While new
 *   sessions answer no request, the interval doubles to 30 s. A `Retry-After` of the server is respected up to 15 s.
 * - A failed renewal is tried again without a request, after 1 s, doubling to 30 s: notifications of the server, such as those of
 *   subscriptions, arrive only in a session.
 * - A server that no longer accepts the protocol of `initialize` has changed its era. The connection is over; the next one
 *   negotiates.
 * - The channel gets the outcome of every renewal. A failed renewal fails all waiting requests with one error in one tick.
 * - A request waits no longer than its own deadline; the renewal continues for the others.
 */
import { backoffMs, openingPauseMsMax } from '../../../kernel/backoff.js';
import type { CancelSignal } from '../../../kernel/cancel-signal.js';
import { type Cancel, sleep } from '../../../kernel/clock.js';
import { HostError, isHostError } from '../../../kernel/errors.js';
import type { SessionReset } from '../../../wire/channel.js';
import { refusesEra } from '../../rpc-response.js';
import type { HttpSessionOwner } from '../server-era.js';

interface RenewalParts extends Omit<HttpSessionOwner, 'peer' | 'ask' | 'renewed'> {
  readonly renewed: () => void;
  /** Drops the old session in the channel, which then queues requests. */
  readonly reset: () => SessionReset | undefined;
  /** Error that ended the connection; undefined while it is open. */
  readonly closedBy: () => HostError | undefined;
}

interface WaitingRequest {
  readonly method: string;
  readonly deadlineAtMs: number;
  readonly signal?: CancelSignal | undefined;
}

type Life = { readonly kind: 'open' | 'lost' } | { readonly kind: 'renewing'; readonly done: Promise<void> };

/** Minimum time between two `initialize` requests; it doubles with each session in which no request of a caller was answered. */
const intervalMs = 1_000;
const intervalMsMax = 30_000;
/** Minimum time after an attempt that sent no `initialize`. */
const unsentIntervalMs = 100;
const slowMs = 10_000;

export class SessionRenewal {
  readonly #parts: RenewalParts;
  #life: Life = { kind: 'open' };
  #nextAtMs = Number.NEGATIVE_INFINITY;
  #count = 0;
  /** Sessions in a row in which no request of a caller was answered. */
  #unproven = 0;
  /** Failed renewals in a row. */
  #failures = 0;
  /** The answer that asked for the present pause. It must not count as a failure of the server. */
  #pausedBy: unknown;
  #cancelRetry: Cancel | undefined;
  #isClosed = false;

  constructor(parts: RenewalParts) {
    this.#parts = parts;
  }

  /** False: a request has to wait for a renewal. */
  get isOpen(): boolean {
    return this.#life.kind === 'open';
  }

  /** Number of renewals. Read it when a request is sent, and pass it back when the request was refused. */
  get count(): number {
    return this.#count;
  }

  /** True until a request of a caller is answered in a session that was renewed. */
  get isUnproven(): boolean {
    return this.#unproven > 0;
  }

  /** A request of a caller was answered in the session numbered `seen`. */
  answered(seen: number): void {
    if (seen !== this.#count || this.#unproven === 0) return;
    this.#unproven = 0;
    this.#nextAtMs = Math.min(this.#nextAtMs, this.#parts.clock.nowMs() + intervalMs);
  }

  /** Resolves when a newer session than `seen` is open; rejects when none could be opened. */
  renew(seen: number): Promise<void> {
    if (this.#life.kind === 'renewing') return this.#life.done;
    if (this.#life.kind === 'open' && seen !== this.#count) return Promise.resolve();
    const waitMs = this.#nextAtMs - this.#parts.clock.nowMs();
    // A request waits through a short pause. During a long pause it is refused, so that its caller can decide.
    if (waitMs > intervalMs) {
      this.#lost();
      return Promise.reject(this.#refusal(this.#pausedBy, waitMs));
    }
    this.#cancelRetry?.();
    this.#cancelRetry = undefined;
    let begun: (opened: Promise<void>) => void = () => {};
    const done = new Promise<void>((resolve) => {
      begun = resolve;
    });
    // Each waiting request gets the error. Without a waiting request, the rejection must not count as unhandled.
    done.catch(() => {});
    // Set before the renewal begins, which may fail in this tick.
    this.#life = { kind: 'renewing', done };
    begun(this.#open());
    return done;
  }

  /** Like `renew`, for one request, which may stop waiting earlier. */
  within(request: WaitingRequest, seen: number): Promise<void> {
    return this.await(request, () => this.renew(seen));
  }

  /** Waits for `ready`, a step of the renewal, until the deadline of the request. */
  await({ method, deadlineAtMs, signal }: WaitingRequest, ready: () => Promise<void>): Promise<void> {
    const { server, clock } = this.#parts;
    return new Promise((resolve, reject) => {
      const settle = (run: () => void) => {
        cancelTimer();
        signal?.removeEventListener('abort', onAbort);
        run();
      };
      const giveUp = (code: 'timeout' | 'cancelled', why: string) =>
        settle(() => {
          const facts = { server, reason: 'session_expired', phase: 'queued', execution: 'not_executed' } as const;
          reject(new HostError(code, `${method} on server '${server}': ${why} while its session was renewed`, facts));
        });
      const onAbort = () => giveUp('cancelled', 'the caller cancelled it');
      const cancelTimer = clock.at(deadlineAtMs, () => giveUp('timeout', 'its deadline passed'));
      signal?.addEventListener('abort', onAbort, { once: true });
      if (signal?.aborted) return onAbort();
      ready().then(
        () => settle(resolve),
        (error: unknown) => settle(() => reject(error)),
      );
    });
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelRetry?.();
  }

  #lost(): void {
    const { clock, lost, closedBy } = this.#parts;
    this.#life = { kind: 'lost' };
    if (this.#isClosed || closedBy()) return;
    lost();
    if (this.#cancelRetry) return;
    const atMs = clock.nowMs() + backoffMs(intervalMs, this.#failures - 1, intervalMsMax);
    this.#cancelRetry = clock.at(Math.max(atMs, this.#nextAtMs), () => {
      this.#cancelRetry = undefined;
      // The next attempt is planned when this one has failed.
      if (this.#life.kind === 'lost' && !closedBy()) this.renew(this.#count).catch(() => {});
    });
  }

  async #open(): Promise<void> {
    const { clock, reset, open, onSlow, renewed, over } = this.#parts;
    let channel: SessionReset | undefined;
    let cancelSlow = () => {};
    try {
      channel = reset();
      const waitMs = this.#nextAtMs - clock.nowMs();
      if (waitMs > 0) await sleep(clock, waitMs);
      const startedAtMs = clock.nowMs();
      this.#nextAtMs = startedAtMs + intervalMs;
      cancelSlow = clock.at(startedAtMs + slowMs, onSlow);
      await open();
    } catch (cause) {
      if (isHostError(cause) && cause.code === 'connect_failed') this.#nextAtMs = clock.nowMs() + unsentIntervalMs;
      else this.#nextAtMs = Math.max(this.#nextAtMs, clock.nowMs() + askedMs(cause));
      this.#pausedBy = askedMs(cause) > 0 ? cause : undefined;
      this.#failures++;
      if (refusesEra(cause)) void over();
      const error = this.#refusal(cause);
      this.#lost();
      channel?.failed(error);
      throw error;
    } finally {
      cancelSlow();
    }
    this.#life = { kind: 'open' };
    this.#failures = 0;
    this.#pausedBy = undefined;
    this.#count++;
    this.#nextAtMs += backoffMs(intervalMs, this.#unproven++, intervalMsMax) - intervalMs;
    try {
      renewed();
    } finally {
      channel?.opened();
    }
  }

  /** One error for all waiting requests, none of which was sent. */
  #refusal(cause: unknown, pauseMs?: number): HostError {
    const { server } = this.#parts;
    const unsent = { phase: 'queued', execution: 'not_executed' } as const;
    // The whole connection was lost, not only the session: requests may use the next connection.
    const closedBy = this.#parts.closedBy();
    if (closedBy) return closedBy;
    if (isHostError(cause)) {
      // auth-recovery.ts renews the token when it gets this error.
      if (cause.code === 'needs_reauth') return cause;
      // These errors say when and how to try again.
      if (cause.code === 'connect_failed' || cause.code === 'overloaded') {
        const retryAfterMs = Math.ceil(pauseMs ?? askedMs(cause));
        return cause.with({ ...unsent, ...(retryAfterMs > 0 ? { retryAfterMs } : {}) });
      }
    }
    return new HostError('transport', `server '${server}' lost its session, and a new one could not be opened`, {
      ...unsent,
      server,
      reason: 'session_not_renewed',
      // The next call opens the next session. `retryAfterMs` keeps this call from being replayed.
      retryAfterMs: Math.ceil(pauseMs ?? intervalMs),
      hint: 'try again shortly; if it lasts, look at how the server answers initialize',
      cause,
    });
  }
}

/** The pause that an overloaded server asked for, within the bound. */
const askedMs = (error: unknown): number =>
  isHostError(error) && error.code === 'overloaded' ? Math.min(error.details.retryAfterMs ?? 0, openingPauseMsMax) : 0;
