/**
 * How several requests, or several results, are one message: a line that names each with its size, then their bodies one after
 * the other.
 * Not here: what is bundled and when (nats-request-bundles.ts, nats-bundle-journal.ts).
 *
 * Invariant: what is read has as many bytes as its line says, and no id twice; anything else is not read at all.
 */
import { idPattern, messageBytesMax, ttlMsMax } from '../ports.js';

/** In one message: the more, the less each costs. */
export const bundleCallsMax = 64;
export const bundleBytesMax = 256 * 1024;
/** Of the line: an id, two numbers and what parts them, for each. */
const lineBytesMax = bundleCallsMax * 152;
const numberPattern = /^(?:0|[1-9]\d{0,8})$/;
/** No request alone begins with it, which begins with a digit. */
const mark = 0x2a;
const lineEnd = 0x0a;

export interface BundledRequest {
  readonly id: string;
  readonly body: Buffer;
  readonly ttlMs: number;
}

export interface BundledResult {
  readonly id: string;
  readonly body: Buffer;
}

export const isBundle = (payload: Uint8Array): boolean => payload[0] === mark;

export function writeRequests(requests: readonly BundledRequest[]): Buffer {
  let line = '';
  let bytes = 0;
  for (const { id, body, ttlMs } of requests) {
    line += `${line === '' ? '*' : ','}${id} ${body.length} ${Math.min(Math.max(0, Math.ceil(ttlMs)), ttlMsMax)}`;
    bytes += body.length;
  }
  return written(line, bytes, requests);
}

/** Undefined: it is no bundle of ours. */
export function readRequests(payload: Buffer): BundledRequest[] | undefined {
  return read(payload, 3, (id, body, ttlMs) => ({ id, body, ttlMs: Math.min(ttlMs, ttlMsMax) }));
}

export function writeResults(results: readonly BundledResult[]): Buffer {
  let line = '';
  let bytes = 0;
  for (const { id, body } of results) {
    line += `${line === '' ? '*' : ','}${id} ${body.length}`;
    bytes += body.length;
  }
  return written(line, bytes, results);
}

export function readResults(payload: Buffer): BundledResult[] | undefined {
  return read(payload, 2, (id, body) => ({ id, body }));
}

function written(line: string, bytes: number, parts: readonly BundledResult[]): Buffer {
  const whole = Buffer.allocUnsafe(line.length + 1 + bytes);
  let at = whole.write(line, 0, 'latin1');
  whole[at++] = lineEnd;
  for (const { body } of parts) {
    whole.set(body, at);
    at += body.length;
  }
  return whole;
}

function read<Part>(
  payload: Buffer,
  fields: 2 | 3,
  partOf: (id: string, body: Buffer, ttlMs: number) => Part,
): Part[] | undefined {
  const end = payload.indexOf(lineEnd);
  if (!isBundle(payload) || end < 0 || end > lineBytesMax) return undefined;
  const heads = payload.toString('latin1', 1, end).split(',');
  if (heads.length > bundleCallsMax) return undefined;
  const ids = new Set<string>();
  const parts: Part[] = [];
  let at = end + 1;
  for (const head of heads) {
    const [id = '', size = '', ttl = '0', ...more] = head.split(' ');
    if (!idPattern.test(id) || !numberPattern.test(size) || !numberPattern.test(ttl)) return undefined;
    if (more.length > 0 || (fields === 2) !== (head.indexOf(' ') === head.lastIndexOf(' '))) return undefined;
    const next = at + Number(size);
    if (Number(size) > messageBytesMax || next > payload.length) return undefined;
    ids.add(id);
    parts.push(partOf(id, payload.subarray(at, next), Number(ttl)));
    at = next;
  }
  return at === payload.length && ids.size === parts.length ? parts : undefined;
}
