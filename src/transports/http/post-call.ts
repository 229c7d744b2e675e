/**
 * One request as one POST: reads the status, then the answer from a JSON body or an event stream.
 * Not here: one-way messages (call-queue.ts), queueing (http-channel.ts), resuming a broken stream (get-stream.ts).
 * Invariants:
 * - The host gets exactly one of `answered`, `failed`, `refused` and `broke` for a request, unless the call was given up.
 * - An answer is delivered only to the request with its id. A result or error with another id is counted and dropped.
 */
import { ByteBuffer } from '../../kernel/byte-buffer.js';
import { HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import type { EraRules, OutboundFrame } from '../../wire/channel.js';
import type { Envelope } from '../../wire/envelope.js';
import { RPC } from '../../wire/methods.js';
import { inboundTooLarge } from '../../wire/wire-errors.js';
import { headerText, type ResponseHeaders } from './headers.js';
import { type RefusalAnswer, refusesProtocol, tokenRefusal } from './http-errors.js';
import { type ExchangeSink, PostedFrame } from './http-exchange.js';
import { type SseEvent, SseParser } from './sse-parser.js';

export interface CallHost {
  readonly server: string;
  decode(bytes: Buffer, deliver: (envelope: Envelope) => void): void;
  message(envelope: Envelope, frame: OutboundFrame): void;
  active(call: PostCall): void;
  /** Counts a message that belongs to no request. */
  junk(): void;
  /** Called before the body is delivered. A returned error fails the call. */
  opened(call: PostCall, status: number, headers: ResponseHeaders): HostError | undefined;
  answered(call: PostCall): void;
  failed(call: PostCall, error: HostError): void;
  refused(call: PostCall, status: number, headers: ResponseHeaders, rpcCode: number | undefined): void;
  broke(call: PostCall, error: HostError): void;
  released(call: PostCall): void;
}

const errorBodyBytesMax = 64 * 1024;

type Body = 'none' | 'json' | 'events' | 'refusal';

export class PostCall extends PostedFrame implements ExchangeSink {
  /** Undefined: the request was sent before an era was agreed on. */
  readonly era: EraRules | undefined;
  sessionId: string | undefined;
  readonly #host: CallHost;
  lastEventId: string | undefined;
  retryMs: number | undefined;
  /** JSON-RPC error with the id of this request, received with a refusal that `isInDoubt`. */
  refusalAnswer: RefusalAnswer | undefined;
  #over = false;
  #body: Body = 'none';
  #status = 0;
  #headers: ResponseHeaders = {};
  /** Body in one chunk, which is the common case and needs no copy. */
  #only: Buffer | undefined;
  #pieces: ByteBuffer | undefined;
  #length = 0;
  #parser: SseParser | undefined;
  #tooLarge: HostError | undefined;
  #rpcCode: number | undefined;

  constructor(host: CallHost, frame: OutboundFrame, era: EraRules | undefined, isControl = false) {
    super(frame, isControl);
    this.#host = host;
    this.era = era;
  }

  get over(): boolean {
    return this.#over;
  }

  /** True while an event stream occupies the connection of the call. */
  get streaming(): boolean {
    return this.#body === 'events' && this.exchange !== undefined;
  }

  /** The refusal may be about the session or the protocol, even if it has the id of this request. */
  get isInDoubt(): boolean {
    return !this.#sessionLost() && !this.frame.http?.opens && this.era !== undefined && refusesProtocol(this.#status);
  }

  giveUp(): void {
    this.#over = true;
    this.exchange?.abort();
  }

  started(): void {
    this.frame.phase = 'writing';
    this.#host.active(this);
  }

  head(status: number, headers: ResponseHeaders): HostError | undefined {
    // The server has begun to answer, so the request counts as written, even if it was not read completely.
    this.frame.phase = 'written';
    this.#status = status;
    this.#headers = headers;
    this.#host.active(this);
    const refused = this.#host.opened(this, status, headers);
    if (refused) return refused;
    const type = headerText(headers, 'content-type')?.toLowerCase() ?? '';
    if (status < 200 || status > 299) {
      this.#body = 'refusal';
    } else if (type.startsWith('text/event-stream')) {
      this.#body = 'events';
      this.#parser = new SseParser(
        LIMITS.frameBytes,
        (event) => this.#event(event),
        (bytes) => {
          this.#tooLarge = inboundTooLarge(this.#host.server, bytes);
        },
      );
    } else if (status === 202 || status === 204) {
      this.#body = 'none';
    } else if (type === '' || type.startsWith('application/json')) {
      this.#body = 'json';
      const length = Number(headerText(headers, 'content-length') ?? 0);
      if (length > LIMITS.frameBytes) return inboundTooLarge(this.#host.server, length);
    } else {
      return this.#protocolError('answered with neither JSON nor an event stream', 'content_type');
    }
    return undefined;
  }

  data(chunk: Buffer): HostError | undefined {
    this.#host.active(this);
    if (this.#body === 'events') {
      this.#parser?.push(chunk);
      return this.#tooLarge;
    }
    this.#length += chunk.length;
    if (this.#body === 'json') {
      if (this.#length > LIMITS.frameBytes) return inboundTooLarge(this.#host.server, this.#length);
    } else if (this.#length > errorBodyBytesMax) {
      // The status is enough; the rest of the page is not needed.
      this.end();
      this.exchange?.abort();
      return undefined;
    }
    if (this.#body === 'none') return undefined;
    if (this.#length === chunk.length) {
      this.#only = chunk;
      return undefined;
    }
    this.#pieces ??= new ByteBuffer();
    if (this.#only) this.#pieces.add(this.#only);
    this.#only = undefined;
    this.#pieces.add(chunk);
    return undefined;
  }

  end(): void {
    if (this.#body === 'events') {
      this.#parser?.end();
      if (!this.#over) this.#host.broke(this, this.#noAnswer('transport', 'stream_ended'));
      return;
    }
    if (this.#body === 'refusal') return this.#refused();
    if (this.#body === 'json') this.#read();
    if (!this.#over) this.failed(this.#noAnswer('protocol_error', 'no_answer'));
  }

  failed(error: HostError): void {
    if (this.#over) return;
    if (this.#body === 'events' && error !== this.#tooLarge) return this.#host.broke(this, error);
    // The status counts even if the connection broke during the body.
    if (this.#body === 'refusal') return this.#refused();
    this.#over = true;
    this.#host.failed(this, error);
  }

  released(): void {
    this.#host.released(this);
  }

  /** Data of an event on the stream of this call, original or resumed. */
  receive(data: Buffer): void {
    this.#host.decode(data, (envelope) => this.#deliver(envelope));
  }

  /** The call can no longer be answered, for example because its stream cannot be resumed. */
  fail(error: HostError): void {
    if (this.#over) return;
    this.#over = true;
    this.#host.failed(this, error);
  }

  #event(event: SseEvent): void {
    if (event.retryMs !== undefined) this.retryMs = event.retryMs;
    if (event.data.length > 0) this.receive(event.data);
    if (event.id !== undefined) this.lastEventId = event.id === '' ? undefined : event.id;
  }

  #deliver(envelope: Envelope): void {
    if (envelope.kind === 'result' || envelope.kind === 'error') {
      if (envelope.kind === 'error' && envelope.idText() === undefined) {
        this.#rpcCode = errorCode(envelope);
        return;
      }
      if (this.#over || envelope.numericId() !== this.frame.id) return this.#host.junk();
      // A server may report a lost session or a refused token as an error with the id of this request. Then the status decides.
      if (this.#isTokenRefused() || (this.#sessionLost() && errorCode(envelope) !== RPC.methodNotFound)) return;
      if (this.isInDoubt) return this.#storeRefusal(envelope);
      this.#over = true;
      this.#host.answered(this);
    }
    this.#host.message(envelope, this.frame);
  }

  #isTokenRefused(): boolean {
    return tokenRefusal(this.#status, this.#headers) !== undefined;
  }

  #sessionLost(): boolean {
    return this.#status === 404 && this.sessionId !== undefined;
  }

  #storeRefusal(envelope: Envelope): void {
    const bytes = envelope.kind === 'error' && !envelope.isTooDeep ? envelope.payload() : undefined;
    if (bytes) this.refusalAnswer = { bytes, mayHold: envelope.mayHold };
  }

  #read(): void {
    const body = this.#only ?? this.#pieces?.take();
    if (body) this.receive(body);
  }

  #refused(): void {
    if (this.#over) return;
    const isJson = headerText(this.#headers, 'content-type')?.toLowerCase().startsWith('application/json');
    const isPlain = this.#headers['content-encoding'] === undefined;
    if (isJson && isPlain && this.#length <= errorBodyBytesMax) this.#read();
    if (this.#over) return;
    this.#over = true;
    this.#host.refused(this, this.#status, this.#headers, this.#rpcCode);
  }

  #noAnswer(code: 'transport' | 'protocol_error', reason: string): HostError {
    return new HostError(code, `server '${this.#host.server}' ended its response without an answer to the request`, {
      server: this.#host.server,
      reason,
      phase: this.frame.phase,
      execution: 'uncertain',
      httpStatus: this.#status,
      ...(this.#rpcCode === undefined ? {} : { rpcCode: this.#rpcCode }),
    });
  }

  #protocolError(message: string, reason: string): HostError {
    const { server } = this.#host;
    return new HostError('protocol_error', `server '${server}' ${message}`, {
      server,
      reason,
      execution: 'uncertain',
      httpStatus: this.#status,
    });
  }
}

function errorCode(envelope: Envelope): number | undefined {
  const payload = envelope.kind === 'error' && !envelope.isTooDeep ? envelope.payload() : undefined;
  if (!payload || payload.length > errorBodyBytesMax) return undefined;
  const error: unknown = JSON.parse(payload.toString('utf8'));
  const code = typeof error === 'object' && error !== null ? (error as { code?: unknown }).code : undefined;
  return typeof code === 'number' ? code : undefined;
}
