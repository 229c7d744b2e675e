/** Modern clients over HTTP: one message per POST. Nothing is stored between requests. */
import type { ServerResponse } from 'node:http';
import { compositeKey } from '../../../policy/composite-key.js';
import { MODERN_ERRORS, MODERN_VERSION } from '../../../session/eras/modern/protocol.js';
import type { JsonText } from '../../../wire/channel.js';
import type { Envelope } from '../../../wire/envelope.js';
import { listenMethod, RPC } from '../../../wire/methods.js';
import {
  type Client,
  type ClientCapabilities,
  type CurrentPrincipal,
  ExchangeBase,
  failureText,
  type ReceivedRequest,
  type RpcFailure,
} from '../../exchange.js';
import type { Caller, IngressContext } from '../../http/ingress-context.js';
import type { OpenExchange } from '../../http/open-exchanges.js';
import { keyRevoked, REFUSALS, type Refusal, stopping, writeJson } from '../../http/reply.js';
import { eventText, SseStream } from '../../http/sse-stream.js';
import type { HttpEra } from '../era.js';
import { checkModernNotification, checkModernRequest } from './envelope.js';

export const createModernHttp = (context: IngressContext): HttpEra => new ModernHttp(context);

class ModernHttp implements HttpEra {
  readonly #context: IngressContext;

  constructor(context: IngressContext) {
    this.#context = context;
  }

  get clients(): number {
    return this.#context.open.endless;
  }

  post(caller: Caller, envelope: Envelope, response: ServerResponse): Refusal | undefined {
    switch (envelope.kind) {
      case 'request':
        return this.#request(caller, envelope, response);
      case 'notification':
        return this.#notification(caller, envelope, response);
      default:
        return REFUSALS.noAnswers;
    }
  }

  #request(caller: Caller, envelope: Envelope, response: ServerResponse): Refusal | undefined {
    const { router, open, clock } = this.#context;
    const idText = envelope.idText() as string;
    const method = envelope.method();
    const params = envelope.payload();
    const check = checkModernRequest(method, params, caller, router);
    if (!check.ok) return this.#fail(response, idText, check.failure);
    // Second check: other requests may have started while this body was read.
    if (!open.admits(caller.principal.id)) return REFUSALS.busy;
    const request = { idText, method, params, startedAtMs: clock.nowMs() };
    const client = clientOf(caller, check.capabilities);
    this.#context.router.handle(new ModernHttpExchange(this.#context, response, client, request));
    return undefined;
  }

  #notification(caller: Caller, envelope: Envelope, response: ServerResponse): undefined {
    // Notifications are not forwarded: a modern client cancels a request by closing its response, and each request carries the
    // client capabilities that its server needs.
    const failure = checkModernNotification(envelope.method(), envelope.payload(), caller.headers);
    if (failure) return this.#fail(response, undefined, failure);
    response.writeHead(202);
    response.end();
    return undefined;
  }

  #fail(response: ServerResponse, idText: string | undefined, failure: RpcFailure): undefined {
    writeJson(response, statusOf(failure), failureText(idText, failure), this.#context.limits.writeStallMs);
  }
}

/**
 * Servers with `isolation: "per-client"` distinguish modern clients by the header `Hostler-Client`; without it, by the key.
 * The id includes the key, and key names have no colon. So a client never reaches the instance of another key.
 */
const clientIdOf = (key: string, name: string | undefined): string =>
  name === undefined ? key : compositeKey('client', key, name);

const clientOf = ({ principal, endpoint, headers }: Caller, capabilities: ClientCapabilities): Client => ({
  id: clientIdOf(principal.id, headers['hostler-client']),
  principal,
  era: 'modern',
  version: MODERN_VERSION,
  endpoint,
  capabilities,
});

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

/**
 * One request of a modern client over HTTP. The response is one JSON text, or an event stream if a notification precedes the
 * answer or the answer is slow.
 * Invariant: a client cancels its request by closing the response.
 */
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
