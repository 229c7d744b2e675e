/**
 * Opens the legacy HTTP session of a server again when the server has forgotten it.
 * Not here: which requests are then sent once more (session.ts), opening a session (negotiate.ts).
 *
 * Invariants: everyone whose request was refused for the same lost session waits for one renewal; nobody waits longer than it
 * would have for its answer, while the renewal goes on for the others.
 */
import type { CancelSignal } from '../kernel/cancel-signal.js';
import type { Clock } from '../kernel/clock.js';
import { HostError, isHostError } from '../kernel/errors.js';

export interface RenewalParts {
  readonly server: string;
  readonly clock: Clock;
  readonly renew: () => Promise<void>;
  /** What was agreed in the old one does not count; what is sent from here on is of the new one. */
  readonly renewed: () => void;
}

/** What its caller allows the request that was refused. */
export interface RenewalLimits {
  readonly method: string;
  readonly deadlineAtMs: number;
  readonly signal?: CancelSignal | undefined;
}

export class SessionRenewal {
  readonly #parts: RenewalParts;
  #underway: Promise<void> | undefined;
  #count = 0;

  constructor(parts: RenewalParts) {
    this.#parts = parts;
  }

  /** How often it was renewed: taken when a request is sent, and handed in when that was refused. */
  get count(): number {
    return this.#count;
  }

  /** At once when it was renewed since `seen`. */
  renew(seen: number): Promise<void> {
    if (seen !== this.#count) return Promise.resolve();
    this.#underway ??= this.#parts
      .renew()
      .then(() => {
        this.#count++;
        this.#parts.renewed();
      })
      .finally(() => {
        this.#underway = undefined;
      });
    return this.#underway;
  }

  within({ method, deadlineAtMs, signal }: RenewalLimits, seen: number): Promise<void> {
    const { server, clock } = this.#parts;
    const facts = { server, reason: 'session_expired', phase: 'queued', execution: 'not_executed' } as const;
    return new Promise((resolve, reject) => {
      const settle = (run: () => void) => {
        cancelTimer();
        signal?.removeEventListener('abort', onAbort);
        run();
      };
      const giveUp = (code: 'timeout' | 'cancelled', why: string) =>
        settle(() =>
          reject(new HostError(code, `${method} on server '${server}': ${why} while its session was renewed`, facts)),
        );
      const onAbort = () => giveUp('cancelled', 'the caller cancelled it');
      const cancelTimer = clock.at(deadlineAtMs, () => giveUp('timeout', 'its deadline passed'));
      signal?.addEventListener('abort', onAbort, { once: true });
      if (signal?.aborted) return onAbort();
      this.renew(seen).then(
        () => settle(resolve),
        (cause: unknown) =>
          settle(() => {
            // Not the server's fault: whoever renews tokens must hear of it as it is.
            if (isHostError(cause) && cause.code === 'needs_reauth') return reject(cause);
            const message = `${method} on server '${server}': its session could not be renewed`;
            reject(new HostError('transport', message, { ...facts, cause }));
          }),
      );
    });
  }
}
