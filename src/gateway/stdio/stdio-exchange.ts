/** One request of a client over stdio. A cancelled request gets no answer. */
import type { JsonText } from '../../wire/channel.js';
import type { StdioEra } from '../eras/era.js';
import { type Ask, type Client, type Exchange, ExchangeBase, type ReceivedRequest } from '../exchange.js';

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
  readonly batch: PipeBatch | undefined;
}

export class StdioExchange extends ExchangeBase {
  readonly ask: Exchange['ask'];
  readonly #pipe: Pipe;

  constructor(
    pipe: Pipe,
    readonly era: StdioEra,
    client: Client,
    readonly request: StdioRequest,
  ) {
    super(client, request);
    this.#pipe = pipe;
    this.ask = era.ask && ((method, params, limits) => pipe.ask(this, method, params, limits));
  }

  protected writeNotification(text: JsonText[]): void {
    this.#pipe.writeNotification(text);
  }

  protected write(answer: JsonText[] | undefined): void {
    this.#pipe.ended(this, answer);
  }
}

/**
 * Collects the answers to one batch (protocol 2025-03-26) and writes them together after the last one.
 * Invariant: the batch is written once, or never if no message needs an answer.
 */
export class PipeBatch {
  readonly #send: (parts: readonly JsonText[]) => void;
  readonly #parts: JsonText[] = [];
  /** Starts at 1 while the batch is read, so that immediate answers do not complete it. */
  #pending = 1;

  constructor(send: (parts: readonly JsonText[]) => void) {
    this.#send = send;
  }

  expect(): void {
    this.#pending++;
  }

  /** `answer` is undefined for a cancelled request. */
  add(answer: readonly JsonText[] | undefined): void {
    if (answer) this.#parts.push(this.#parts.length === 0 ? '[' : ',', ...answer);
    this.complete();
  }

  /** The reader calls it once, after it has read the whole batch. */
  complete(): void {
    this.#pending--;
    if (this.#pending === 0 && this.#parts.length > 0) this.#send([...this.#parts, ']']);
  }
}
