/**
 * Requests that a server sends (legacy era: elicitation, sampling, roots), bounded in number and bytes.
 * `ping` is answered here; a server that does not read the answers gets no more of them.
 * Invariant: each request is answered at most once, and never after the server cancelled it.
 */
import { ByteBudget } from '../kernel/byte-budget.js';
import { LIMITS } from '../kernel/limits.js';
import { type JsonText, type OutboundFrame, responseFrame } from './channel.js';
import type { Envelope } from './envelope.js';
import { checkValue } from './json-edit.js';
import { RPC } from './methods.js';

export class InboundRequest {
  readonly idText: string;
  readonly method: string;
  readonly params: Buffer | undefined;
  /** Id of the request that caused it, if the channel knows. */
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

  /** Aborts when the server cancels the request, or when the causing call or the connection ends. */
  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    if (this.#state === 'cancelled') this.#abort.abort();
    return this.#abort.signal;
  }

  respond(result: JsonText): void {
    checkValue(result, 'result');
    this.#answer('result', result);
  }

  /** Relays an error object unchanged. Throws if the text is not one JSON value. */
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

export interface RequestHandler {
  handle(request: InboundRequest): void;
  /** Called once for each taken request, when it was answered or cancelled. */
  ended?(request: InboundRequest): void;
}

interface Open {
  readonly request: InboundRequest;
  readonly handler: RequestHandler;
}

const pongsMax = 64;

export class InboundRequests {
  readonly #send: (frame: OutboundFrame) => void;
  readonly #handlerError: (error: unknown) => void;
  readonly #open = new Map<string, Open>();
  readonly #paramBytes = new ByteBudget(LIMITS.inboundRequestBytes);
  #pongs: OutboundFrame[] = [];

  /** `handlerError`: a handler threw. The connection stays open. */
  constructor(send: (frame: OutboundFrame) => void, handlerError: (error: unknown) => void) {
    this.#send = send;
    this.#handlerError = handlerError;
  }

  get size(): number {
    return this.#open.size;
  }

  receive(
    envelope: Envelope,
    origin: number | undefined,
    handlerOf: (request: InboundRequest) => RequestHandler | readonly [code: number, message: string],
  ): void {
    const idText = envelope.idText() as string;
    const params = envelope.payload();
    const request = new InboundRequest(idText, envelope.method(), params, origin, (frame) => {
      this.#forget(idText, request);
      this.#send(frame);
      if (request.method === 'ping') this.#pongs.push(frame);
    });
    if (request.method === 'ping') return this.#pong(request);
    const handler = handlerOf(request);
    if (!('handle' in handler)) return request.refuse(...handler);
    if (this.#open.has(idText))
      return request.refuse(RPC.internalError, 'a request with this id is open; use another id');
    if (this.#open.size >= LIMITS.inboundRequests || !this.#paramBytes.take(params?.length ?? 0)) {
      return request.refuse(
        RPC.internalError,
        `too many requests wait for an answer (limit ${LIMITS.inboundRequests})`,
      );
    }
    this.#open.set(idText, { request, handler });
    try {
      handler.handle(request);
    } catch (error) {
      request.refuse(RPC.internalError, 'the request could not be handled');
      this.#handlerError(error);
    }
  }

  cancel(idText: string): boolean {
    const open = this.#open.get(idText);
    if (!open) return false;
    this.#forget(idText, open.request);
    open.request.cancel();
    return true;
  }

  cancelAll(): void {
    for (const idText of [...this.#open.keys()]) this.cancel(idText);
  }

  #pong(request: InboundRequest): void {
    if (this.#pongs.length >= pongsMax)
      this.#pongs = this.#pongs.filter(({ phase }) => phase === 'queued' || phase === 'writing');
    if (this.#pongs.length < pongsMax) request.respond('{}');
  }

  #forget(idText: string, request: InboundRequest): void {
    const open = this.#open.get(idText);
    if (open?.request !== request) return;
    this.#open.delete(idText);
    this.#paramBytes.release(request.params?.length ?? 0);
    open.handler.ended?.(request);
  }
}
