/**
 * Scans the bytes of one line, body or event as messages. Unusable input is counted, never thrown. An answer that nests too
 * deep is counted and also delivered.
 * Not here: finding the end of a line or event (line-reader.ts, transports/http/sse-parser.ts).
 */
import { isUtf8 } from 'node:buffer';
import { LIMITS } from '../kernel/limits.js';
import type { ChannelCounters } from './channel.js';
import { Envelope, scanEnvelope } from './envelope.js';
import { eachElement, scanLimits, skipSpace } from './json-scan.js';

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
