/**
 * Reads the body of a POST into one message or a batch, and passes it to the era that it belongs to.
 * Not here: the guards before the body (http-ingress.ts), handling messages (eras/).
 * Invariant: a body that two parsers could read differently is refused.
 */
import { isUtf8 } from 'node:buffer';
import { IncomingMessage, type ServerResponse } from 'node:http';
import type { ByteBudget } from '../../kernel/byte-budget.js';
import { ByteBuffer } from '../../kernel/byte-buffer.js';
import { LIMITS } from '../../kernel/limits.js';
import { Envelope, type EnvelopeFault, scanEnvelope } from '../../wire/envelope.js';
import { eachElement, scanFacts, skipSpace } from '../../wire/json-scan.js';
import type { ClientEra, HttpEra } from '../eras/era.js';
import { claimant } from '../eras/eras.js';
import type { Caller, IngressContext } from './ingress-context.js';
import { failRequest, REFUSALS, type Refusal, refuseRequest } from './reply.js';

const OPEN_BRACKET = 0x5b;
const QUOTE = 0x22;
/** Id and method are stored while a request is open, so both are bounded. */
const idBytesMax = 1_024;
const methodBytesMax = 256;

const FAULTS: Readonly<Record<EnvelopeFault, Refusal>> = {
  not_json: REFUSALS.parse,
  not_rpc: REFUSALS.rpc,
  ambiguous: REFUSALS.ambiguous,
  too_deep: REFUSALS.depth,
  too_many: REFUSALS.values,
};

export interface ListeningEra {
  readonly era: ClientEra;
  readonly http: HttpEra;
}

/**
 * An IncomingMessage that passes body chunks straight from the HTTP parser to a BodyReader.
 * Reading the body as a stream takes three more ticks and 2.3 us more CPU, 5 % of a call (Node 20, 16 connections).
 * Invariant: a request without a reader is a normal stream. A reader gets either `end` (body complete) or `left`, never both.
 */
export class DirectBodyRequest extends IncomingMessage {
  #reader: BodyReader | undefined;

  static {
    // After the answer, Node's parser keeps the request in memory until `readableEnded` of the request is true. The types
    // declare a property, which a class cannot override with an accessor.
    Object.defineProperty(DirectBodyRequest.prototype, 'readableEnded', {
      get(this: DirectBodyRequest): boolean {
        return this.#reader === ended || Reflect.get(IncomingMessage.prototype, 'readableEnded', this);
      },
    });
  }

  takeBody(reader: BodyReader): void {
    this.#reader = reader;
  }

  /** Node's parser calls this with each chunk, and with null at the end. */
  override push(piece: unknown, encoding?: BufferEncoding): boolean {
    const reader = this.#reader;
    if (!reader) return super.push(piece, encoding);
    if (piece === null) {
      this.#reader = ended;
      reader.end();
      // Node's parser waits for this event if the answer was sent before the end of the body.
      this.emit('end');
    } else reader.piece(piece as Buffer);
    return true;
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#reader?.left();
    super._destroy(error, done);
  }
}

const ended: BodyReader = { piece: () => {}, end: () => {}, left: () => {} };

const nothing = Buffer.alloc(0);
/** Each chunk has a fixed cost. A normal client sends 4 MiB in a few thousand chunks; only an attacker sends millions. */
const piecesMax = 10_000;

/** `too_large`: too many bytes or too many chunks. `busy`: the budget for all bodies is used up. */
export type BodyFault = 'too_large' | 'busy';

export interface BodyReader {
  /** The reader may store `bytes`. */
  piece(bytes: Buffer): void;
  end(): void;
  /** The connection was lost before the end of the body. */
  left(): void;
}

export abstract class GatheredBody implements BodyReader {
  readonly #bytesMax: number;
  /** Budget for incomplete bodies. A body in one chunk does not use it. */
  readonly #budget: ByteBudget;
  /** The first chunk. Nearly every body is one chunk, which is passed on without a copy. */
  #only: Buffer = nothing;
  #gathered: ByteBuffer | undefined;
  #bytes = 0;
  #pieces = 0;
  #isOver = false;

  constructor(bytesMax: number, budget: ByteBudget) {
    this.#bytesMax = bytesMax;
    this.#budget = budget;
  }

