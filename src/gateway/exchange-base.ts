/**
 * The part of an exchange that HTTP and stdio share, in every era: its request, its state and its cancel signal.
 * Not here: how an answer reaches the client (`write` of each subclass).
 * Invariant: an exchange is ended once, by an answer or a cancel; nothing is written afterwards.
 */
import { Cancellation, type CancelSignal } from '../kernel/cancel-signal.js';
import type { JsonText } from '../wire/frame.js';
import type { Client, Exchange, RpcFailure } from './exchange.js';
import { failureText, notificationText, resultText } from './messages/rpc-text.js';

/** One request as it was received. */
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

  /** Created on first use: most requests are answered before anything waits for a cancel. */
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

  /** Ends the exchange from outside. The client gets `failure`, or no answer at all. */
  cancel(failure?: RpcFailure): void {
    if (!this.isOpen) return;
    this.#end('cancelled', failure && failureText(this.idText, failure), failure);
    this.#abort?.abort();
  }

  /** Aborts the signal while the exchange is open: the handler may still answer. */
  protected abort(): void {
    this.#abort?.abort();
  }

  #end(state: 'succeeded' | 'failed' | 'cancelled', answer: JsonText[] | undefined, failure?: RpcFailure): void {
    if (this.#state !== 'open') return;
    this.#state = state;
    this.write(answer, failure);
  }

  protected abstract writeNotification(text: JsonText[]): void;

  /** Called once, at the end. `answer` is undefined when the client gets none; `failure` when the request succeeded. */
  protected abstract write(answer: JsonText[] | undefined, failure: RpcFailure | undefined): void;
}
