/**
 * MCP over one pipe: lines of a client in, lines for it out, both eras at once. A request with the modern envelope is served
 * by itself; `initialize` opens the one legacy session that everything without an envelope belongs to.
 * Not here: reading lines (inbound-lines.ts), writing them (wire/line-writer.ts), answering requests (the router).
 *
 * Invariants: every request with an id is answered once, or was cancelled; a client that does not read is not read from;
 * what is under way, what waits to be written and what is asked of the client is bounded; after the end nothing is said. What
 * is under way when the client stops writing, or we stop, is answered if it is done within the time there is; streams, which
 * never are, and what asks the client end at once.
 */
import type { Readable, Writable } from 'node:stream';
import type { Cancel, Clock } from '../../kernel/clock.js';
import { HostError } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { newId } from '../../kernel/random.js';
import type { Principal } from '../../policy/operation.js';
import { hasBatches } from '../../session/eras/legacy/revisions.js';
import { META } from '../../session/eras/modern/protocol.js';
import { Envelope } from '../../wire/envelope.js';
import type { JsonText } from '../../wire/frame.js';
import { isObject, memberText } from '../../wire/json-members.js';
import { LineWriter, lineOf } from '../../wire/line-writer.js';
import type { Answer } from '../../wire/peer-interface.js';
import { listenMethod, NOTIFICATION, RPC } from '../../wire/rpc-codes.js';
import { type EndpointId, endpointKey } from '../endpoint-id.js';
import { ClientRequests } from '../eras/legacy/client-requests.js';
import { PipeSession } from '../eras/legacy/stdio-session.js';
import { claimsModern, missing, modernEnvelope, readInitialize } from '../eras/modern/envelope.js';
import { type AskLimits, type Client, isFailure, type Router, type RpcFailure } from '../exchange.js';
import { ownFailure } from '../messages/failures.js';
import { failureText, notificationText, resultText } from '../messages/rpc-text.js';
import type { IngressFigures } from '../metrics/ingress-figures.js';
import { type Fault, InboundLines, invalid } from './inbound-lines.js';
import { PipeBatch } from './pipe-batch.js';
import { type Pipe, type Request, StdioExchange } from './stdio-exchange.js';
import { answerBytesMax, exchangeBytesMax, exchangesMax, noticeBytesMax, pauseBytes } from './stdio-limits.js';

/** The client may still read what it was told when the end comes. */
const lastWordsMs = 2_000;
/** What is under way may still be answered after the client has said its last. */
const drainAfterEndMs = 10_000;
const methodBytesMax = 256;

export interface StdioIngressOptions {
  readonly router: Router;
  readonly clock: Clock;
  readonly input: Readable;
  readonly output: Writable;
  /** Whoever holds the pipe. */
  readonly principal: Principal;
  readonly endpoint: EndpointId;
  /** Something that should not be; the pipe goes on. */
  readonly onProblem: (error: unknown) => void;
}

export interface StdioIngress {
  /** Resolves when the pipe is over and nothing of it is under way. Never rejects. */
  readonly closed: Promise<void>;
  /** Requests under way. */
  readonly inFlight: number;
  /** For metrics. */
  figures(): IngressFigures;
  /** Takes nothing more, waits for what is under way up to `drainMs`, then ends it. */
  close(drainMs?: number): Promise<void>;
}

export const createStdioIngress = (options: StdioIngressOptions): StdioIngress => new PipeIngress(options);

class PipeIngress implements StdioIngress, Pipe {
  readonly closed: Promise<void>;
  readonly #options: StdioIngressOptions;
  /** One process is one client, whichever era it speaks. */
  readonly #id = newId();
  readonly #out: LineWriter;
  readonly #in: InboundLines;
  readonly #asks: ClientRequests;
  /** By id as it is written. At most `exchangesMax`. */
  readonly #exchanges = new Map<string, StdioExchange>();
  #exchangeBytes = 0;
  #session: PipeSession | undefined;
  #isOver = false;
  #isDraining = false;
  #cancelDrain: Cancel = () => {};
  #resolveClosed: () => void = () => {};

