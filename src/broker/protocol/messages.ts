/**
 * Messages between a worker and a host. Each is one JSON object: a WebSocket message, or the payload of a NATS message. Arguments, results
 * and tool definitions are copied as bytes and never parsed.
 * Not here: reply bodies and manifests (reply-body.ts).
 *
 * Invariants: a message with a duplicate member is refused; unknown members are ignored, so that a newer side may add some; an
 * unknown version is refused, and the error names the supported one. An error never quotes a value.
 */
import { hash } from 'node:crypto';
import { ERRORS, type ErrorCode, HostError, type HostErrorOptions } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { neutraliseLine } from '../../kernel/terminal-text.js';
import type { JsonText } from '../../wire/channel.js';
import { checkValue, joinedParts } from '../../wire/json-edit.js';
import { isList, isObject, stringOf, uniqueMembers } from '../../wire/json-members.js';
import { eachElement } from '../../wire/json-scan.js';
import { brokerLimits, idPattern } from './limits.js';

const protocolVersion = 1;

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

/** Reads one member. */
type Read<T> = (field: string, value: Buffer | undefined, code: ErrorCode) => T;
type Shape = Readonly<Record<string, Read<unknown>>>;
type Members<S extends Shape> = {
  readonly [Name in keyof S as undefined extends ReturnType<S[Name]> ? never : Name]: ReturnType<S[Name]>;
} & { readonly [Name in keyof S as undefined extends ReturnType<S[Name]> ? Name : never]?: ReturnType<S[Name]> };
type Message<S extends Readonly<Record<string, Shape>>> = {
  [Op in keyof S]: { readonly op: Op } & Members<S[Op]>;
}[keyof S];

export const name = text(brokerLimits.nameChars);
export const revision = text(brokerLimits.revisionChars);

const workerMessages = {
  /**
   * First message on NATS, sent again every 10 s. `connection`: id of the connection that sends it; the session may have a newer one.
   * `seen`: token of a host.
   */
  here: { connection: id, seen: optional(text(brokerLimits.seenChars)) },
  bye: { connection: id },
  call: {
    /** Made once for a call and kept with every sending. */
    key: id,
    /** Time left when it was sent. */
    deadlineMs,
    server: optional(name),
    tool: name,
    args: object,
    sentBefore: optional(sentBefore),
    /** The caller chose the key; it may be sent again within a day. */
    isCallersKey: flag,
    wantsProgress: flag,
    manifestRevision: optional(revision),
    trace: optional(trace),
  },
  cancel: { key: id },
  /** The worker has these replies. */
  ack: { keys: ids },
  /** Asks what became of these calls, for which the worker has receipts. The answer repeats `id`. */
  ask: { id, keys: ids },
  manifest: { id },
};

const hostMessages = {
  /** Answer to the first message. `seen`: the highest sequence of the store on NATS, as a token that only hosts can make. */
  welcome: { worker: name, role: optional(name), storeId: id, seen: optional(text(brokerLimits.seenChars)) },
  /** The call is in the log. `owner`: the host that runs it; `storeId`: the store with its row. */
  receipt: { key: id, owner: id, storeId: id, seen: optional(text(brokerLimits.seenChars)) },
  /** This sending of the call left no row. Other sendings of it may have. */
  refused: { key: id, error },
  /** The outcome of a call (reply-body.ts). `digest`: the request digest, only for a key that the caller chose. */
  reply: { key: id, digest: optional(id), body: object },
  /** Answer to `ask`. Calls in neither list were answered by a `reply`. */
  asked: { id, running: ids, resend: ids },
  /** Answer to `manifest` (reply-body.ts). */
  manifest: { id, body: object },
  progress: { key: id, params: object },
  manifest_changed: { revision },
  /** A host began to serve. Requests without an answer can be sent again at once. */
  serving: {},
};

export type WorkerMessage = Message<typeof workerMessages>;
export type HostMessage = Message<typeof hostMessages>;
export type CallRequest = Members<(typeof workerMessages)['call']>;
export type AskedCalls = Omit<Members<(typeof hostMessages)['asked']>, 'id'>;
export type Welcome = Members<(typeof hostMessages)['welcome']>;

/** Identifies what a call asks for: the same key with another digest is a conflict. */
export const requestDigest = (server: string | undefined, tool: string, args: JsonText): string =>
  hash('sha256', joinedParts([`${server ?? ''}\0${tool}\0`, args]), 'base64url');

/** Members that are undefined or false are left out. */
export function writeMessage(message: WorkerMessage | HostMessage): JsonText[] {
  const parts: JsonText[] = [];
  let part = `{"v":${protocolVersion}`;
  for (const [member, value] of Object.entries(message)) {
    if (value === undefined || value === false) continue;
    part += `,"${member}":`;
    if (Buffer.isBuffer(value)) {
      parts.push(part, value);
      part = '';
    } else part += JSON.stringify(value);
  }
  parts.push(`${part}}`);
  return parts;
}

/** Throws a HostError (`invalid_request`) that names the member. */
export const readWorkerMessage = readerOf<WorkerMessage>(workerMessages, 'invalid_request');
/**
 * Throws a HostError (`protocol_error`). Returns undefined for an operation that a newer host may send. The message itself does not count
 * as a level: the results and tools in it have as many levels as a server may send.
 */
export const readHostMessage = readerOf<HostMessage | undefined>(hostMessages, 'protocol_error', -1);

