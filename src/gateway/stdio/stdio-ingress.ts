/**
 * MCP over one pipe: lines from and to one client, both eras at once. A request with the modern envelope needs no session.
 * `initialize` opens the one legacy session of the pipe, to which every other message belongs.
 * Not here: reading messages (inbound-lines.ts), writing lines (wire/line-writer.ts), answering requests (the router).
 *
 * Invariants:
 * - Every request with an id is answered once, or was cancelled. Nothing is written after the end.
 * - Input is paused while the client does not read. Open requests, unread bytes and requests to the client are bounded.
 * - When the client or the gateway ends, open requests may finish within a limit. Listen streams and requests to the client
 *   end at once.
 */
import type { Readable, Writable } from 'node:stream';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { deferred } from '../../kernel/deferred.js';
import { HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { newId, randomInt, systemRandom } from '../../kernel/random.js';
import { RefusalPacer } from '../../kernel/refusal-pacer.js';
import type { Principal } from '../../policy/operation.js';
import type { JsonText } from '../../wire/channel.js';
import { Envelope } from '../../wire/envelope.js';
import { isObject, memberText } from '../../wire/json-members.js';
import { LineWriter, lineOf } from '../../wire/line-writer.js';
import { listenMethod, NOTIFICATION, RPC } from '../../wire/methods.js';
import type { Answer } from '../../wire/peer-interface.js';
import type { ClientEra, StdioEra, StdioPipe } from '../eras/era.js';
import { claimant, ERAS } from '../eras/eras.js';
import {
  type Ask,
  type EndpointId,
  endpointKey,
  failureText,
  isFailure,
  type Router,
  type RpcFailure,
  resultText,
} from '../exchange.js';
import { ownFailure } from '../messages/failures.js';
import type { IngressFigures } from '../metrics/metric-table.js';
import { type Fault, InboundLines, invalid } from './inbound-lines.js';
import { type Pipe, PipeBatch, StdioExchange, type StdioRequest } from './stdio-exchange.js';

/** Bounds of one client: number of requests in progress, and the bytes of their ids and params. */
export const exchangesMax = 1_000;
export const exchangeBytesMax = 64 * 1024 * 1024;
/** Unread bytes above which input from the client is paused. */
export const pauseBytes = 1024 * 1024;
/** Unread bytes above which notifications are dropped. */
export const noticeBytesMax = LIMITS.outboundBytes;
/** Unread bytes above which an answer is replaced by an error. */
export const answerBytesMax = 64 * 1024 * 1024;

/** How long the client may take to read pending output after the end. */
const flushMs = 2_000;
/** How long requests in progress may take after the client closed its output. */
const drainAfterEndMs = 10_000;
const methodBytesMax = 256;
/** Bound of the first id. JSON readers keep integers up to 2 ** 53 exact, so later ids have room. */
const idsMax = 2 ** 52;

export interface StdioIngressOptions {
  readonly router: Router;
  readonly clock: Clock;
  readonly input: Readable;
  readonly output: Writable;
  readonly principal: Principal;
  readonly endpoint: EndpointId;
  /** Client id; undefined: a new one. */
  readonly client?: string | undefined;
  /** Receives internal errors. The pipe stays open. */
  readonly onProblem: (error: unknown) => void;
}

export interface StdioIngress {
  /** Resolves when the pipe has ended and no request is in progress. Never rejects. */
  readonly closed: Promise<void>;
  readonly inFlight: number;
  figures(): IngressFigures;
  /** Stops reading, waits up to `drainMs` for requests in progress, then cancels them. */
  close(drainMs?: number): Promise<void>;
}

export const createStdioIngress = (options: StdioIngressOptions): StdioIngress => new PipeIngress(options);

class PipeIngress implements StdioIngress, Pipe {
  readonly #options: StdioIngressOptions;
  /** Client id: one process is one client, in either era. */
  readonly #id: string;
  readonly #out: LineWriter;
  readonly #in: InboundLines;
  /** Requests in progress by id text, at most `exchangesMax`. */
  readonly #exchanges = new Map<string, StdioExchange>();
  #exchangeBytes = 0;
  readonly #eras: readonly { readonly era: ClientEra; readonly stdio: StdioEra }[];
  #isOver = false;
  #isDraining = false;
  #cancelDrain: Cancel = () => {};
  /** Refusals of requests beyond `exchangesMax`. */
  readonly #refusals: RefusalPacer;
  readonly #closed = deferred();

  constructor(options: StdioIngressOptions) {
    const { input, output, principal, endpoint, clock } = options;
    this.#options = options;
    this.#id = options.client ?? newId();
    this.#refusals = new RefusalPacer(clock);
    this.#out = new LineWriter(output, { defer: process.nextTick, onTaken: () => this.#balance() });
    this.#in = new InboundLines({
      message: (envelope) => this.#message(envelope, undefined),
      fault: (fault) => this.#refuse(fault, undefined),
      batch: (bytes, bounds) => this.#batch(bytes, bounds),
    });
    const pipe: StdioPipe = {
      ...{ id: this.#id, principal, endpoint, clock, write: this.#send },
      // A relay may move its client from one host to another. A late answer for the old host must not match a request of this one.
      lastRequestId: options.client === undefined ? 0 : randomInt(systemRandom, 1, idsMax),
      writeNotification: (text) => this.writeNotification(text),
      opened: (session) => this.#guard(() => options.router.opened(session)),
    };
    this.#eras = ERAS.map((era) => ({ era, stdio: era.openStdio(pipe) }));
    output.on('error', this.#broken);
    output.on('close', this.#broken);
    input.on('data', this.#data);
    input.on('end', this.#ended);
    input.on('error', this.#ended);
    input.on('close', this.#ended);
    // A stream that has already ended does not emit these events again.
    if (output.destroyed) this.#broken();
    else if (input.readableEnded || input.destroyed) this.#ended();
  }

  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  get inFlight(): number {
    return this.#exchanges.size;
  }

  figures(): IngressFigures {
    const streams = [...this.#exchanges.values()].filter(({ method }) => method === listenMethod);
    const clients = this.#eras.map(({ era, stdio }) => [
      era.name,
      stdio.sessions ?? streams.filter((exchange) => exchange.era === stdio).length,
    ]);
    return { clients: Object.fromEntries(clients), httpAnswers: {} };
  }

  close(drainMs = 0): Promise<void> {
    if (drainMs > 0) this.#drain(drainMs);
    else this.#end();
    return this.closed;
  }

  // --- Pipe

  ended(exchange: StdioExchange, answer: readonly JsonText[] | undefined): void {
    const { idText, request, era } = exchange;
    this.#exchanges.delete(idText);
    this.#exchangeBytes -= request.bytes;
    era.ending?.(exchange);
    if (this.#isOver) return;
    const isTooMuch = answer !== undefined && this.#out.bytes > answerBytesMax;
    const parts = isTooMuch ? failureText(idText, ownFailure(unread(this.#out.bytes))) : answer;
    if (request.batch) request.batch.add(parts);
    else if (parts) this.#write(parts);
    era.ended?.(exchange, exchange.hasSucceeded);
    if (this.#isDraining) this.#endWhenDone();
  }

  writeNotification(text: readonly JsonText[]): void {
    if (this.#out.bytes <= noticeBytesMax) this.#write(text);
  }

  ask(owner: StdioExchange, ...request: Parameters<Ask>): Promise<Answer> {
    if (!owner.isOpen)
      return Promise.reject(new HostError('cancelled', 'the request that caused the question has ended'));
    if (this.#out.bytes > noticeBytesMax) return Promise.reject(unread(this.#out.bytes));
    return (owner.era as Required<StdioEra>).ask(owner, ...request);
  }

  // --- input

  readonly #data = (chunk: Buffer | string): void => {
    if (this.#isOver || this.#isDraining) return;
    this.#in.push(typeof chunk === 'string' ? Buffer.from(chunk) : chunk);
  };

  #batch(bytes: Buffer, bounds: readonly number[]): void {
    if (!this.#eras.some(({ stdio }) => stdio.hasBatches))
      return this.#refuse(invalid(undefined, 'this protocol version has no batches'), undefined);
    const batch = new PipeBatch((parts) => this.#write(parts));
    for (let i = 0; i < bounds.length; i += 2) {
      const read = this.#in.readOne(bytes, bounds[i] as number, bounds[i + 1] as number);
      if (read instanceof Envelope) this.#message(read, batch);
      else this.#refuse(read, batch);
    }
    batch.complete();
  }

  #message(envelope: Envelope, batch: PipeBatch | undefined): void {
    if (this.#isOver) return;
    switch (envelope.kind) {
      case 'request':
        return this.#requested(envelope, batch);
      case 'notification':
        return this.#notified(envelope.method(), envelope.payload());
      default:
        // An answer without a pending request is dropped.
        for (const { stdio } of this.#eras) stdio.answered?.(envelope);
    }
  }

  #notified(method: string, params: Buffer | undefined): void {
    if (method === NOTIFICATION.cancelled) return this.#cancelled(params);
    claimant(this.#eras, undefined, params).stdio.notified?.(method);
  }

  #cancelled(params: Buffer | undefined): void {
    const idText = params && memberText(params, 'requestId');
    const exchange = idText === undefined ? undefined : this.#exchanges.get(idText);
    // The specification forbids cancelling `initialize`.
    if (exchange?.method !== 'initialize') exchange?.cancel();
  }

  #requested(envelope: Envelope, batch: PipeBatch | undefined): void {
    const idText = envelope.idText() as string;
    const params = envelope.payload();
    const request: StdioRequest = {
      idText,
      method: envelope.methodEnd - envelope.methodStart > methodBytesMax ? '' : envelope.method(),
      params,
      startedAtMs: this.#options.clock.nowMs(),
      bytes: idText.length + (params?.length ?? 0),
      batch,
    };
    if (this.#isFull(request.bytes)) return this.#refuseFull(idText, batch);
    const refusal = this.#refusalOf(request);
    const { era, stdio } = claimant(this.#eras, undefined, params);
    // A ping is answered here, with or without a session: it checks only the gateway.
    if (!refusal && request.method === 'ping' && era.ownMethods.has('ping'))
      return this.#answer(resultText(idText, ['{}']), batch);
    const client = refusal ?? stdio.clientOf(request.method, params, batch !== undefined);
    if (isFailure(client)) return this.#refuse({ idText: request.idText, failure: client }, batch);
    const exchange = new StdioExchange(this, stdio, client, request);
    this.#exchanges.set(request.idText, exchange);
    this.#exchangeBytes += request.bytes;
    batch?.expect();
    try {
      this.#options.router.handle(exchange);
    } catch (error) {
      this.#options.onProblem(error);
      exchange.fail({ code: RPC.internalError, message: 'the request could not be handled' });
    }
  }

  #isFull(bytes: number): boolean {
    return this.#exchanges.size >= exchangesMax || this.#exchangeBytes + bytes > exchangeBytesMax;
  }

  #refuseFull(idText: string, batch: PipeBatch | undefined): void {
    const failure = ownFailure(tooMany(this.#exchanges.size));
    // A batch is answered as a whole.
    if (batch) this.#refuse({ idText, failure }, batch);
    else this.#refusals.run(() => this.#refuse({ idText, failure }, undefined));
  }

  #refusalOf({ idText, method, params }: StdioRequest): RpcFailure | undefined {
    const { router, endpoint, principal } = this.#options;
    if (method === '') return invalid(idText, `the method has more than ${methodBytesMax} bytes, or none`).failure;
    if (this.#exchanges.has(idText)) return invalid(idText, 'a request with this id is in progress').failure;
    if (params && !isObject(params)) return { code: RPC.invalidParams, message: 'params must be an object' };
    return router.hasEndpoint(endpoint, principal) ? undefined : ownFailure(noEndpoint(endpoint));
  }

  // --- output

  #refuse({ idText, failure }: Fault, batch: PipeBatch | undefined): void {
    this.#answer(failureText(idText, failure), batch);
  }

  #answer(parts: readonly JsonText[], batch: PipeBatch | undefined): void {
    if (!batch) return this.#write(parts);
    batch.expect();
    batch.add(parts);
  }

  #write(parts: readonly JsonText[]): void {
    if (this.#isOver) return;
    this.#out.write(lineOf(parts));
    this.#balance();
  }

  readonly #send = (parts: readonly JsonText[]): boolean => {
    this.#write(parts);
    return !this.#isOver;
  };

  /** Pauses input while the client does not read its output. */
  #balance(): void {
    const { input } = this.#options;
    if (this.#isOver || this.#isDraining) return;
    if (this.#out.bytes > pauseBytes) input.pause();
    else if (input.isPaused()) input.resume();
  }

  // --- the end

  readonly #ended = (): void => {
    if (this.#isOver || this.#isDraining) return;
    this.#in.end();
    this.#drain(drainAfterEndMs);
  };

  #drain(drainMs: number): void {
    if (this.#isOver) return;
    const { input, clock } = this.#options;
    this.#refusals.flush();
    if (!this.#isDraining) {
      this.#isDraining = true;
      input.off('data', this.#data);
      input.pause();
      // The client can send no more answers.
      for (const { stdio } of this.#eras) stdio.clientInputEnded?.();
      for (const exchange of [...this.#exchanges.values()]) if (exchange.method === listenMethod) exchange.cancel();
    }
    this.#cancelDrain();
    this.#cancelDrain = clock.at(clock.nowMs() + drainMs, () => this.#end());
    this.#endWhenDone();
  }

  #endWhenDone(): void {
    if (this.#exchanges.size === 0) this.#end();
  }

  readonly #broken = (): void => {
    this.#out.abandon();
    this.#end();
  };

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelDrain();
    const { input, clock } = this.#options;
    input.off('data', this.#data);
    input.pause();
    for (const { stdio } of this.#eras) stdio.clientInputEnded?.();
    for (const exchange of [...this.#exchanges.values()]) exchange.cancel();
    const wasOpened = this.#eras.filter(({ stdio }) => stdio.end?.()).length > 0;
    if (!wasOpened) this.#guard(() => this.#options.router.endedBeforeOpen?.({ id: this.#id }));
    const giveUp = clock.at(clock.nowMs() + flushMs, () => this.#out.abandon());
    this.#out
      .drained()
      .then(() => {
        giveUp();
        this.#out.abandon();
        this.#closed.resolve();
      })
      .catch(this.#options.onProblem);
  }

  #guard(run: () => void): void {
    try {
      run();
    } catch (error) {
      this.#options.onProblem(error);
    }
  }
}

const tooMany = (inProgress: number): HostError =>
  new HostError('overloaded', `${inProgress} requests of this client are in progress`, {
    reason: 'exchanges',
    execution: 'not_executed',
    limit: exchangesMax,
    hint: 'wait for answers before sending more requests',
  });

const unread = (actual: number): HostError =>
  new HostError('overloaded', `the client does not read: ${actual} bytes are waiting for it`, {
    reason: 'backpressure',
    execution: 'uncertain',
    limit: answerBytesMax,
    actual,
    hint: 'read answers while sending requests',
  });

const noEndpoint = (endpoint: EndpointId): HostError =>
  new HostError('server_not_found', `there is no endpoint '${endpointKey(endpoint)}'`, { execution: 'not_executed' });
