/**
 * Messages between a worker and a host. Each is one JSON object: a WebSocket message, or the payload of a NATS message. Arguments, results
 * and tool definitions are copied as bytes and never parsed.
 * Not here: reply bodies and manifests (reply-body.ts), transport details such as the hello of a WebSocket.
 *
 * Invariants: a message with a duplicate member is refused; unknown members are ignored, so that a newer side may add some; an
 * unknown version is refused by name.
 */
import { hash } from 'node:crypto';
import { type ErrorCode, HostError } from '../../kernel/errors.js';
import type { JsonText } from '../../wire/frame.js';
import { isList, isObject, stringOf, uniqueMembers } from '../../wire/json-members.js';
import { eachElement } from '../../wire/json-scan.js';
import { checkValue, joinedParts } from '../../wire/json-text.js';
import { readError } from './error-codec.js';
import { brokerLimits, idPattern } from './limits.js';

export const protocolVersion = 1;

/** W3C trace context. */
export interface Trace {
  readonly traceparent: string;
  readonly tracestate: string | undefined;
}

/** How a call was sent before. Undefined: this is its first sending. */
export interface SentBefore {
  /** Id of the store to which it was first sent. */
  readonly storeId: string;
  readonly hasReceipt: boolean;
}

export interface CallRequest {
  /** Made once for a call and kept with every sending. */
  readonly key: string;
  /** Time left when it was sent. */
  readonly deadlineMs: number;
  readonly server: string | undefined;
  readonly tool: string;
  /** One JSON object. */
  readonly args: Buffer;
  readonly sentBefore: SentBefore | undefined;
  /** The caller chose the key; it may be sent again within a day. */
  readonly isCallersKey: boolean;
  readonly wantsProgress: boolean;
  readonly manifestRevision: string | undefined;
  readonly trace: Trace | undefined;
}

export type WorkerMessage =
  | ({ readonly op: 'call' } & CallRequest)
  | { readonly op: 'cancel'; readonly key: string }
  /** The worker has these replies. */
  | { readonly op: 'taken'; readonly keys: readonly string[] }
  /** What became of these calls, for which the worker has receipts? `id` is repeated in the answer. */
  | { readonly op: 'ask'; readonly id: string; readonly keys: readonly string[] }
  | { readonly op: 'manifest'; readonly id: string };

export type HostMessage =
  /** The call is in the log. `owner`: the host that runs it; `storeId`: the store that has it. */
  | { readonly op: 'receipt'; readonly key: string; readonly owner: string; readonly storeId: string }
  /** This sending of the call left no row. Other sendings of it may have. */
  | { readonly op: 'refused'; readonly key: string; readonly error: HostError }
  /** The outcome of a call (reply-body.ts). */
  | { readonly op: 'reply'; readonly key: string; readonly body: Buffer }
  /** Answer to `ask`. Calls in neither list were answered by a `reply`. */
  | {
      readonly op: 'asked';
      readonly id: string;
      readonly running: readonly string[];
      readonly resend: readonly string[];
    }
  /** Answer to `manifest` (reply-body.ts). */
  | { readonly op: 'manifest'; readonly id: string; readonly body: Buffer }
  | { readonly op: 'progress'; readonly key: string; readonly params: Buffer }
  | { readonly op: 'manifest_changed'; readonly revision: string };

/** What a key stands for: the same key with another digest is a conflict. */
export const requestDigest = (server: string | undefined, tool: string, args: JsonText): string =>
  hash('sha256', joinedParts([`${server ?? ''}\0${tool}\0`, args]), 'base64url');

const text = JSON.stringify;
const head = (op: string): string => `{"v":${protocolVersion},"op":"${op}"`;

export function writeWorkerMessage(message: WorkerMessage): Buffer {
  switch (message.op) {
    case 'call':
      return writeCall(message);
    case 'cancel':
      return Buffer.from(`${head('cancel')},"key":${text(message.key)}}`);
    case 'taken':
      return Buffer.from(`${head('taken')},"keys":${text(message.keys)}}`);
    case 'ask':
      return Buffer.from(`${head('ask')},"id":${text(message.id)},"keys":${text(message.keys)}}`);
    case 'manifest':
      return Buffer.from(`${head('manifest')},"id":${text(message.id)}}`);
    default:
      return message satisfies never;
  }
}

