/**
 * The body of a POST, from bytes to one message or a batch, and to the era it belongs to.
 * Invariant: what two parsers could read differently goes no further.
 */
import { isUtf8 } from 'node:buffer';
import type { ServerResponse } from 'node:http';
import { LIMITS } from '../../kernel/limits.js';
import { Envelope, type EnvelopeFault, scanEnvelope } from '../../wire/envelope.js';
import { eachElement, scanFacts, skipSpace } from '../../wire/json-scan.js';
import type { LegacyHttp } from '../eras/legacy/http.js';
import { claimsModern } from '../eras/modern/envelope.js';
import { namesModern } from '../eras/modern/header-checks.js';
import { type Caller, takeModern } from '../eras/modern/http.js';
import type { IngressContext } from './ingress-context.js';
import { REFUSALS, type Refusal } from './refusals.js';

const OPEN_BRACKET = 0x5b;
const QUOTE = 0x22;
/** What a client names its requests and methods with; both are kept while a request is open. */
const idBytesMax = 1_024;
const methodBytesMax = 256;

const FAULTS: Readonly<Record<EnvelopeFault, Refusal>> = {
  not_json: REFUSALS.parse,
  not_rpc: REFUSALS.rpc,
  ambiguous: REFUSALS.ambiguous,
  too_deep: REFUSALS.depth,
  too_many: REFUSALS.values,
};

export class PostParser {
  readonly #context: IngressContext;
  readonly #legacy: LegacyHttp;
  /** Read to its end before the next body is looked at. */
  readonly #envelope = new Envelope();
  /** Requests are refused. Answers and notifications are taken: requests under way may wait for them. */
  isStopping = false;

  constructor(context: IngressContext, legacy: LegacyHttp) {
    this.#context = context;
    this.#legacy = legacy;
  }

  take(caller: Caller, body: Buffer, response: ServerResponse): Refusal | undefined {
    if (body[skipSpace(body, 0, body.length)] === OPEN_BRACKET) return this.#takeBatch(caller, body, response);
    const envelope = this.#envelope;
    const fault = scan(body, 0, body.length, envelope);
    if (fault) return fault;
    if (envelope.hasHighBytes && !isUtf8(body)) return REFUSALS.parse;
    if (this.isStopping && envelope.kind === 'request') return { ...REFUSALS.stopping, idText: envelope.idText() };
    const isModern = namesModern(caller.head.protocolVersion) || claimsModern(envelope.payload());
    const refusal = isModern
      ? takeModern(this.#context, caller, envelope, response)
      : this.#legacy.post(caller, envelope, response);
    return refusal && envelope.kind === 'request' ? { ...refusal, idText: envelope.idText() } : refusal;
  }

  #takeBatch(caller: Caller, body: Buffer, response: ServerResponse): Refusal | undefined {
    if (namesModern(caller.head.protocolVersion)) return REFUSALS.modernBatch;
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
        if (!refusal && claimsModern(envelope.payload())) refusal = REFUSALS.modernBatch;
        messages.push(envelope);
      }
      return refusal === undefined;
    });
    if (refusal) return refusal;
    if (after < 0 || skipSpace(body, after, body.length) !== body.length || !isUtf8(body)) return REFUSALS.parse;
    if (this.isStopping && messages.some(({ kind }) => kind === 'request')) return REFUSALS.stopping;
    return this.#legacy.postBatch(caller, messages, response);
  }
}

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
