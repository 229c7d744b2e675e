/**
 * The requests of a server's own that wait for our answer (legacy era), bounded by number and by bytes.
 * `ping` is answered here; a server that sends more of them than it reads answers to is not answered any more.
 */
import { LIMITS } from '../kernel/limits.js';
import type { OutboundFrame } from './channel.js';
import type { Envelope } from './envelope.js';
import { InboundRequest } from './inbound-request.js';
import { RPC } from './rpc-codes.js';

/** Whoever answers a request. */
export interface Taker {
  take(request: InboundRequest): void;
  /** It was answered, or nobody wants the answer any more. Told once for each that was taken. */
  over?(request: InboundRequest): void;
}

interface Open {
  readonly request: InboundRequest;
  readonly taker: Taker;
}

/** Answers to pings that may be on their way at once. */
const pongsMax = 64;

export class InboundRequests {
  readonly #send: (frame: OutboundFrame) => void;
  readonly #handlerError: (error: unknown) => void;
  readonly #open = new Map<string, Open>();
  #openBytes = 0;
  #pongs: OutboundFrame[] = [];

  /** `handlerError`: whoever took a request threw. The connection goes on. */
  constructor(send: (frame: OutboundFrame) => void, handlerError: (error: unknown) => void) {
    this.#send = send;
    this.#handlerError = handlerError;
  }

  /** Those that wait for our answer. */
  get size(): number {
    return this.#open.size;
  }

  /** `takerOf` says who answers it, or a refusal. */
  receive(
    envelope: Envelope,
    origin: number | undefined,
    takerOf: (request: InboundRequest) => Taker | readonly [code: number, message: string],
  ): void {
    const idText = envelope.idText() as string;
    const params = envelope.payload();
    const request = new InboundRequest(idText, envelope.method(), params, origin, (frame) => {
      this.#forget(idText, request);
      this.#send(frame);
      if (request.method === 'ping') this.#pongs.push(frame);
    });
    if (request.method === 'ping') return this.#pong(request);
    const taker = takerOf(request);
    if (!('take' in taker)) return request.refuse(...taker);
    const bytes = this.#openBytes + (params?.length ?? 0);
    if (this.#open.size >= LIMITS.inboundRequests || bytes > LIMITS.inboundRequestBytes || this.#open.has(idText)) {
      return request.refuse(
        RPC.internalError,
        `too many requests wait for an answer (limit ${LIMITS.inboundRequests})`,
      );
    }
    this.#open.set(idText, { request, taker });
    this.#openBytes = bytes;
    try {
      taker.take(request);
    } catch (error) {
      request.refuse(RPC.internalError, 'the request could not be handled');
      this.#handlerError(error);
    }
  }

  /** The server no longer wants the answer. False when there is no such request. */
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
    this.#openBytes -= request.params?.length ?? 0;
    open.taker.over?.(request);
  }
}
