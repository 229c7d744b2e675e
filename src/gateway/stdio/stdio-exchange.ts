/** One request of a client over stdio. A cancelled request gets no answer. */
import type { JsonText } from '../../wire/frame.js';
import type { StdioEra } from '../eras/era.js';
import type { Ask, Client, Exchange } from '../exchange.js';
import { ExchangeBase, type ReceivedRequest } from '../exchange-base.js';

/** The pipe as an exchange uses it. */
export interface Pipe {
  /** `answer` is undefined if the client gets no answer. */
  ended(exchange: StdioExchange, answer: readonly JsonText[] | undefined): void;
  writeNotification(text: readonly JsonText[]): void;
  ask(owner: StdioExchange, ...request: Parameters<Ask>): ReturnType<Ask>;
}

export interface StdioRequest extends ReceivedRequest {
  /** Size of id and params, counted while the request is open. */
  readonly bytes: number;
  /** The batch that the request belongs to, if any. */
  readonly batch: BatchAnswers | undefined;
}

export interface BatchAnswers {
  add(answer: readonly JsonText[] | undefined): void;
}

export class StdioExchange extends ExchangeBase {
  readonly ask: Exchange['ask'];
  readonly era: StdioEra;
  readonly request: StdioRequest;
  readonly #pipe: Pipe;

  constructor(pipe: Pipe, era: StdioEra, client: Client, request: StdioRequest) {
    super(client, request);
    this.#pipe = pipe;
    this.era = era;
    this.request = request;
    this.ask = era.ask && ((method, params, limits) => pipe.ask(this, method, params, limits));
  }

  protected writeNotification(text: JsonText[]): void {
    this.#pipe.writeNotification(text);
  }

  protected write(answer: JsonText[] | undefined): void {
    this.#pipe.ended(this, answer);
  }
}