function readerOf<M>(shapes: Readonly<Record<string, Shape>>, code: ErrorCode, outerDepth = 0): (bytes: Buffer) => M {
  const names = [...new Set(['v', 'op', ...Object.values(shapes).flatMap((shape) => Object.keys(shape))])];
  const readers = new Map(
    Object.entries(shapes).map(([op, shape]) => [
      op,
      Object.entries(shape).map(([member, read]) => ({ member, read, at: names.indexOf(member) })),
    ]),
  );
  return (bytes) => {
    try {
      checkValue(bytes, 'the message', outerDepth);
    } catch {
      throw invalid('the message', 'is not one JSON value', code);
    }
    const found = uniqueMembers(bytes, names, outerDepth);
    if (found === undefined) throw invalid('the message', 'is not one JSON object with unique members', code);
    const [v, op] = found;
    if (v?.toString() !== String(protocolVersion))
      throw invalid('v', `must be ${protocolVersion}, the version of the broker protocol`, code);
    const known = (op && stringOf(op)) ?? '';
    const members = readers.get(known);
    if (!members && code === 'protocol_error') return undefined as M;
    if (!members) throw invalid('op', `must be one of ${Object.keys(shapes).join(', ')}`);
    const message: Record<string, unknown> = { op: known };
    for (const { member, read, at } of members) message[member] = read(member, found[at], code);
    return message as M;
  };
}

/** Members of the `_meta` of a call. */
export const traceMeta = ({ traceparent, tracestate }: Trace): string =>
  JSON.stringify({ traceparent, tracestate }).slice(1, -1);

function optional<T>(read: Read<T>): Read<T | undefined> {
  return (field, value, code) => value && read(field, value, code);
}

function id(field: string, value: Buffer | undefined, code: ErrorCode): string {
  const read = value && stringOf(value);
  if (read !== undefined && idPattern.test(read)) return read;
  throw invalid(field, 'must be 1 to 128 letters, digits, dashes and underscores', code);
}

function ids(field: string, value: Buffer | undefined, code: ErrorCode): readonly string[] {
  if (!isList(value)) throw invalid(field, 'must be a list', code);
  const keys: string[] = [];
  eachElement(value, 0, value.length, 0, (start, end) => {
    if (keys.length >= brokerLimits.keysPerMessage)
      throw invalid(field, `has more than ${brokerLimits.keysPerMessage} entries`, code);
    keys.push(id(field, value.subarray(start, end), code));
    return undefined;
  });
  return keys;
}

function object(field: string, value: Buffer | undefined, code: ErrorCode): Buffer {
  if (isObject(value)) return value;
  throw invalid(field, 'must be an object', code);
}

function error(field: string, value: Buffer | undefined, code: ErrorCode): HostError {
  return readError(object(field, value, code));
}

function text(charsMax: number): Read<string> {
  return (field, value, code) => {
    const read = value && stringOf(value);
    if (read === undefined || read === '') throw invalid(field, 'must be a non-empty string', code);
    if (read.length > charsMax) throw invalid(field, `has more than ${charsMax} characters`, code);
    return read;
  };
}

function deadlineMs(field: string, value: Buffer | undefined, code: ErrorCode): number {
  const read = value && value.length <= 16 ? Number(value.toString()) : Number.NaN;
  if (Number.isInteger(read) && read >= 0 && read <= brokerLimits.deadlineMs) return read;
  throw invalid(field, `must be a whole number from 0 to ${brokerLimits.deadlineMs}`, code);
}

function sentBefore(_field: string, value: Buffer | undefined, code: ErrorCode): SentBefore {
  const [storeId, hasReceipt] = (value && uniqueMembers(value, ['storeId', 'hasReceipt'])) ?? [];
  return { storeId: id('sentBefore.storeId', storeId, code), hasReceipt: flag('', hasReceipt) };
}

/** An unreadable trace is dropped; the call is not refused for it. */
function trace(_field: string, value: Buffer | undefined): Trace | undefined {
  const [parent, state] = (value && uniqueMembers(value, ['traceparent', 'tracestate'])) ?? [];
  const traceparent = parent && stringOf(parent);
  const tracestate = state && stringOf(state);
  if (traceparent === undefined || !/^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/.test(traceparent))
    return undefined;
  const isShort = (tracestate?.length ?? 0) <= brokerLimits.traceStateChars;
  return { traceparent, tracestate: isShort ? tracestate : undefined };
}

function flag(_field: string, value: Buffer | undefined): boolean {
  return value?.toString() === 'true';
}

export const invalid = (field: string, what: string, code: ErrorCode = 'invalid_request'): HostError =>
  new HostError(code, `broker message: ${field} ${what}`, {
    field,
    execution: code === 'protocol_error' ? 'uncertain' : 'not_executed',
    hint: 'run compatible versions of Hostler on both sides',
  });

const textMembers = [
  ...(['server', 'tool', 'requestId', 'reason', 'phase', 'execution', 'field', 'role', 'oldHash', 'newHash'] as const),
  'signal',
] as const;
const numberMembers = ['retryAfterMs', 'limit', 'actual', 'exitCode', 'httpStatus', 'rpcCode'] as const;

/** `bytes` is one JSON object. */
export function readError(bytes: Buffer): HostError {
  const { code, message, hint, ...rest } = JSON.parse(bytes.toString('utf8')) as Record<string, unknown>;
  const known: ErrorCode =
    typeof code === 'string' && Object.hasOwn(ERRORS, code) ? (code as ErrorCode) : 'protocol_error';
  const details: Record<string, unknown> = {};
  for (const key of textMembers) if (typeof rest[key] === 'string') details[key] = line(rest[key]);
  for (const key of numberMembers) if (Number.isFinite(rest[key])) details[key] = rest[key];
  if (rest.execution !== 'not_executed' && rest.execution !== 'uncertain') delete details.execution;
  if (typeof hint === 'string') details.hint = line(hint);
  return new HostError(known, typeof message === 'string' ? line(message) : known, details as HostErrorOptions);
}

const line = (text: string): string => neutraliseLine(text, LIMITS.quotedChars);
