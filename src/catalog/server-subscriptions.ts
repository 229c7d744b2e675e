/**
 * Subscribes to resources at a legacy server, and again in a new session. A subscription that failed is repeated.
 * Not here: subscribers (subscriptions.ts), modern servers (server-listen-stream.ts).
 *
 * Invariants: one request per resource is open at a time. A request is sent only for a change. A subscription that the server
 * refuses is not repeated in the same session.
 */
import { eachOf } from '../kernel/each-of.js';
import { KeyedMutex } from '../kernel/keyed-mutex.js';
import { resultOf } from '../session/rpc-response.js';
import type { Session } from '../session/session.js';
import { isTemporary, SessionRetry, type SessionWork } from './session-retry.js';

interface SubscriptionParts extends SessionWork {
  readonly session: Pick<Session, 'server' | 'closedBy' | 'request'>;
  readonly uris: () => readonly string[];
  readonly clean: (text: string) => string;
  readonly onProblem: (error: unknown) => void;
}

const requestMsMax = 10_000;
/** How many requests an `update` has in progress at once. */
const concurrencyMax = 8;
/** Further requests for one resource whose earlier requests failed while the session was renewed. */
const repeatsMax = 2;

export class ServerSubscriptions {
  readonly #parts: SubscriptionParts;
  readonly #retry: SessionRetry;
  readonly #mutex = new KeyedMutex();
  /** Resources whose subscription the server has accepted. */
  readonly #accepted = new Set<string>();
  /** Resources that the server refused for good. */
  readonly #refused = new Set<string>();
  /** Number of renewals of the session. */
  #renewals = 0;
  #isUpdating = false;
  #isStale = false;

  constructor(parts: SubscriptionParts) {
    this.#parts = parts;
    this.#retry = new SessionRetry(parts);
  }

  /** Subscribes to all resources that have subscribers. */
  update(): void {
    if (this.#isUpdating) this.#isStale = true;
    else if (this.#retry.isThrottled) this.#retry.after(0, () => this.update());
    else void this.#updateAll();
  }

  /** The server has a new session and has forgotten the old one. */
  renewed(): void {
    this.#renewals++;
    this.#accepted.clear();
    this.#refused.clear();
  }

  /** Resolves when the server has accepted the subscription. */
  subscribed(uri: string): Promise<void> {
    return this.#adjust(uri);
  }

  /** Call it when the last subscriber of the resource has left. */
  unsubscribe(uri: string): void {
    this.#refused.delete(uri);
    this.#adjust(uri).catch(this.#parts.onProblem);
  }

  stop(): void {
    this.#retry.stop();
  }

  async #updateAll(): Promise<void> {
    const { session, uris, onProblem } = this.#parts;
    this.#isUpdating = true;
    this.#isStale = false;
    const wanted = uris().filter((uri) => !this.#accepted.has(uri) && !this.#refused.has(uri));
    const failures: unknown[] = [];
    await eachOf(wanted, concurrencyMax, async (uri) => {
      await this.#adjust(uri).catch((error: unknown) => {
        if (isTemporary(error)) failures.push(error);
        else {
          this.#refused.add(uri);
          onProblem(error);
        }
      });
    });
    this.#isUpdating = false;
    if (session.closedBy) return;
    const [first] = failures;
    if (first === undefined) this.#retry.succeeded();
    else if (!this.#retry.hasFailed) onProblem(first);
    if (this.#isStale) this.update();
    if (first !== undefined) this.#retry.retry(() => this.update());
  }

  /** Subscribes if the resource has subscribers now, otherwise unsubscribes. */
  #adjust(uri: string): Promise<void> {
    return this.#mutex.runExclusive(uri, async () => {
      const { clock, session, uris, clean } = this.#parts;
      for (let repeats = 0; ; repeats++) {
        const isWanted = uris().includes(uri);
        if (isWanted === this.#accepted.has(uri) || session.closedBy || this.#retry.isStopped) return;
        const method = isWanted ? 'resources/subscribe' : 'resources/unsubscribe';
        if (!isWanted) this.#accepted.delete(uri);
        const renewals = this.#renewals;
        try {
          const answer = await this.#retry.send(() =>
            session.request(method, JSON.stringify({ uri }), { deadlineAtMs: clock.nowMs() + requestMsMax }),
          );
          resultOf(answer, session.server, method, clean);
        } catch (error) {
          // If the requests themselves end the sessions, each further request would cause the next renewal.
          if (renewals === this.#renewals || repeats === repeatsMax) throw error;
        }
        if (!isWanted) return;
        // An answer of the old session says nothing about the new one, so the loop subscribes again.
        if (renewals === this.#renewals) this.#accepted.add(uri);
      }
    });
  }
}