function writeCall(call: CallRequest): Buffer {
  const { key, deadlineMs, server, tool, args, sentBefore, manifestRevision, trace } = call;
  const target = `${server === undefined ? '' : `,"server":${text(server)}`},"tool":${text(tool)}`;
  const before = sentBefore ? `,"storeId":${text(sentBefore.storeId)},"receipt":${sentBefore.hasReceipt}` : '';
  const flags = `${call.isCallersKey ? ',"callersKey":true' : ''}${call.wantsProgress ? ',"progress":true' : ''}`;
  const revision = manifestRevision === undefined ? '' : `,"manifestRevision":${text(manifestRevision)}`;
  const context = trace === undefined ? '' : `,"trace":${text(trace)}`;
  const start = `${head('call')},"key":${text(key)},"deadlineMs":${Math.floor(deadlineMs)}`;
  return joinedParts([`${start}${target}${before}${flags}${revision}${context},"arguments":`, args, '}']);
}

const workerMembers = [
  ...['v', 'op', 'key', 'deadlineMs', 'server', 'tool', 'arguments', 'storeId', 'receipt', 'callersKey', 'progress'],
  ...['manifestRevision', 'trace', 'keys', 'id'],
];

/** Throws a HostError (`invalid_request`) that names the member. */
export function readWorkerMessage(bytes: Buffer): WorkerMessage {
  checkValue(bytes, 'the message');
  const found = uniqueMembers(bytes, workerMembers);
  if (found === undefined) throw invalid('the message', 'is not one JSON object with unique members');
  const [v, op, key, deadlineMs, server, tool, args, storeId, receipt, callersKey, progress] = found;
  const [revision, trace, keys, id] = found.slice(11);
  requireVersion(v);
  switch (op && stringOf(op)) {
    case 'call':
      if (!isObject(args)) throw invalid('arguments', 'must be an object');
      return {
        op: 'call',
        key: idIn('key', key),
        deadlineMs: wholeNumber('deadlineMs', deadlineMs, brokerLimits.deadlineMs),
        server: server && shortText('server', server, brokerLimits.nameChars),
        tool: shortText('tool', tool, brokerLimits.nameChars),
        args,
        sentBefore: storeId && { storeId: idIn('storeId', storeId), hasReceipt: isTrue(receipt) },
        isCallersKey: isTrue(callersKey),
        wantsProgress: isTrue(progress),
        manifestRevision: revision && shortText('manifestRevision', revision, brokerLimits.revisionChars),
        trace: trace && readTrace(trace),
      };
    case 'cancel':
      return { op: 'cancel', key: idIn('key', key) };
    case 'taken':
      return { op: 'taken', keys: keysIn('keys', keys) };
    case 'ask':
      return { op: 'ask', id: idIn('id', id), keys: keysIn('keys', keys) };
    case 'manifest':
      return { op: 'manifest', id: idIn('id', id) };
    default:
      throw invalid('op', 'must be call, cancel, taken, ask or manifest');
  }
}

export function writeHostMessage(message: HostMessage): readonly JsonText[] {
  switch (message.op) {
    case 'receipt': {
      const { key, owner, storeId } = message;
      return [`${head('receipt')},"key":${text(key)},"owner":${text(owner)},"storeId":${text(storeId)}}`];
    }
    case 'refused':
      return [`${head('refused')},"key":${text(message.key)},"error":${text(message.error.toJSON())}}`];
    case 'reply':
      return [`${head('reply')},"key":${text(message.key)},"body":`, message.body, '}'];
    case 'asked': {
      const { id, running, resend } = message;
      return [`${head('asked')},"id":${text(id)},"running":${text(running)},"resend":${text(resend)}}`];
    }
    case 'manifest':
      return [`${head('manifest')},"id":${text(message.id)},"body":`, message.body, '}'];
    case 'progress':
      return [`${head('progress')},"key":${text(message.key)},"params":`, message.params, '}'];
    case 'manifest_changed':
      return [`${head('manifest_changed')},"revision":${text(message.revision)}}`];
    default:
      return message satisfies never;
  }
}

const hostMembers = [
  ...['v', 'op', 'key', 'owner', 'storeId', 'error', 'body', 'id', 'running', 'resend', 'params', 'revision'],
];

