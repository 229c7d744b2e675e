/**
 * One request of the client of a pipe.
 * Invariants: as every Exchange, it is ended once; a cancelled one is not heard of again.
 */
import { Cancellation, type CancelSignal } from '../../kernel/cancel-signal.js';
import type { JsonText } from '../../wire/frame.js';
import type { Answer } from '../../wire/peer-interface.js';
import type { AskLimits, Client, Exchange, RpcFailure } from '../exchange.js';
import { failureText, resultText } from '../messages/rpc-text.js';

/** What an exchange needs of its pipe. */
export interface Pipe {
  /** `answer` is undefined when there is none to send. */
  ended(exchange: StdioExchange, answer: readonly JsonText[] | undefined): void;
  notify(method: string, params: JsonText | undefined): void;
  ask(owner: object, method: string, params: JsonText | undefined, limits: AskLimits): Promise<Answer>;
}

export interface Request {
  readonly idText: string;
  readonly method: string;
  readonly params: Buffer | undefined;
  /** Of the whole message: what it holds on to while it is under way. */
  readonly bytes: number;
  /** Where the answer goes when it does not go out alone. */
  readonly batch: BatchAnswers | undefined;
}

/** Collects the answers of one batch. */
export interface BatchAnswers {
  add(answer: readonly JsonText[] | undefined): void;
}

export class StdioExchange implements Exchange {
  readonly client: Client;
  readonly idText: string;
  readonly method: string;
  readonly params: Buffer | undefined;
  readonly startedAtMs: number;
  readonly ask: Exchange['ask'];
  readonly request: Request;
  readonly #pipe: Pipe;
  #abort: Cancellation | undefined;
  #state: 'open' | 'succeeded' | 'failed' | 'cancelled' = 'open';

  constructor(pipe: Pipe, client: Client, request: Request, startedAtMs: number) {
    this.#pipe = pipe;
    this.client = client;
    this.request = request;
    this.idText = request.idText;
    this.method = request.method;
    this.params = request.params;
    this.startedAtMs = startedAtMs;
    this.ask = client.era === 'legacy' ? (method, params, limits) => pipe.ask(this, method, params, limits) : undefined;
  }

  /** Made when it is first asked for: most requests are answered before anybody does. */
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
    if (this.#state === 'open') this.#pipe.notify(method, params);
  }

  succeed(...parts: readonly JsonText[]): void {
    if (this.#state === 'open') this.#end('succeeded', resultText(this.idText, parts));
  }

  fail(failure: RpcFailure): void {
    if (this.#state === 'open') this.#end('failed', failureText(this.idText, failure));
  }

  /** Nobody waits for it any more. */
  cancel(): void {
    if (this.#state !== 'open') return;
    this.#state = 'cancelled';
    this.#pipe.ended(this, undefined);
    this.#abort?.abort();
  }

  #end(state: 'succeeded' | 'failed', answer: readonly JsonText[]): void {
    this.#state = state;
    this.#pipe.ended(this, answer);
  }
}
