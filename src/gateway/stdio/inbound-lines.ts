/**
 * Splits the bytes from a stdio client into messages, batches, and faults for lines that are not messages.
 * Not here: handling messages (stdio-ingress.ts).
 * Invariants: each line is reported once, as messages or as one fault. An oversized line is one fault, and reading continues
 * with the next line. A fault names an id only if the line is a request with one.
 */
import { isUtf8 } from 'node:buffer';
import { LIMITS } from '../../kernel/limits.js';
import { Envelope, scanEnvelope } from '../../wire/envelope.js';
import { eachElement, skipSpace, skipValue } from '../../wire/json-scan.js';
import { LineReader } from '../../wire/line-reader.js';
import { RPC } from '../../wire/methods.js';
import type { RpcFailure } from '../exchange.js';

export interface Fault {
  /** Id of the request; undefined if the line has no reliable id. */
  readonly idText: string | undefined;
  readonly failure: RpcFailure;
}

interface LineListener {
  /** The envelope is reused for the next message, so the listener must read it at once. */
  message(envelope: Envelope): void;
  fault(fault: Fault): void;
  /** `bounds` has start and end of each element in `bytes`. The listener passes each pair to `readOne`. */
  batch(bytes: Buffer, bounds: readonly number[]): void;
}

const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;
/** Ids are stored while a request is open, so their length is bounded. */
const idBytesMax = 1024;

export class InboundLines {
  readonly #listener: LineListener;
  readonly #envelope = new Envelope();
  readonly #reader: LineReader;

  constructor(listener: LineListener) {
    this.#listener = listener;
    this.#reader = new LineReader(
      LIMITS.frameBytes,
      (bytes, start, end) => this.line(bytes, start, end),
      () => listener.fault(invalid(undefined, `the message has more than ${LIMITS.frameBytes} bytes`)),
    );
  }

  push(chunk: Buffer): void {
    this.#reader.push(chunk);
  }

  end(): void {
    this.#reader.end();
  }

  readOne(bytes: Buffer, start: number, end: number): Envelope | Fault {
    const envelope = this.#envelope;
    const fault = scanEnvelope(bytes, start, end, envelope, LIMITS.values);
    switch (fault) {
      case undefined:
        if (envelope.hasHighBytes && !isUtf8(bytes.subarray(start, end))) return notJson('the message is not UTF-8');
        if (envelope.idEnd - envelope.idStart > idBytesMax && envelope.idStart >= 0)
          return invalid(undefined, `the id has more than ${idBytesMax} bytes`);
        return envelope;
      case 'not_json':
        return isOtherValue(bytes, start, end)
          ? invalid(undefined, 'the message is not an object')
          : notJson('the message is not JSON');
      case 'too_deep':
        return invalid(undefined, `the message nests deeper than ${LIMITS.depth}`);
      case 'too_many':
        return invalid(undefined, `the message holds more than ${LIMITS.values} values`);
      case 'ambiguous':
        return invalid(undefined, 'the message is ambiguous: a key appears twice or varies in case');
      case 'not_rpc':
        return invalid(requestIdOf(envelope), 'the message is not JSON-RPC 2.0');
    }
  }

  /** Reports one line that the caller has split off. */
  line(bytes: Buffer, start: number, end: number): void {
    let from = start;
    if (end - from >= 3 && bytes[from] === 0xef && bytes[from + 1] === 0xbb && bytes[from + 2] === 0xbf) from += 3;
    from = skipSpace(bytes, from, end);
    if (from >= end) return;
    if (bytes[from] === OPEN_BRACKET) return this.#batch(bytes, from, end);
    const read = this.readOne(bytes, from, end);
    if (read instanceof Envelope) this.#listener.message(read);
    else this.#listener.fault(read);
  }

  #batch(bytes: Buffer, start: number, end: number): void {
    const bounds: number[] = [];
    const after = eachElement(bytes, start, end, 0, (from, to) => bounds.push(from, to) <= LIMITS.batch * 2);
    if (bounds.length > LIMITS.batch * 2)
      return this.#listener.fault(invalid(undefined, `a batch has at most ${LIMITS.batch} messages`));
    if (after < 0 || skipSpace(bytes, after, end) !== end)
      return this.#listener.fault(notJson('the message is not JSON'));
    if (bounds.length === 0) return this.#listener.fault(invalid(undefined, 'the batch is empty'));
    this.#listener.batch(bytes, bounds);
  }
}

/** Only for requests: a fault with the id of an answer would look like an answer to a request of the client. */
function requestIdOf(envelope: Envelope): string | undefined {
  if (envelope.methodStart < 0 || envelope.idStart < 0 || envelope.idEnd - envelope.idStart > idBytesMax)
    return undefined;
  return envelope.idText();
}

/** Valid JSON that is not an object. */
function isOtherValue(bytes: Buffer, start: number, end: number): boolean {
  if (bytes[skipSpace(bytes, start, end)] === OPEN_BRACE) return false;
  const after = skipValue(bytes, start, end, 0);
  return after > 0 && skipSpace(bytes, after, end) === end;
}

const notJson = (message: string): Fault => ({
  idText: undefined,
  failure: { code: RPC.parseError, message },
});

export const invalid = (idText: string | undefined, message: string): Fault => ({
  idText,
  failure: { code: RPC.invalidRequest, message },
});
