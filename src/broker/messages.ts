/**
 * What is inside a body: requests of workers, replies and news of hosts. Arguments and results go through as the bytes they
 * came as; what is around them is checked here, on both sides.
 * Not here: envelopes, who sent it and how it is kept (ports.ts); the shapes of older workers (older-messages.ts).
 *
 * Invariants: a body in which one of our members stands twice is refused; a member that nobody knows is ignored, so that a newer
 * side may add one; a version that nobody knows is refused by name.
 */
import { hash } from 'node:crypto';
import { type ErrorCode, HostError } from '../kernel/errors.js';
import { LIMITS } from '../kernel/limits.js';
import type { Era } from '../wire/channel.js';
import type { JsonText } from '../wire/frame.js';
import { isList, isObject, stringOf, uniqueMembers } from '../wire/json-members.js';
import { eachElement } from '../wire/json-scan.js';
import { checkValue, joinedParts } from '../wire/json-text.js';
import { idPattern, ttlMsMax } from './ports.js';
import { readToldError } from './told-error.js';

const wireVersion = 1;
/** Of a server or a tool, on the wire. */
export const nameCharsMax = 256;
const revisionCharsMax = 128;
const traceCharsMax = 512;
const clockCharsMax = 64;

export interface CallRequest {
  readonly op: 'call';
  readonly callKey: string;
  /** What was left of the caller's time when it was sent. */
  readonly deadlineMs: number;
  /** How long before this it was first sent; undefined: this is the first time. */
  readonly sentMsAgo?: number | undefined;
  readonly server: string | undefined;
  readonly tool: string;
  /** One JSON object. */
  readonly args: Buffer;
  readonly manifestRevision: string | undefined;
  readonly trace: Trace | undefined;
  /** The worker wants to hear of progress. */
  readonly wantsProgress: boolean;
  /** The key is the caller's own, which may come again within a day. */
  readonly isCallersKey: boolean;
  /** Absent: of a worker that does not say. */
  readonly sent?: Sent | undefined;
}

/** When it was sent, by a monotonic clock of its sender that counts from anywhere; the name tells one such clock from another. */
export interface Sent {
  readonly clock: string;
  readonly atMs: number;
}

/** W3C trace context. */
export interface Trace {
  readonly traceparent: string;
  readonly tracestate: string | undefined;
}

export type Request = CallRequest | { readonly op: 'manifest' };

export interface ManifestTool {
  readonly server: string;
  readonly name: string;
  /** As the server wrote it. */
  readonly raw: Buffer;
}

export interface Manifest {
  /** Of the content: the same tools have the same one at every host. */
  readonly revision: string;
  readonly tools: readonly ManifestTool[];
  /** Why there are none, where the host refuses this worker everything. */
  readonly denied?: HostError | undefined;
}

export type Reply =
  | { readonly kind: 'manifest'; readonly manifest: Manifest }
  | { readonly kind: 'result'; readonly bytes: Buffer; readonly era: Era; readonly of?: string | undefined }
  | { readonly kind: 'error'; readonly error: HostError; readonly of?: string | undefined };

export type News =
  | { readonly kind: 'manifest_changed'; readonly revision: string }
  | { readonly kind: 'progress'; readonly callKey: string; readonly params: Buffer };

export const manifestRequest = (): Buffer => Buffer.from(`{"v":${wireVersion},"op":"manifest"}`);

export function callRequest(call: Omit<CallRequest, 'op' | 'args'> & { readonly args: JsonText }): Buffer {
  const { callKey, deadlineMs, sentMsAgo, server, tool, args, manifestRevision, trace, wantsProgress } = call;
  const { isCallersKey, sent } = call;
  // Written out: one of these is made for every call.
  const text = JSON.stringify;
  const head = `{"v":${wireVersion},"op":"call","callKey":${text(callKey)},"deadlineMs":${Math.ceil(deadlineMs)}`;
  const target = `${server === undefined ? '' : `,"server":${text(server)}`},"tool":${text(tool)}`;
  const revision = manifestRevision === undefined ? '' : `,"manifestRevision":${text(manifestRevision)}`;
  const context = trace === undefined ? '' : `,"trace":${text(trace)}`;
  const flags = `${wantsProgress ? ',"progress":true' : ''}${isCallersKey ? ',"callersKey":true' : ''}`;
  const age = sentMsAgo === undefined ? '' : `,"sentMsAgo":${Math.ceil(sentMsAgo)}`;
  const stamp = sent === undefined ? '' : `,"sent":${text(sent)}`;
  return joined(`${head}${target}${revision}${context}${flags}${age}${stamp},"arguments":`, args, '}');
}

