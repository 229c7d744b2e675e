/**
 * Finds out, with one `ping`, whether a server still knows a legacy HTTP session after it refused a request with a status that
 * may mean either: many servers answer 400 for an unknown session, and some answer 404 for a stream they do not have.
 * Not here: renewing the session (session-renewal.ts).
 *
 * Invariants: no text of the server is compared. A session is checked at most once in 10 s; requests that are refused meanwhile
 * share the check, or its result.
 */
import type { Clock } from '../kernel/clock.js';
import { isHostError } from '../kernel/errors.js';

const intervalMs = 10_000;
const timeoutMs = 5_000;

export class SessionCheck {
  readonly #clock: Clock;
  /** Sends a `ping` in the present session, and rejects unless it is answered. */
  readonly #ping: (deadlineAtMs: number) => Promise<unknown>;
  #session: number | undefined;
  #nextAtMs = 0;
  #isGone: Promise<boolean> = Promise.resolve(false);

  constructor(clock: Clock, ping: (deadlineAtMs: number) => Promise<unknown>) {
    this.#clock = clock;
    this.#ping = ping;
  }

  /** `session` numbers the present session. False also when the server could not be asked. */
  isGone(session: number): Promise<boolean> {
    const nowMs = this.#clock.nowMs();
    if (session === this.#session && nowMs < this.#nextAtMs) return this.#isGone;
    this.#session = session;
    this.#nextAtMs = nowMs + intervalMs;
    this.#isGone = this.#ping(nowMs + timeoutMs).then(
      () => false,
      (error: unknown) => {
        const status = isHostError(error) ? error.details.httpStatus : undefined;
        return status === 400 || status === 404;
      },
    );
    return this.#isGone;
  }
}
