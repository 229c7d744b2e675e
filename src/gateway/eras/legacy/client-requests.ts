/**
 * Pending requests to one legacy client (elicitation, sampling, roots) while Hostler handles a request of that client.
 * Not here: the stream or pipe that a request is written to (`send`).
 * Invariants: a request waits for `notifications/initialized` of the client before it is sent, for at most `initializedWaitMs`.
 * Every request is settled once: by an answer, its deadline, its signal, or the end of its owner or of the client.
 */
import type { Cancel, Clock } from '../../../kernel/clock.js';
import { type ErrorCode, HostError } from '../../../kernel/errors.js';
import type { JsonText } from '../../../wire/channel.js';
import type { Envelope } from '../../../wire/envelope.js';
import { NOTIFICATION } from '../../../wire/methods.js';
import type { Answer } from '../../../wire/peer-interface.js';
import { type AskLimits, notificationText, requestText } from '../../exchange.js';

/** False: no connection to the client is open. */
export type Send = (parts: readonly JsonText[]) => boolean;

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
  /** At most `max` entries. Created on demand: most clients never get a request. */
  #open: Map<number, Ask> | undefined;
  #lastId: number;
  #isInitialized = false;
  #isEnded = false;

  /** Ids start after `lastId`. */
  constructor(clock: Clock, max: number, lastId = 0) {
    this.#clock = clock;
    this.#max = max;
    this.#lastId = lastId;
  }

  get size(): number {
    return this.#open?.size ?? 0;
  }

  /** Called after `notifications/initialized`: sends the waiting requests. */
  initialized(): void {
    if (this.#isInitialized) return;
    this.#isInitialized = true;
    for (const [id, ask] of [...(this.#open ?? [])]) this.#send(id, ask);
  }

  /** `owner`: the client's request that caused this one. */
  ask(
    owner: object,
    send: Send,
    method: string,
    params: JsonText | undefined,
    { deadlineAtMs, signal }: AskLimits,
  ): Promise<Answer> {
    if (this.#isEnded)
      return Promise.reject(unanswered('transport', method, 'cannot be answered: the client has disconnected'));
    if (this.size >= this.#max) return Promise.reject(tooMany(this.#max));
    if (signal?.aborted) return Promise.reject(unanswered('cancelled', method, 'was cancelled before it was sent'));
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      const cancelTimer = this.#clock.at(deadlineAtMs, () => this.#giveUp(id, 'timeout', 'was not answered in time'));
      const onAbort = () => this.#giveUp(id, 'cancelled', 'was withdrawn before it was answered');
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

  /** False: no request waits for this answer. */
  answered(envelope: Envelope): boolean {
    const ask = this.#open?.get(envelope.numericId());
    const bytes = envelope.payload();
    if (!ask || !bytes) return false;
    ask.settle({ kind: envelope.kind as Answer['kind'], bytes, mayHold: envelope.mayHold });
    return true;
  }

  /** Must be called before the owner is answered: the answer ends the stream that carries the cancellation. */
  withdraw(owner: object): void {
    if (!this.#open || this.#open.size === 0) return;
    for (const [id, ask] of [...this.#open])
      if (ask.owner === owner) this.#giveUp(id, 'cancelled', 'was withdrawn before it was answered');
  }

  /** Called when the client can send no more answers. */
  end(): void {
    this.#isEnded = true;
    for (const id of [...(this.#open?.keys() ?? [])])
      this.#giveUp(id, 'transport', 'was not answered before the client disconnected');
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
