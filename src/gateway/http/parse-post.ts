/**
 * Reads the body of a POST into one message or a batch, and passes it to the era that it belongs to.
 * Not here: the guards before the body (http-ingress.ts), handling messages (eras/).
 * Invariant: a body that two parsers could read differently is refused.
 */
import { isUtf8 } from 'node:buffer';
import type { ServerResponse } from 'node:http';
import { LIMITS } from '../../kernel/limits.js';
import { Envelope, type EnvelopeFault, scanEnvelope } from '../../wire/envelope.js';
import { eachElement, scanFacts, skipSpace } from '../../wire/json-scan.js';
import type { ClientEra, HttpEra } from '../eras/era.js';
import { claimant } from '../eras/eras.js';
import { type BodyFault, type DirectBodyRequest, GatheredBody } from './direct-body-request.js';
import type { Caller, IngressContext } from './ingress-context.js';
import { REFUSALS, type Refusal } from './refusals.js';
import { failRequest, refuseRequest } from './reply.js';

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
