/**
 * Finds the outer members of one JSON-RPC message in its bytes: id, method, and the position of params, result or error.
 * The payload is checked to be JSON but never parsed, so 64-bit integers, vendor fields and unknown content types stay
 * unchanged. The payload of a message that `isTooDeep` is not checked and must not be read.
 * Invariant: two parsers cannot disagree about an accepted message. A top level with a known key twice, in another case or
 * escaped, or with both result and error, is refused as `ambiguous`. Unknown members are not forwarded.
 */

import { isUtf8 } from 'node:buffer';
import { LIMITS } from '../kernel/limits.js';
import { recordParams, rememberParams } from './json-members.js';
import { eachElement, eachMember, type Member, readString, scanFacts, scanLimits, skipSpace } from './json-scan.js';

type MessageKind = 'request' | 'notification' | 'result' | 'error';

export type EnvelopeFault = 'not_json' | 'not_rpc' | 'ambiguous' | 'too_deep' | 'too_many';

const ID = 1;
const METHOD = 2;
const PARAMS = 4;
const RESULT = 8;
const ERROR = 16;
const JSONRPC = 32;

const KEYS = {
  id: { bit: ID, bytes: Buffer.from('id') },
  method: { bit: METHOD, bytes: Buffer.from('method') },
  params: { bit: PARAMS, bytes: Buffer.from('params') },
  result: { bit: RESULT, bytes: Buffer.from('result') },
  error: { bit: ERROR, bytes: Buffer.from('error') },
  jsonrpc: { bit: JSONRPC, bytes: Buffer.from('jsonrpc') },
} as const;
const KEY_NAMES = new Set(Object.keys(KEYS));

const QUOTE = 0x22;
const OPEN_BRACE = 0x7b;
const NONE = -1;

/** Room for seven escaped letters and NULs between them. Longer keys are not folded, because folding takes more than linear time. */
const disguiseBytesMax = 64;

/** JSON-RPC has six members; the rest is room for vendor members. */
const topLevelMembersMax = 64;

/** One scanned message. Positions are indexes in `bytes`. The payload is params, result or error, depending on `kind`. */
export class Envelope {
  bytes: Buffer = Buffer.alloc(0);
  readonly paramPositions: number[] = [];
  kind: MessageKind = 'notification';
  idStart = NONE;
  idEnd = NONE;
  methodStart = NONE;
  methodEnd = NONE;
  payloadStart = NONE;
  payloadEnd = NONE;
  /** `MAY_HOLD_ERROR` and `MAY_HOLD_TTL`, if the message may contain these keys. */
  mayHold = 0;
  /** The message has bytes above 0x7f, whose UTF-8 has not been checked. */
  hasHighBytes = false;
  /** The message nests too deep: only its id can be used, and the rest may not be JSON. */
  isTooDeep = false;
  #payload: Buffer | undefined;

  /** Id as JSON text including quotes; undefined if it is absent or null. */
  idText(): string | undefined {
    return this.idStart === NONE ? undefined : this.bytes.toString('utf8', this.idStart, this.idEnd);
  }

  /** Id as a number, or NaN. `"7"` is a string and never equals 7. */
  numericId(): number {
    const { bytes, idStart: start, idEnd: end } = this;
    if (start === NONE || bytes[start] === QUOTE) return Number.NaN;
    let value = 0;
    for (let i = start; i < end; i++) {
      const digit = (bytes[i] as number) - 0x30;
      if (digit < 0 || digit > 9 || end - start > 15) return Number(bytes.toString('latin1', start, end));
      value = value * 10 + digit;
    }
    return value;
  }

  method(): string {
    return this.methodStart === NONE ? '' : readString(this.bytes, this.methodStart, this.methodEnd);
  }

