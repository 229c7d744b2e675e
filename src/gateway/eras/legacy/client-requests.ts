/**
 * Requests to one legacy client on behalf of its own requests (elicitation, sampling, roots), while they wait for an answer.
 * Not here: the stream or pipe that a request is written to (`send`).
 *
 * Invariants: nothing is sent before the client's `notifications/initialized`; an earlier request waits for it, for a bounded time.
 * Every request is settled once: by an answer, its deadline, its signal, the end of its owner, or of the client.
 */
import type { Cancel, Clock } from '../../../kernel/clock.js';
import { type ErrorCode, HostError } from '../../../kernel/errors.js';
import type { Envelope } from '../../../wire/envelope.js';
import type { JsonText } from '../../../wire/frame.js';
import type { Answer } from '../../../wire/peer-interface.js';
import { NOTIFICATION } from '../../../wire/rpc-codes.js';
import type { AskLimits } from '../../exchange.js';
import { notificationText, requestText } from '../../messages/rpc-text.js';

/** False: the client cannot be reached. */
export type Send = (parts: readonly JsonText[]) => boolean;

/** How long a request waits for `notifications/initialized`. */
export const initializedWaitMs = 10_000;

interface Ask {
  readonly owner: object;
  readonly method: string;
  readonly params: JsonText | undefined;
  readonly send: Send;
  readonly settle: (outcome: Answer | HostError) => void;
}

export class ClientRequests {
  readonly #clock: Clock;
  readonly #max: number;
  /** At most `max`. Undefined until the first: most clients are never asked anything. */
  #open: Map<number, Ask> | undefined;
  #lastId = 0;
  #isInitialized = false;
  #isEnded = false;

  constructor(clock: Clock, max: number) {
    this.#clock = clock;
    this.#max = max;
  }

  get size(): number {
    return this.#open?.size ?? 0;
  }

  /** The client has sent `notifications/initialized`: sends the requests that wait for it. */
  initialized(): void {
    if (this.#isInitialized) return;
    this.#isInitialized = true;
    for (const [id, ask] of [...(this.#open ?? [])]) this.#send(id, ask);
  }

  /** `owner`: the request of the client on whose behalf it is asked. */
  ask(
    owner: object,
    send: Send,
    method: string,
    params: JsonText | undefined,
    { deadlineAtMs, signal }: AskLimits,
  ): Promise<Answer> {
    if (this.#isEnded) return Promise.reject(unanswered('transport', method, 'cannot be answered: the client is gone'));
    if (this.size >= this.#max) return Promise.reject(tooMany(this.#max));
    if (signal?.aborted) return Promise.reject(unanswered('cancelled', method, 'was cancelled before it was sent'));
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      const cancelTimer = this.#clock.at(deadlineAtMs, () => this.#giveUp(id, 'timeout', 'was not answered in time'));
      const onAbort = () => this.#giveUp(id, 'cancelled', 'is no longer wanted');
      const cancelWait = this.#isInitialized ? undefined : this.#waitForInitialized(id);
      const settle = (outcome: Answer | HostError) => {
        this.#open?.delete(id);
        cancelTimer();
        cancelWait?.();
        signal?.removeEventListener('abort', onAbort);
        if (outcome instanceof HostError) reject(outcome);
        else resolve(outcome);
      };
      const ask: Ask = { owner, method, params, send, settle };
      this.#open ??= new Map();
      this.#open.set(id, ask);
      signal?.addEventListener('abort', onAbort, { once: true });
      if (this.#isInitialized) this.#send(id, ask);
    });
  }

  /** False: no request waits for it. */
  answered(envelope: Envelope): boolean {
    const ask = this.#open?.get(envelope.numericId());
    const bytes = envelope.payload();
    if (!ask || !bytes) return false;
    ask.settle({ kind: envelope.kind as Answer['kind'], bytes, mayHold: envelope.mayHold });
    return true;
  }

  /** Withdraws the requests of this owner, before the owner is answered. */
  withdraw(owner: object): void {
    if (!this.#open || this.#open.size === 0) return;
    for (const [id, ask] of [...this.#open])
      if (ask.owner === owner) this.#giveUp(id, 'cancelled', 'is no longer wanted');
  }

  /** The client sends no more answers. */
  end(): void {
    this.#isEnded = true;
    for (const id of [...(this.#open?.keys() ?? [])])
      this.#giveUp(id, 'transport', 'was not answered before the client was gone');
  }

  #send(id: number, { method, params, send, settle }: Ask): void {
    if (!send(requestText(id, method, params)))
      settle(unanswered('transport', method, 'was not sent: the client has no open stream'));
  }

  #waitForInitialized(id: number): Cancel {
    return this.#clock.at(this.#clock.nowMs() + initializedWaitMs, () => {
      if (!this.#isInitialized)
        this.#giveUp(id, 'timeout', 'was not sent: the client never sent notifications/initialized');
    });
  }

  #giveUp(id: number, code: ErrorCode, what: string): void {
    const ask = this.#open?.get(id);
    if (!ask) return;
    // A request that was never sent needs no cancellation.
    if (this.#isInitialized) ask.send(notificationText(NOTIFICATION.cancelled, `{"requestId":${id}}`));
    ask.settle(unanswered(code, ask.method, what));
  }
}

const unanswered = (code: ErrorCode, method: string, what: string): HostError =>
  new HostError(code, `${method} to the client ${what}`, { execution: 'uncertain' });

const tooMany = (limit: number): HostError =>
  new HostError('overloaded', `${limit} requests to this client wait for an answer`, {
    reason: 'pending_requests',
    execution: 'not_executed',
    limit,
  });
