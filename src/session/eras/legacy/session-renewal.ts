/**
 * The life of a legacy HTTP session: open → lost → renewing → open, or back to lost when the renewal fails.
 * Not here: which requests are then sent once more (http-session.ts), opening a session (legacy-era.ts), the queue of requests
 * meanwhile (transports/http/call-lane.ts).
 *
 * Invariants:
 * - At most one `initialize` is in flight, and at most one per second is sent. When no connection could be opened, and so none was
 *   sent, the next one waits for only 100 ms.
 * - The channel gets the outcome of every renewal. When one fails, all requests that waited fail with one error in one tick.
 * - No request waits longer than its own deadline, while the renewal goes on for the others.
 */
import type { CancelSignal } from '../../../kernel/cancel-signal.js';
import { type Clock, sleep } from '../../../kernel/clock.js';
import { HostError, isHostError } from '../../../kernel/errors.js';
import type { SessionReset } from '../../../wire/channel.js';

interface RenewalParts {
  readonly server: string;
  readonly clock: Clock;
  /** Drops the old session in the channel, which queues requests from now on. */
  readonly reset: () => SessionReset | undefined;
  /** Opens a session: `initialize` and what follows it. */
  readonly open: () => Promise<void>;
  /** Why the connection has ended, once it has. */
  readonly closedBy: () => HostError | undefined;
  /** `initialize` has not been answered for 10 s. */
  readonly onSlow: () => void;
  /** A new session is open; the server remembers nothing of the old one. */
  readonly renewed: () => void;
}

/** A request that waits for the renewal. */
interface WaitingRequest {
  readonly method: string;
  readonly deadlineAtMs: number;
  readonly signal?: CancelSignal | undefined;
}

type Life = { readonly kind: 'open' | 'lost' } | { readonly kind: 'renewing'; readonly done: Promise<void> };

/** From one `initialize` to the next. */
const intervalMs = 1_000;
/** The same where none was sent. */
const unsentIntervalMs = 100;
const slowMs = 10_000;

export class SessionRenewal {
  readonly #parts: RenewalParts;
  #life: Life = { kind: 'open' };
  #nextAtMs = Number.NEGATIVE_INFINITY;
  #count = 0;

  constructor(parts: RenewalParts) {
    this.#parts = parts;
  }

  /** False: a request has to wait for a renewal. */
  get isOpen(): boolean {
    return this.#life.kind === 'open';
  }

  /** Renewals so far: read when a request is sent, and passed back when the request was refused. */
  get count(): number {
    return this.#count;
  }

  /** Resolves when there is a newer session than the one of `seen`; rejects when none could be opened. */
  renew(seen: number): Promise<void> {
    if (this.#life.kind === 'renewing') return this.#life.done;
    if (this.#life.kind === 'open' && seen !== this.#count) return Promise.resolve();
    const done = this.#open();
    // Each request that waits gets the error. Without any, the rejection must not count as unhandled.
    done.catch(() => {});
    this.#life = { kind: 'renewing', done };
    return done;
  }

  /** As `renew`, for one request, which may leave earlier. */
  within({ method, deadlineAtMs, signal }: WaitingRequest, seen: number): Promise<void> {
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
      this.renew(seen).then(
        () => settle(resolve),
        (error: unknown) => settle(() => reject(error)),
      );
    });
  }

  async #open(): Promise<void> {
    const { clock, reset, open, onSlow, renewed } = this.#parts;
    const channel = reset();
    let cancelSlow = () => {};
    try {
      const waitMs = this.#nextAtMs - clock.nowMs();
      if (waitMs > 0) await sleep(clock, waitMs);
      const startedAtMs = clock.nowMs();
      this.#nextAtMs = startedAtMs + intervalMs;
      cancelSlow = clock.at(startedAtMs + slowMs, onSlow);
      await open();
    } catch (cause) {
      if (isHostError(cause) && cause.code === 'connect_failed') this.#nextAtMs = clock.nowMs() + unsentIntervalMs;
      const error = this.#refusal(cause);
      this.#life = { kind: 'lost' };
      channel?.failed(error);
      throw error;
    } finally {
      cancelSlow();
    }
    this.#life = { kind: 'open' };
    this.#count++;
    channel?.opened();
    renewed();
  }

  /** One error for every request that waited: none of them was sent. */
  #refusal(cause: unknown): HostError {
    const { server } = this.#parts;
    const unsent = { phase: 'queued', execution: 'not_executed' } as const;
    // The connection was lost, and not the session alone: requests may go to the next one.
    const closedBy = this.#parts.closedBy();
    if (closedBy) return closedBy;
    if (isHostError(cause)) {
      // auth-recovery.ts renews the token by this error.
      if (cause.code === 'needs_reauth') return cause;
      // These say when and how to try again.
      if (cause.code === 'connect_failed' || cause.code === 'overloaded') return cause.with(unsent);
    }
    return new HostError('transport', `server '${server}' lost its session, and a new one could not be opened`, {
      ...unsent,
      server,
      reason: 'session_not_renewed',
      // The next call opens the next session. `retryAfterMs` keeps this call from being replayed.
      retryAfterMs: intervalMs,
      hint: 'try again shortly; if it lasts, look at how the server answers initialize',
      cause,
    });
  }
}