const requestKeys = [
  ...['v', 'op', 'callKey', 'deadlineMs', 'server', 'tool', 'arguments', 'manifestRevision', 'trace'],
  ...['progress', 'callersKey', 'sentMsAgo', 'sent'],
];

/** Throws a HostError that says what is wrong. The bytes are whole JSON, as their envelope was scanned. */
export function readRequest(body: Buffer): Request {
  const found = uniqueMembers(body, requestKeys);
  if (found === undefined) throw bad('the request', 'is not one JSON object, or has a member twice');
  const [v, op, callKey, deadlineMs, server, tool, args, revision, trace, progress, callersKey, sentMsAgo, sent] =
    found;
  requireVersion(v);
  switch (op && stringOf(op)) {
    case 'manifest':
      return { op: 'manifest' };
    case 'call':
      break;
    default:
      throw bad('op', 'must be manifest or call');
  }
  const key = callKey && stringOf(callKey);
  if (key === undefined || !idPattern.test(key))
    throw bad('callKey', 'must be 1 to 128 letters, digits, dashes and underscores');
  if (!isObject(args)) throw bad('arguments', 'must be an object');
  return {
    op: 'call',
    callKey: key,
    deadlineMs: wholeNumber('deadlineMs', deadlineMs, ttlMsMax),
    sentMsAgo: sentMsAgo && wholeNumber('sentMsAgo', sentMsAgo, ttlMsMax),
    server: server && text('server', server, nameCharsMax),
    tool: text('tool', tool, nameCharsMax),
    args,
    manifestRevision: revision && text('manifestRevision', revision, revisionCharsMax),
    trace: trace && readTrace(trace),
    wantsProgress: isTrue(progress),
    isCallersKey: isTrue(callersKey),
    sent: sent && readSent(sent),
  };
}

/**
 * What a caller's own key stands for, of which the reply says so: it may be the outcome of an earlier call with the same key, and
 * must not pass for that of another.
 */
export const requestDigest = ({
  server,
  tool,
  args,
}: Pick<CallRequest, 'server' | 'tool'> & { args: JsonText }): string =>
  hash('sha256', joined(`${server ?? ''}\0${tool}\0`, args), 'base64url');

/** `of`: the digest of the request, where its key is the caller's own. */
export const resultReply = (bytes: Buffer, era: Era, of?: string): readonly JsonText[] => [
  `{"v":${wireVersion},"era":"${era}"${of === undefined ? '' : `,"of":"${of}"`},"result":`,
  bytes,
  '}',
];

export const errorReply = (error: HostError, of?: string): readonly JsonText[] => [
  JSON.stringify({ v: wireVersion, of, error: error.toJSON() }),
];

export function manifestReply({ revision, tools, denied }: Manifest): Buffer {
  const parts: JsonText[] = [`{"v":${wireVersion},"manifest":{"revision":${JSON.stringify(revision)},"tools":[`];
  tools.forEach(({ server, name, raw }, at) => {
    parts.push(`${at ? ',' : ''}{"server":${JSON.stringify(server)},"name":${JSON.stringify(name)},"tool":`, raw, '}');
  });
  // Workers that do not know this member ignore it.
  return joined(...parts, denied ? `],"denied":${JSON.stringify(denied.toJSON())}}}` : ']}}');
}

const replyKeys = ['v', 'manifest', 'result', 'era', 'error', 'of'];

/** Throws when it is not one: an answer that cannot be read is not an empty one. */
export function readReply(body: Buffer): Reply {
  requireJson(body);
  const [v, manifest, result, era, error, digest] = uniqueMembers(body, replyKeys) ?? [];
  requireVersion(v, 'protocol_error');
  if (Number(!!manifest) + Number(!!result) + Number(!!error) !== 1)
    throw bad('the reply', 'must have a manifest, a result or an error, and one of them', 'protocol_error');
  const of = digest && stringOf(digest);
  if (isObject(error)) return { kind: 'error', error: readToldError(error), of };
  if (isObject(result)) return { kind: 'result', bytes: result, era: eraOf(era), of };
  if (isObject(manifest)) return { kind: 'manifest', manifest: readManifest(manifest) };
  throw bad('the reply', 'must have an object in it', 'protocol_error');
}

const eraOf = (era: Buffer | undefined): Era => (era && stringOf(era) === 'modern' ? 'modern' : 'legacy');

