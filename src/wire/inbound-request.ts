/**
 * A request the server sent to us (legacy era: elicitation, sampling, roots).
 * Invariant: answered at most once; a request the server cancelled is not answered at all.
 */
import type { OutboundFrame } from './channel.js';
import { type JsonText, responseFrame } from './frame.js';
import { checkValue } from './json-check.js';

export class InboundRequest {
  readonly idText: string;
  readonly method: string;
  readonly params: Buffer | undefined;
  /** Our request that it belongs to, where the channel can tell: that call caused it. */
  readonly origin: number | undefined;
  readonly #send: (frame: OutboundFrame) => void;
  #abort: AbortController | undefined;
  #state: 'open' | 'answered' | 'cancelled' = 'open';

  constructor(
    idText: string,
    method: string,
    params: Buffer | undefined,
    origin: number | undefined,
    send: (frame: OutboundFrame) => void,
  ) {
    this.idText = idText;
    this.method = method;
    this.params = params;
    this.origin = origin;
    this.#send = send;
  }

  /** Aborts when the server cancels the request, the call that caused it ends, or the connection does. */
  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    if (this.#state === 'cancelled') this.#abort.abort();
    return this.#abort.signal;
  }

  /** Throws when the text is not one JSON value. */
  respond(result: JsonText): void {
    checkValue(result, 'result');
    this.#answer('result', result);
  }

  /** Relays an error object as it is; throws when the text is not one JSON value. */
  fail(error: JsonText): void {
    checkValue(error, 'error');
    this.#answer('error', error);
  }

  refuse(code: number, message: string): void {
    this.fail(`{"code":${code},"message":${JSON.stringify(message)}}`);
  }

  cancel(): void {
    if (this.#state !== 'open') return;
    this.#state = 'cancelled';
    this.#abort?.abort();
  }

  #answer(member: 'result' | 'error', payload: JsonText): void {
    if (this.#state !== 'open') return;
    this.#state = 'answered';
    this.#send(responseFrame(this.idText, member, payload));
  }
}