  piece(bytes: Buffer): void {
    if (this.#isOver) return;
    const before = this.#bytes;
    this.#bytes += bytes.length;
    if (this.#bytes > this.#bytesMax || ++this.#pieces > piecesMax) return this.#refuse('too_large');
    if (before === 0) {
      this.#only = bytes;
      return;
    }
    this.#gathered ??= new ByteBuffer(this.#budget);
    if (!this.#gathered.add(this.#only) || !this.#gathered.add(bytes)) return this.#refuse('busy');
    this.#only = nothing;
  }

  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.done(this.#gathered?.take() ?? this.#only);
  }

  left(): void {
    this.#isOver = true;
    this.#only = nothing;
    this.#gathered?.clear();
  }

  /** Called once with the body or its fault, but never if the connection was lost. */
  protected abstract done(body: Buffer | BodyFault): void;

  #refuse(fault: BodyFault): void {
    this.left();
    this.done(fault);
  }
}

/** One POST whose headers passed all guards, while its body arrives. */
export class PostedBody extends GatheredBody {
  readonly #context: IngressContext;
  readonly #eras: readonly ListeningEra[];
  readonly #caller: Caller;
  readonly #request: DirectBodyRequest;
  readonly #response: ServerResponse;
  readonly #keyChanges: number;

  constructor(
    context: IngressContext,
    eras: readonly ListeningEra[],
    caller: Caller,
    request: DirectBodyRequest,
    response: ServerResponse,
  ) {
    super(context.limits.bodyBytes, context.bodies);
    this.#context = context;
    this.#eras = eras;
    this.#caller = caller;
    this.#request = request;
    this.#response = response;
    this.#keyChanges = context.keyChanges;
  }

  protected done(body: Buffer | BodyFault): void {
    try {
      const refusal = this.#take(body);
      if (refusal) refuseRequest(this.#context.lingering, refusal, this.#request, this.#caller.headers, this.#response);
    } catch (error) {
      failRequest(this.#context, this.#response, error);
    }
  }

  #take(body: Buffer | BodyFault): Refusal | undefined {
    const caller = this.#callerNow();
    if (!caller) return REFUSALS.key;
    if (body === 'too_large') return REFUSALS.body;
    if (body === 'busy') return REFUSALS.busyBodies;
    return body[skipSpace(body, 0, body.length)] === OPEN_BRACKET
      ? this.#takeBatch(caller, body)
      : this.#takeMessage(caller, body);
  }

  /** The key may have been revoked, or its role changed, while the body arrived. */
  #callerNow(): Caller | undefined {
    if (this.#keyChanges === this.#context.keyChanges) return this.#caller;
    const principal = this.#context.authenticate(this.#caller.headers.authorization);
    return principal && { ...this.#caller, principal };
  }

  #takeMessage(caller: Caller, body: Buffer): Refusal | undefined {
    const fault = scan(body, 0, body.length, message);
    if (fault) return fault;
    if (message.hasHighBytes && !isUtf8(body)) return REFUSALS.parse;
    const isRequest = message.kind === 'request';
    if (this.#context.isStopping && isRequest) return { ...REFUSALS.stopping, idText: message.idText() };
    const { http } = claimant(this.#eras, caller.headers['mcp-protocol-version'], message.payload());
    const refusal = http.post(caller, message, this.#response);
    return refusal && isRequest ? { ...refusal, idText: message.idText() } : refusal;
  }

  #takeBatch(caller: Caller, body: Buffer): Refusal | undefined {
    const version = caller.headers['mcp-protocol-version'];
    const { http } = claimant(this.#eras, version, undefined);
    if (!http.postBatch) return REFUSALS.noBatches;
    const messages: Envelope[] = [];
    let refusal: Refusal | undefined;
    let values = 0;
    const after = eachElement(body, 0, body.length, 0, (start, end) => {
      if (messages.length >= this.#context.limits.batch) refusal = REFUSALS.batch;
      else {
        const envelope = new Envelope();
        refusal = scan(body, start, end, envelope);
        values += scanFacts.values;
        if (!refusal && values > LIMITS.values) refusal = REFUSALS.values;
        if (!refusal && claimant(this.#eras, version, envelope.payload()).http !== http) refusal = REFUSALS.noBatches;
        messages.push(envelope);
      }
      return refusal === undefined;
    });
    if (refusal) return refusal;
    if (after < 0 || skipSpace(body, after, body.length) !== body.length || !isUtf8(body)) return REFUSALS.parse;
    if (this.#context.isStopping && messages.some(({ kind }) => kind === 'request')) return REFUSALS.stopping;
    return http.postBatch(caller, messages, this.#response);
  }
}

/** Reused for every POST: the era reads a message completely before the next one is scanned. */
const message = new Envelope();

function scan(body: Buffer, start: number, end: number, envelope: Envelope): Refusal | undefined {
  const fault = scanEnvelope(body, start, end, envelope, LIMITS.values);
  if (fault) return FAULTS[fault];
  if (envelope.methodEnd - envelope.methodStart > methodBytesMax) return REFUSALS.rpc;
  return envelope.idStart < 0 || isId(body, envelope.idStart, envelope.idEnd) ? undefined : REFUSALS.id;
}

/** A string, or an integer of any length. */
function isId(body: Buffer, start: number, end: number): boolean {
  if (end - start > idBytesMax) return false;
  if (body[start] === QUOTE) return true;
  for (let i = start; i < end; i++) {
    const byte = body[i] as number;
    if ((byte < 0x30 || byte > 0x39) && !(byte === 0x2d && i === start)) return false;
  }
  return true;
}
