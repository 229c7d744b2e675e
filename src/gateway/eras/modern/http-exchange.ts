/**
 * One request of a modern client over HTTP. The response is one JSON text, or an event stream if a notification precedes the
 * answer or the answer is slow.
 * Invariant: a client cancels its request by closing the response.
 */
import type { ServerResponse } from 'node:http';
import { MODERN_ERRORS } from '../../../session/eras/modern/protocol.js';
import type { JsonText } from '../../../wire/frame.js';
import { listenMethod, RPC } from '../../../wire/rpc-codes.js';
import type { Client, CurrentPrincipal, RpcFailure } from '../../exchange.js';
import { ExchangeBase, type ReceivedRequest } from '../../exchange-base.js';
import type { IngressContext } from '../../http/ingress-context.js';
import type { OpenExchange } from '../../http/open-exchanges.js';
import { keyRevoked, stopping } from '../../http/refusals.js';
import { writeJson } from '../../http/reply.js';
import { eventText, SseStream } from '../../http/sse-stream.js';

const STATUS: Readonly<Record<number, number>> = {
  [RPC.parseError]: 400,
  [RPC.invalidRequest]: 400,
  [RPC.methodNotFound]: 404,
  [MODERN_ERRORS.headerMismatch]: 400,
  [MODERN_ERRORS.missingCapability]: 400,
  [MODERN_ERRORS.unsupportedVersion]: 400,
};

/** A code without an entry in `STATUS` means that the request was processed: 200. */
export const statusOf = ({ code, httpStatus }: RpcFailure): number => httpStatus ?? STATUS[code] ?? 200;

export class ModernHttpExchange extends ExchangeBase implements OpenExchange {
  readonly ask = undefined;
  readonly #response: ServerResponse;
  readonly #context: IngressContext;
  readonly #openId: number;
  #stream: SseStream | undefined;

  constructor(context: IngressContext, response: ServerResponse, client: Client, request: ReceivedRequest) {
    super(client, request);
    this.#context = context;
    this.#response = response;
    this.#openId = context.open.add(this, client.principal.id);
    response.on('close', () => this.cancel());
  }

  get isEndless(): boolean {
    return this.method === listenMethod;
  }

  get isSilent(): boolean {
    return this.#stream === undefined;
  }

  linger(): void {
    if (this.isOpen) this.#opened().beat();
  }

  shutDown(): void {
    this.#endWith(stopping);
  }

  keysChanged(now: CurrentPrincipal): void {
    const principal = now(this.client.principal);
    if (!principal) this.#endWith(keyRevoked);
    else if (principal !== this.client.principal) this.client = { ...this.client, principal };
  }

  /** A `subscriptions/listen` stream is closed without an error, because the client has already processed its notifications. */
  #endWith(failure: RpcFailure): void {
    this.abort();
    this.cancel(this.isEndless && this.#stream ? undefined : failure);
  }

  #opened(): SseStream {
    this.#stream ??= new SseStream(this.#response, this.#context.limits, this.#context.beat, []);
    return this.#stream;
  }

  protected writeNotification(text: JsonText[]): void {
    this.#opened().write(eventText(undefined, text));
  }

  protected write(answer: JsonText[] | undefined, failure: RpcFailure | undefined): void {
    this.#context.open.delete(this.#openId);
    if (this.#stream) {
      if (answer) this.#stream.write(eventText(undefined, answer));
      this.#stream.end();
    } else if (answer)
      writeJson(this.#response, failure ? statusOf(failure) : 200, answer, this.#context.limits.writeStallMs);
  }
}