  /**
   * A view of the payload; undefined if there is none. Copy it to store it, because it retains its whole chunk.
   * Lookups of params members in the same tick do not scan again.
   */
  payload(): Buffer | undefined {
    if (this.payloadStart === NONE) return undefined;
    if (this.#payload === undefined) {
      this.#payload = this.bytes.subarray(this.payloadStart, this.payloadEnd);
      const hasParams = this.methodStart !== NONE && this.#payload[0] === OPEN_BRACE;
      if (hasParams) rememberParams(this.#payload, this.paramPositions, this.payloadStart);
    }
    return this.#payload;
  }

  reset(bytes: Buffer): void {
    this.bytes = bytes;
    this.idStart = this.methodStart = this.payloadStart = NONE;
    this.#payload = undefined;
  }
}

/** Returns the bit of a known key, 0 for an unknown key, -1 for a known key in another spelling. */
function knownKey(bytes: Buffer, start: number, end: number): number {
  const key = keyOfLength(end - start, bytes[start]);
  if (key && spells(bytes, start, end, key.bytes)) return key.bit;
  if (end - start > disguiseBytesMax) return 0;
  for (let i = start; i < end; i++) {
    const byte = bytes[i] as number;
    if (byte < 0x61 || byte > 0x7a) return disguisesKnownKey(readString(bytes, start, end)) ? -1 : 0;
  }
  return 0;
}

/** Length and first letter match at most one known key, so one comparison is enough. */
function keyOfLength(length: number, first: number | undefined): (typeof KEYS)[keyof typeof KEYS] | undefined {
  switch (length) {
    case 2:
      return KEYS.id;
    case 5:
      return KEYS.error;
    case 6:
      return first === 0x72 ? KEYS.result : first === 0x6d ? KEYS.method : KEYS.params;
    case 7:
      return KEYS.jsonrpc;
    default:
      return undefined;
  }
}

function spells(bytes: Buffer, start: number, end: number, word: Buffer): boolean {
  if (end - start !== word.length) return false;
  for (let i = 0; i < word.length; i++) if (bytes[start + i] !== word[i]) return false;
  return true;
}

/** Other parsers fold case (also ſ to s), drop NULs or decode escapes. A key that folds to a known one is refused. */
const disguisesKnownKey = (key: string) => KEY_NAMES.has(key.replaceAll('\0', '').normalize('NFKC').toLowerCase());

const VERSION = Buffer.from('"2.0"');
// Hoisted: a closure in `scanEnvelope` would be allocated for every message.
let positions: number[] = [];
const enterParams = (bytes: Buffer, { keyStart, keyEnd, valueStart }: Member, end: number): number | undefined =>
  bytes[valueStart] === OPEN_BRACE && spells(bytes, keyStart, keyEnd, KEYS.params.bytes)
    ? recordParams(bytes, valueStart, end, positions)
    : undefined;

/**
 * Scans `bytes[start, end)` into `out`. Returns undefined, or the fault if it is not a message. `valuesMax`: a message with
 * more values is not read to its end. `passesDeep`: a message that nests too deep is read to its end, for its id.
 */
export function scanEnvelope(
  bytes: Buffer,
  start: number,
  end: number,
  out: Envelope,
  valuesMax: number = Number.MAX_SAFE_INTEGER,
  passesDeep = false,
): EnvelopeFault | undefined {
  let seen = 0;
  let ambiguous = false;
  let idIsNull = false;
  let wrong = false;
  let members = 0;
  out.reset(bytes);
  positions = out.paramPositions;
  scanFacts.sawHighByte = false;
  scanFacts.tooDeep = false;
  scanFacts.tooMany = false;
  scanFacts.values = 0;
  scanFacts.mayHold = 0;
  scanLimits.values = valuesMax;
  scanLimits.passesDeep = passesDeep;

  const after = eachMember(
    bytes,
    start,
    end,
    0,
    (member) => {
      const { valueStart, valueEnd } = member;
      if (++members > topLevelMembersMax) return false;
      const key = knownKey(bytes, member.keyStart, member.keyEnd);
      if (key === 0) return;
      if (key < 0 || (seen & key) !== 0) {
        ambiguous = true;
        return;
      }
      seen |= key;
      const first = bytes[valueStart] as number;
      switch (key) {
        case ID:
          if (first === 0x6e) {
            idIsNull = true;
          } else if (first === QUOTE || first === 0x2d || (first >= 0x30 && first <= 0x39)) {
            out.idStart = valueStart;
            out.idEnd = valueEnd;
          } else {
            wrong = true;
          }
          return;
        case METHOD:
          if (first !== QUOTE) wrong = true;
          out.methodStart = valueStart + 1;
          out.methodEnd = valueEnd - 1;
          return;
        case JSONRPC:
          if (!spells(bytes, valueStart, valueEnd, VERSION)) wrong = true;
          return;
        default:
          out.payloadStart = valueStart;
          out.payloadEnd = valueEnd;
      }
    },
    enterParams,
  );
  scanLimits.values = Number.MAX_SAFE_INTEGER;
  scanLimits.passesDeep = false;
  if (members > topLevelMembersMax) return 'not_rpc';
  if (after < 0) return scanFacts.tooDeep ? 'too_deep' : scanFacts.tooMany ? 'too_many' : 'not_json';
  if (skipSpace(bytes, after, end) !== end) return 'not_json';
  if (ambiguous) return 'ambiguous';
  if (wrong || (seen & JSONRPC) === 0) return 'not_rpc';
  out.hasHighBytes = scanFacts.sawHighByte;
  out.isTooDeep = scanFacts.tooDeep;
  out.mayHold = scanFacts.mayHold;
  return classify(seen, idIsNull, out) ?? (scanFacts.values > valuesMax ? 'too_many' : undefined);
}

function classify(seen: number, idIsNull: boolean, out: Envelope): EnvelopeFault | undefined {
  const answers = seen & (RESULT | ERROR);
  if ((seen & METHOD) !== 0) {
    if (answers !== 0) return 'ambiguous';
    if (idIsNull) return 'not_rpc';
    out.kind = out.idStart === NONE ? 'notification' : 'request';
    return undefined;
  }
  if (answers === (RESULT | ERROR) || (answers !== 0 && (seen & PARAMS) !== 0)) return 'ambiguous';
  if (answers === 0) return 'not_rpc';
  if (answers === RESULT && out.idStart === NONE) return 'not_rpc';
  out.kind = answers === RESULT ? 'result' : 'error';
  return undefined;
}

export interface ChannelCounters {
  junk: number;
  /** Number of messages with invalid UTF-8, delivered with replacement characters. */
  repaired: number;
  /** Number of messages with an ambiguous top level: duplicate or case-varied keys, or both result and error. */
  ambiguous: number;
}

export const newCounters = (): ChannelCounters => ({ junk: 0, repaired: 0, ambiguous: 0 });

/**
 * Scans the bytes of one line, body or event as messages. Unusable input is counted, never thrown. An answer that nests too
 * deep is counted and also delivered.
 * Not here: finding the end of a line or event (line-reader.ts, transports/http/sse-parser.ts).
 */
export class MessageDecoder {
  readonly #counters: ChannelCounters;
  readonly #envelope = new Envelope();