/** Throws a HostError (`protocol_error`); undefined for an operation that a newer host may send. */
export function readHostMessage(bytes: Buffer): HostMessage | undefined {
  const code = 'protocol_error';
  try {
    checkValue(bytes, 'the message');
  } catch {
    throw invalid('the message', 'is not one JSON value', code);
  }
  const found = uniqueMembers(bytes, hostMembers);
  if (found === undefined) throw invalid('the message', 'is not one JSON object with unique members', code);
  const [v, op, key, owner, storeId, error, body, id, running, resend, params, revision] = found;
  requireVersion(v, code);
  switch (op && stringOf(op)) {
    case 'receipt':
      return {
        op: 'receipt',
        key: idIn('key', key, code),
        owner: idIn('owner', owner, code),
        storeId: idIn('storeId', storeId, code),
      };
    case 'refused':
      return { op: 'refused', key: idIn('key', key, code), error: readError(objectIn('error', error, code)) };
    case 'reply':
      return { op: 'reply', key: idIn('key', key, code), body: objectIn('body', body, code) };
    case 'asked':
      return {
        op: 'asked',
        id: idIn('id', id, code),
        running: keysIn('running', running, code),
        resend: keysIn('resend', resend, code),
      };
    case 'manifest':
      return { op: 'manifest', id: idIn('id', id, code), body: objectIn('body', body, code) };
    case 'progress':
      return { op: 'progress', key: idIn('key', key, code), params: objectIn('params', params, code) };
    case 'manifest_changed':
      return { op: 'manifest_changed', revision: shortText('revision', revision, brokerLimits.revisionChars, code) };
    default:
      return undefined;
  }
}

/** Members of the `_meta` of a call. */
export const traceMeta = ({ traceparent, tracestate }: Trace): string =>
  `"traceparent":${text(traceparent)}${tracestate === undefined ? '' : `,"tracestate":${text(tracestate)}`}`;

export function requireVersion(v: Buffer | undefined, code?: ErrorCode): void {
  if (v?.toString() === String(protocolVersion)) return;
  throw invalid('v', `must be ${protocolVersion}, the version of the broker protocol`, code);
}

export function idIn(field: string, value: Buffer | undefined, code?: ErrorCode): string {
  const read = value && stringOf(value);
  if (read !== undefined && idPattern.test(read)) return read;
  throw invalid(field, 'must be 1 to 128 letters, digits, dashes and underscores', code);
}

function keysIn(field: string, value: Buffer | undefined, code?: ErrorCode): string[] {
  if (!isList(value)) throw invalid(field, 'must be a list', code);
  const keys: string[] = [];
  eachElement(value, 0, value.length, 0, (start, end) => {
    if (keys.length >= brokerLimits.keysPerMessage)
      throw invalid(field, `has more than ${brokerLimits.keysPerMessage} entries`, code);
    keys.push(idIn(field, value.subarray(start, end), code));
    return undefined;
  });
  return keys;
}

function objectIn(field: string, value: Buffer | undefined, code?: ErrorCode): Buffer {
  if (isObject(value)) return value;
  throw invalid(field, 'must be an object', code);
}

export function shortText(field: string, value: Buffer | undefined, charsMax: number, code?: ErrorCode): string {
  const read = value && stringOf(value);
  if (read === undefined || read === '') throw invalid(field, 'must be a non-empty string', code);
  if (read.length > charsMax) throw invalid(field, `has more than ${charsMax} characters`, code);
  return read;
}

function wholeNumber(field: string, value: Buffer | undefined, max: number): number {
  const read = value && value.length <= 16 ? Number(value.toString()) : Number.NaN;
  if (!Number.isInteger(read) || read < 0 || read > max)
    throw invalid(field, `must be a whole number from 0 to ${max}`);
  return read;
}

/** An unreadable trace is dropped; the call is not refused for it. */
function readTrace(bytes: Buffer): Trace | undefined {
  const [parent, state] = uniqueMembers(bytes, ['traceparent', 'tracestate']) ?? [];
  const traceparent = parent && stringOf(parent);
  const tracestate = state && stringOf(state);
  if (traceparent === undefined || !/^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/.test(traceparent))
    return undefined;
  const isShort = (tracestate?.length ?? 0) <= brokerLimits.traceStateChars;
  return { traceparent, tracestate: isShort ? tracestate : undefined };
}

const isTrue = (value: Buffer | undefined): boolean => value?.toString() === 'true';

export const invalid = (field: string, what: string, code: ErrorCode = 'invalid_request'): HostError =>
  new HostError(code, `broker message: ${field} ${what}`, {
    field,
    execution: code === 'protocol_error' ? 'uncertain' : 'not_executed',
    hint: 'run compatible versions of Hostler on both sides',
  });
