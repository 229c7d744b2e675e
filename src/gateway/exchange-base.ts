/**
 * The part of an exchange that HTTP and stdio share in every era: its request, its state and its cancel signal.
 * Not here: sending an answer to the client (`write` of each subclass).
 * Invariant: an answer or a cancel ends an exchange exactly once; nothing is written afterwards.
 */
import { Cancellation, type CancelSignal } from '../kernel/cancel-signal.js';
import type { JsonText } from '../wire/frame.js';
import type { Client, Exchange, RpcFailure } from './exchange.js';
import { failureText, notificationText, resultText } from './messages/rpc-text.js';

export type ReceivedRequest = Pick<Exchange, 'idText' | 'method' | 'params' | 'startedAtMs'>;

export abstract class ExchangeBase<C extends Client = Client> implements Exchange {
  client: C;
  readonly idText: string;
  readonly method: string;
  readonly params: Buffer | undefined;
  readonly startedAtMs: number;
  abstract readonly ask: Exchange['ask'];
  #abort: Cancellation | undefined;
  #state: 'open' | 'succeeded' | 'failed' | 'cancelled' = 'open';

  constructor(client: C, { idText, method, params, startedAtMs }: ReceivedRequest) {
    this.client = client;
    this.idText = idText;
    this.method = method;
    this.params = params;
    this.startedAtMs = startedAtMs;
  }

  /** Created on first use: most requests end before a handler needs the signal. */
  get signal(): CancelSignal {
    this.#abort ??= new Cancellation();
    if (this.#state === 'cancelled') this.#abort.abort();
    return this.#abort;
  }

  get isOpen(): boolean {
    return this.#state === 'open';
  }

  get hasSucceeded(): boolean {
    return this.#state === 'succeeded';
  }

  notify(method: string, params: JsonText): void {
    if (this.isOpen) this.writeNotification(notificationText(method, params));
  }

  succeed(...parts: readonly JsonText[]): void {
    this.#end('succeeded', resultText(this.idText, parts), undefined);
  }

  fail(failure: RpcFailure): void {
    this.#end('failed', failureText(this.idText, failure), failure);
  }

  /** Ends the exchange before its handler does. The client gets `failure`, or no answer if it is undefined. */
  cancel(failure?: RpcFailure): void {
    if (!this.isOpen) return;
    this.#end('cancelled', failure && failureText(this.idText, failure), failure);
    this.#abort?.abort();
  }

  /** Aborts the signal but leaves the exchange open: the handler may still answer. */
  protected abort(): void {
    this.#abort?.abort();
  }

  #end(state: 'succeeded' | 'failed' | 'cancelled', answer: JsonText[] | undefined, failure?: RpcFailure): void {
    if (this.#state !== 'open') return;
    this.#state = state;
    this.write(answer, failure);
  }

  protected abstract writeNotification(text: JsonText[]): void;

  /** Called once, at the end. Without `answer` the client gets none. A cancel without an answer has no `failure` either. */
  protected abstract write(answer: JsonText[] | undefined, failure: RpcFailure | undefined): void;
}
