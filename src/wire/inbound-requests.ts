/**
 * The requests of a server's own that wait for our answer (legacy era), bounded by number and by bytes.
 * `ping` is answered here; a server that sends more of them than it reads answers to is not answered any more.
 */
import { LIMITS } from '../kernel/limits.js';
import type { OutboundFrame } from './channel.js';
import type { Envelope } from './envelope.js';
import { InboundRequest } from './inbound-request.js';
import { RPC } from './rpc-codes.js';

export interface InboundHandlers {
  request?(request: InboundRequest): void;
  /** A handler threw. The connection goes on. */
  handlerError?(error: unknown): void;
}

/** Answers to pings that may be on their way at once. */
const pongsMax = 64;

export class InboundRequests {
  readonly #handlers: InboundHandlers;
  readonly #send: (frame: OutboundFrame) => void;
  readonly #open = new Map<string, InboundRequest>();
  #openBytes = 0;
  #pongs: OutboundFrame[] = [];

  constructor(handlers: InboundHandlers, send: (frame: OutboundFrame) => void) {
    this.#handlers = handlers;
    this.#send = send;
  }

  receive(envelope: Envelope, origin: number | undefined): void {
    const idText = envelope.idText() as string;
    const params = envelope.payload();
    const request = new InboundRequest(idText, envelope.method(), params, origin, (frame) => {
      this.#forget(idText, request);
      this.#send(frame);
      if (request.method === 'ping') this.#pongs.push(frame);
    });
    if (request.method === 'ping') return this.#pong(request);
    if (!this.#handlers.request)
      return request.refuse(RPC.methodNotFound, `this client does not offer ${request.method.slice(0, 100)}`);
    const bytes = this.#openBytes + (params?.length ?? 0);
    if (this.#open.size >= LIMITS.inboundRequests || bytes > LIMITS.inboundRequestBytes || this.#open.has(idText)) {
      return request.refuse(
        RPC.internalError,
        `too many requests wait for an answer (limit ${LIMITS.inboundRequests})`,
      );
    }
    this.#open.set(idText, request);
    this.#openBytes = bytes;
    try {
      this.#handlers.request(request);
    } catch (error) {
      request.refuse(RPC.internalError, 'the request could not be handled');
      this.#handlers.handlerError?.(error);
    }
  }

  /** The server no longer wants the answer. False when there is no such request. */
  cancel(idText: string): boolean {
    const request = this.#open.get(idText);
    if (!request) return false;
    this.#forget(idText, request);
    request.cancel();
    return true;
  }

  cancelAll(): void {
    for (const request of this.#open.values()) request.cancel();
    this.#open.clear();
    this.#openBytes = 0;
  }

  #pong(request: InboundRequest): void {
    if (this.#pongs.length >= pongsMax)
      this.#pongs = this.#pongs.filter(({ phase }) => phase === 'queued' || phase === 'writing');
    if (this.#pongs.length < pongsMax) request.respond('{}');
  }

  #forget(idText: string, request: InboundRequest): void {
    if (this.#open.get(idText) !== request) return;
    this.#open.delete(idText);
    this.#openBytes -= request.params?.length ?? 0;
  }
}