  constructor(counters: ChannelCounters) {
    this.#counters = counters;
  }

  /** Delivers the message in `bytes[start, end)`, or each message of a batch. Ignores blank input. */
  decode(bytes: Buffer, start: number, end: number, deliver: (envelope: Envelope) => void): void {
    let from = start;
    // A server that writes logs and messages with one encoder may put a byte-order mark before any line.
    if (end - from >= 3 && bytes[from] === 0xef && bytes[from + 1] === 0xbb && bytes[from + 2] === 0xbf) from += 3;
    from = skipSpace(bytes, from, end);
    if (from >= end) return;
    if (bytes[from] === 0x5b) this.#decodeBatch(bytes, from, end, deliver);
    else this.#decodeOne(bytes, from, end, deliver);
  }

  #decodeOne(bytes: Buffer, start: number, end: number, deliver: (envelope: Envelope) => void): void {
    const envelope = this.#envelope;
    const fault = scanEnvelope(bytes, start, end, envelope, undefined, true);
    if (fault !== undefined) {
      if (fault === 'ambiguous') this.#counters.ambiguous++;
      else this.#counters.junk++;
      return;
    }
    if (envelope.isTooDeep) {
      this.#counters.junk++;
      // Delivered, because the request would otherwise wait until its deadline.
      if (isAnswer(envelope)) deliver(envelope);
      return;
    }
    if (envelope.hasHighBytes && !isUtf8(bytes.subarray(start, end))) {
      // An answer with a replacement character is better than a call that times out.
      const repaired = Buffer.from(bytes.toString('utf8', start, end));
      this.#counters.repaired++;
      if (scanEnvelope(repaired, 0, repaired.length, envelope) !== undefined) return;
    }
    deliver(envelope);
  }

  #decodeBatch(bytes: Buffer, start: number, end: number, deliver: (envelope: Envelope) => void): void {
    const bounds: number[] = [];
    // Each message is checked separately: one that nests too deep does not affect the others.
    scanLimits.passesDeep = true;
    const after = eachElement(bytes, start, end, 0, (from, to) => bounds.push(from, to) <= LIMITS.batch * 2);
    scanLimits.passesDeep = false;
    if (after < 0 || skipSpace(bytes, after, end) !== end) {
      this.#counters.junk++;
      return;
    }
    for (let i = 0; i < bounds.length; i += 2) {
      this.#decodeOne(bytes, bounds[i] as number, bounds[i + 1] as number, deliver);
    }
  }
}

const isAnswer = (envelope: Envelope): boolean =>
  (envelope.kind === 'result' || envelope.kind === 'error') && envelope.idText() !== undefined;