function readManifest(bytes: Buffer): Manifest {
  const [revision, tools, denied] = uniqueMembers(bytes, ['revision', 'tools', 'denied']) ?? [];
  if (!isList(tools)) throw bad('manifest.tools', 'must be a list', 'protocol_error');
  const read: ManifestTool[] = [];
  eachElement(tools, 0, tools.length, 0, (start, end) => {
    if (read.length >= LIMITS.toolListItems) throw bad('manifest.tools', 'has too many entries', 'protocol_error');
    const [server, name, raw] = uniqueMembers(tools.subarray(start, end), ['server', 'name', 'tool']) ?? [];
    if (!isObject(raw)) throw bad('manifest.tools', 'has an entry without a tool', 'protocol_error');
    read.push({ server: told('server', server, nameCharsMax), name: told('name', name, nameCharsMax), raw });
    return undefined;
  });
  return {
    revision: told('revision', revision, revisionCharsMax),
    tools: read,
    denied: isObject(denied) ? readToldError(denied) : undefined,
  };
}

export const changedNews = (revision: string): JsonText =>
  JSON.stringify({ v: wireVersion, news: 'manifest_changed', revision });

export const progressNews = (callKey: string, params: Buffer): readonly JsonText[] => [
  `{"v":${wireVersion},"news":"progress","callKey":${JSON.stringify(callKey)},"params":`,
  params,
  '}',
];

/** Undefined for what nobody knows: news are not owed. */
export function readNews(body: Buffer): News | undefined {
  const [v, news, revision, callKey, params] =
    uniqueMembers(body, ['v', 'news', 'revision', 'callKey', 'params']) ?? [];
  if (v?.toString() !== String(wireVersion)) return undefined;
  const key = callKey && stringOf(callKey);
  const changed = revision && stringOf(revision);
  switch (news && stringOf(news)) {
    case 'manifest_changed':
      return changed === undefined ? undefined : { kind: 'manifest_changed', revision: changed };
    case 'progress':
      return key !== undefined && isObject(params) ? { kind: 'progress', callKey: key, params } : undefined;
    default:
      return undefined;
  }
}

/** As members of what goes along with a call. */
export const traceMeta = ({ traceparent, tracestate }: Trace): string =>
  `"traceparent":${JSON.stringify(traceparent)}${tracestate === undefined ? '' : `,"tracestate":${JSON.stringify(tracestate)}`}`;

export const joined = (...parts: readonly JsonText[]): Buffer => joinedParts(parts);

function requireVersion(v: Buffer | undefined, code?: ErrorCode): void {
  if (v?.toString() === String(wireVersion)) return;
  throw bad('v', `must be ${wireVersion}, the version of these messages`, code);
}

/** What is wrong with a reply says nothing about whether its request was run. */
function requireJson(reply: Buffer): void {
  try {
    checkValue(reply, 'the reply');
  } catch {
    throw bad('the reply', 'is not one JSON value', 'protocol_error');
  }
}

function text(field: string, value: Buffer | undefined, charsMax: number, code?: ErrorCode): string {
  const read = value && stringOf(value);
  if (read === undefined || read === '') throw bad(field, 'must be a text', code);
  if (read.length > charsMax) throw bad(field, `has more than ${charsMax} characters`, code);
  return read;
}

/** The same in a reply. */
const told = (field: string, value: Buffer | undefined, charsMax: number): string =>
  text(field, value, charsMax, 'protocol_error');

function wholeNumber(field: string, value: Buffer | undefined, max: number): number {
  const read = value && value.length <= 16 ? Number(value.toString()) : Number.NaN;
  if (!Number.isInteger(read) || read < 0 || read > max) throw bad(field, `must be a whole number from 0 to ${max}`);
  return read;
}

/** A trace that cannot be read is no reason to refuse the call it came with. */
function readTrace(bytes: Buffer): Trace | undefined {
  const [parent, state] = uniqueMembers(bytes, ['traceparent', 'tracestate']) ?? [];
  const traceparent = parent && stringOf(parent);
  const tracestate = state && stringOf(state);
  if (traceparent === undefined || !/^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/.test(traceparent))
    return undefined;
  return { traceparent, tracestate: (tracestate?.length ?? 0) <= traceCharsMax ? tracestate : undefined };
}

function readSent(bytes: Buffer): Sent {
  const [clock, atMs] = uniqueMembers(bytes, ['clock', 'atMs']) ?? [];
  return {
    clock: text('sent.clock', clock, clockCharsMax),
    atMs: wholeNumber('sent.atMs', atMs, Number.MAX_SAFE_INTEGER),
  };
}

const isTrue = (value: Buffer | undefined): boolean => value?.toString() === 'true';

const bad = (field: string, what: string, code: ErrorCode = 'invalid_request'): HostError =>
  new HostError(code, `${field}: ${what}`, {
    field,
    execution: code === 'protocol_error' ? 'uncertain' : 'not_executed',
    hint: 'both sides must run versions of Hostler that know each other',
  });