  constructor(options: StdioIngressOptions) {
    const { input, output, clock } = options;
    this.#options = options;
    this.closed = new Promise((resolve) => {
      this.#resolveClosed = resolve;
    });
    this.#out = new LineWriter(output, { defer: process.nextTick, onTaken: () => this.#balance() });
    this.#asks = new ClientRequests(clock, LIMITS.inboundRequests);
    this.#in = new InboundLines({
      message: (envelope) => this.#message(envelope, undefined),
      fault: (fault) => this.#refuse(fault, undefined),
      batch: (bytes, bounds) => this.#batch(bytes, bounds),
    });
    output.on('error', this.#broken);
    output.on('close', this.#broken);
    input.on('data', this.#data);
    input.on('end', this.#ended);
    input.on('error', this.#ended);
    input.on('close', this.#ended);
  }

  get inFlight(): number {
    return this.#exchanges.size;
  }

  figures(): IngressFigures {
    const streams = [...this.#exchanges.values()].filter(({ method }) => method === listenMethod);
    const hasSession = this.#session !== undefined && !this.#isOver;
    return { legacySessions: hasSession ? 1 : 0, modernStreams: streams.length, httpAnswers: {} };
  }

  close(drainMs = 0): Promise<void> {
    if (drainMs > 0) this.#drain(drainMs);
    else this.#end();
    return this.closed;
  }

  // --- Pipe

  ended(exchange: StdioExchange, answer: readonly JsonText[] | undefined): void {
    const { idText, request, method } = exchange;
    this.#exchanges.delete(idText);
    this.#exchangeBytes -= request.bytes;
    this.#asks.withdraw(exchange);
    if (this.#isOver) return;
    const isTooMuch = answer !== undefined && this.#out.bytes > answerBytesMax;
    const said = isTooMuch ? failureText(idText, ownFailure(unread(this.#out.bytes))) : answer;
    if (request.batch) request.batch.add(said);
    else if (said) this.#write(said);
    if (method === 'initialize' && exchange.client === this.#session) this.#handshakeEnded(exchange.hasSucceeded);
    if (this.#isDraining) this.#endWhenDone();
  }

  notify(method: string, params: JsonText | undefined): void {
    if (this.#isOver || this.#out.bytes > noticeBytesMax) return;
    this.#write(notificationText(method, params));
  }

  ask(owner: StdioExchange, method: string, params: JsonText | undefined, limits: AskLimits): Promise<Answer> {
    if (!owner.isOpen) return Promise.reject(new HostError('cancelled', 'the request that asks is over'));
    if (this.#out.bytes > noticeBytesMax) return Promise.reject(unread(this.#out.bytes));
    return this.#asks.ask(owner, this.#tell, method, params, limits);
  }

  // --- what comes in

  readonly #data = (chunk: Buffer | string): void => {
    if (this.#isOver || this.#isDraining) return;
    this.#in.push(typeof chunk === 'string' ? Buffer.from(chunk) : chunk);
  };

  #batch(bytes: Buffer, bounds: readonly number[]): void {
    if (!this.#session || !hasBatches(this.#session.version))
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
        // An answer that nobody waits for: late, or made up.
        this.#asks.answered(envelope);
    }
  }

  #notified(method: string, params: Buffer | undefined): void {
    if (method === NOTIFICATION.cancelled) return this.#cancelled(params);
    if (method === NOTIFICATION.initialized) {
      if (this.#session) this.#asks.initialized();
      return this.#proceed();
    }
    const envelope = modernEnvelope(params);
    if (envelope && isFailure(envelope)) return;
    const client = envelope ? this.#modernClient(envelope) : this.#session;
    if (client) this.#guard(() => this.#options.router.notified(client, method, params));
  }

  #cancelled(params: Buffer | undefined): void {
    const idText = params && memberText(params, 'requestId');
    const exchange = idText === undefined ? undefined : this.#exchanges.get(idText);
    // The handshake is the one request that must not be cancelled.
    if (exchange?.method !== 'initialize') exchange?.cancel();
  }

  #requested(envelope: Envelope, batch: PipeBatch | undefined): void {
    const idText = envelope.idText() as string;
    const params = envelope.payload();
    const request: Request = {
      idText,
      method: envelope.methodEnd - envelope.methodStart > methodBytesMax ? '' : envelope.method(),
      params,
      bytes: idText.length + (params?.length ?? 0),
      batch,
    };
    const refusal = this.#refusalOf(request);
    // Legacy, with a session or before it: it asks whether this end is there, and no other.
    if (!refusal && request.method === 'ping' && !claimsModern(request.params))
      return this.#answer(resultText(request.idText, ['{}']), batch);
    const client = refusal ?? this.#clientOf(request);
    if (isFailure(client)) return this.#refuse({ idText: request.idText, failure: client }, batch);
    if (client === this.#session && request.method !== 'initialize') this.#proceed();
    const exchange = new StdioExchange(this, client, request, this.#options.clock.nowMs());
    this.#exchanges.set(request.idText, exchange);
    this.#exchangeBytes += request.bytes;
    batch?.owe();
    try {
      this.#options.router.handle(exchange);
    } catch (error) {
      this.#options.onProblem(error);
      exchange.fail({ code: RPC.internalError, message: 'the request could not be handled' });
    }
  }

  #refusalOf({ idText, method, params, bytes }: Request): RpcFailure | undefined {
    const { router, endpoint, principal } = this.#options;
    if (method === '') return invalid(idText, `the method has more than ${methodBytesMax} bytes, or none`).failure;
    if (this.#exchanges.has(idText)) return invalid(idText, 'a request with this id is under way').failure;
    if (params && !isObject(params)) return { code: RPC.invalidParams, message: 'params must be an object' };
    if (this.#exchanges.size >= exchangesMax || this.#exchangeBytes + bytes > exchangeBytesMax)
      return ownFailure(tooMany(this.#exchanges.size));
    return router.hasEndpoint(endpoint, principal) ? undefined : ownFailure(noEndpoint(endpoint));
  }

  /** Whose request it is, or why it is nobody's. */
  #clientOf({ method, params, batch }: Request): Client | RpcFailure {
    const envelope = modernEnvelope(params);
    if (envelope && batch) return invalid(undefined, 'a batch has no modern requests').failure;
    if (envelope) return isFailure(envelope) ? envelope : this.#modernClient(envelope);
    if (method === 'initialize') return this.#open(params, batch !== undefined);
    if (this.#session) return this.#session;
    const failure = missing(META.version);
    return { ...failure, message: `${failure.message}; or open a session with initialize first` };
  }

  #open(params: Buffer | undefined, isInBatch: boolean): PipeSession | RpcFailure {
    if (isInBatch) return invalid(undefined, 'initialize must not be part of a batch').failure;
    if (this.#session) return invalid(undefined, 'this pipe has a session already').failure;
    const read = readInitialize(params);
    if (isFailure(read)) return read;
    const { principal, endpoint } = this.#options;
    this.#session = new PipeSession(this.#id, principal, endpoint, read, (method, said) => this.notify(method, said));
    return this.#session;
  }

  #modernClient({ version, capabilities }: Pick<Client, 'version' | 'capabilities'>): Client {
    const { principal, endpoint } = this.#options;
    return { id: this.#id, principal, era: 'modern', version, endpoint, capabilities };
  }

  #handshakeEnded(isAccepted: boolean): void {
    const session = this.#session;
    if (isAccepted) {
      session?.answered();
      if (session?.hasProceeded) this.#proceed();
    } else {
      this.#session = undefined;
      session?.end();
    }
  }

  /** The client goes on after its handshake. */
  #proceed(): void {
    const session = this.#session;
    if (session?.proceed()) this.#guard(() => this.#options.router.opened(session));
  }

  // --- what goes out

  #refuse({ idText, failure }: Fault, batch: PipeBatch | undefined): void {
    this.#answer(failureText(idText, failure), batch);
  }

  #answer(parts: readonly JsonText[], batch: PipeBatch | undefined): void {
    if (!batch) return this.#write(parts);
    batch.owe();
    batch.add(parts);
  }

  #write(parts: readonly JsonText[]): void {
    if (this.#isOver) return;
    this.#out.write(lineOf(parts));
    this.#balance();
  }

  readonly #tell = (parts: readonly JsonText[]): boolean => {
    this.#write(parts);
    return !this.#isOver;
  };

  /** Reads as fast as the client does. */
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

  /** Nothing more comes in; what is under way is finished. */
  #drain(drainMs: number): void {
    if (this.#isOver) return;
    const { input, clock } = this.#options;
    if (!this.#isDraining) {
      this.#isDraining = true;
      input.off('data', this.#data);
      input.pause();
      // Nobody answers any more what is asked now.
      this.#asks.end();
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
    this.#asks.end();
    for (const exchange of [...this.#exchanges.values()]) exchange.cancel();
    this.#session?.end();
    if (!this.#session?.wasOpened) this.#guard(() => this.#options.router.neverOpened?.({ id: this.#id }));
    const giveUp = clock.at(clock.nowMs() + lastWordsMs, () => this.#out.abandon());
    this.#out
      .drained()
      .then(() => {
        giveUp();
        this.#out.abandon();
        this.#resolveClosed();
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

const tooMany = (underWay: number): HostError =>
  new HostError('overloaded', `${underWay} requests of this client are under way`, {
    reason: 'exchanges',
    execution: 'not_executed',
    limit: exchangesMax,
    hint: 'wait for some of them to be answered',
  });

const unread = (actual: number): HostError =>
  new HostError('overloaded', `the client does not read: ${actual} bytes wait for it`, {
    reason: 'backpressure',
    execution: 'uncertain',
    limit: answerBytesMax,
    actual,
    hint: 'read answers while you send requests',
  });

const noEndpoint = (endpoint: EndpointId): HostError =>
  new HostError('server_not_found', `there is no '${endpointKey(endpoint)}' here`, { execution: 'not_executed' });
