/**
 * Reads results with `resultType: "input_required"`, which ask the client for input, and replaces their state.
 * Not here: requests to the client, and results that Hostler makes itself (eras/).
 * Invariant: a result that any JSON parser could read as `input_required` is treated as one, or is refused.
 */
import { eraNamed } from '../../session/eras/eras.js';
import { keyIs, memberBytes, memberString, type Span } from '../../wire/json-members.js';
import { eachMember, readString } from '../../wire/json-scan.js';
import { METHODS } from '../../wire/methods.js';
import type { Relayed } from './bridged-request.js';
import { brokenServer, quoted } from './bridged-request.js';
import { type ClientCapability, neededCapability } from './client-capabilities.js';

/** Limits of one round. */
export const inputRequestsMax = 32;
export const inputRequiredBytesMax = 1024 * 1024;

export interface InputRequest {
  readonly key: string;
  readonly method: string;
  readonly params: Buffer | undefined;
  readonly need: ClientCapability;
}

export interface InputRequired {
  readonly requests: readonly InputRequest[];
  /** The value of `requestState` in the bytes, quotes included. */
  readonly state: Span | undefined;
}

const inputRequired = Buffer.from('input_required');
const escaped = Buffer.from('\\u');

/** Undefined: the result does not require input. Throws a HostError for a malformed result. */
export function readInputRequired(
  server: string,
  method: string,
  { kind, bytes, era }: Relayed,
): InputRequired | undefined {
  if (kind !== 'result' || !eraNamed(era).asksInResults) return undefined;
  // Nearly every result ends here. A byte search misses the value only if it contains a JSON escape.
  if (!bytes.includes(inputRequired) && !bytes.includes(escaped)) return undefined;
  const parts = outerParts(server, bytes);
  if (!parts) return undefined;
  const broken = (what: string, reason: string) => brokenServer(server, what, reason);
  if (!METHODS.get(method)?.mayRequireInput)
    throw broken(`${quoted(method)} cannot be answered with input_required`, 'input_not_possible');
  if (bytes.length > inputRequiredBytesMax)
    throw broken(`sent an input_required result of more than ${inputRequiredBytesMax} bytes`, 'input_too_large');
  const requests = parts.requests ? inputRequests(server, bytes, parts.requests) : [];
  if (requests.length === 0 && !parts.state)
    throw broken('an input_required result has neither inputRequests nor requestState', 'input_empty');
  if (parts.state && bytes[parts.state.start] !== 0x22) throw broken('requestState is not a string', 'input_malformed');
  return { requests, state: parts.state };
}

const outerKeys = ['resultType', 'inputRequests', 'requestState'] as const;

function outerParts(
  server: string,
  bytes: Buffer,
): { requests: Span | undefined; state: Span | undefined } | undefined {
  const spans: (Span | undefined)[] = [];
  let asks = false;
  let doubled = false;
  eachMember(bytes, 0, bytes.length, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    const at = outerKeys.findIndex((key) => keyIs(bytes, keyStart, keyEnd, key));
    if (at < 0) return undefined;
    if (spans[at]) doubled = true;
    spans[at] = { start: valueStart, end: valueEnd };
    if (at === 0 && bytes[valueStart] === 0x22 && readString(bytes, valueStart + 1, valueEnd - 1) === 'input_required')
      asks = true;
    return undefined;
  });
  if (!asks) return undefined;
  if (doubled) throw brokenServer(server, 'an input_required result has a duplicate key', 'input_ambiguous');
  return { requests: spans[1], state: spans[2] };
}

function inputRequests(server: string, bytes: Buffer, { start, end }: Span): InputRequest[] {
  const broken = (what: string) => brokenServer(server, what, 'input_malformed');
  const found = new Map<string, InputRequest>();
  const after = eachMember(bytes, start, end, 0, ({ keyStart, keyEnd, valueStart, valueEnd }) => {
    const key = readString(bytes, keyStart, keyEnd);
    if (found.has(key)) throw broken(`has two questions with the key ${quoted(key)}`);
    if (found.size >= inputRequestsMax) throw broken(`sends more than ${inputRequestsMax} questions at once`);
    const entry = bytes.subarray(valueStart, valueEnd);
    const method = memberString(entry, 'method') ?? '';
    const params = memberBytes(entry, 'params');
    const need = neededCapability(method, params);
    if (!need) throw broken(`sent the question ${quoted(method)}, which no client supports`);
    if (!params && need !== 'roots') throw broken(`sent the question ${quoted(method)} without params`);
    found.set(key, { key, method, params, need });
    return undefined;
  });
  if (after < 0) throw broken('inputRequests is not an object');
  return [...found.values()];
}

/** Replaces the state of a result. `state` must not need JSON escapes. */
export const withState = (bytes: Buffer, { start, end }: Span, state: string): Buffer =>
  Buffer.concat([bytes.subarray(0, start), Buffer.from(`"${state}"`), bytes.subarray(end)]);
