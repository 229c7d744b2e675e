/**
 * Answers that are one JSON text, the refusals of the HTTP listener (status, error and what the client should do), and the checks
 * of headers that lead to them. A small answer and its head are sent in one write.
 * Not here: event streams (sse-stream.ts).
 * Invariant: a refusal never quotes received text.
 */
import { type IncomingMessage, ServerResponse, STATUS_CODES } from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { ERRORS } from '../../kernel/errors.js';
import { LIMITS } from '../../kernel/limits.js';
import { type JsonText, latin1 } from '../../wire/channel.js';
import { joinedParts, partsBytes } from '../../wire/json-edit.js';
import { RPC } from '../../wire/methods.js';
import { failureText, type RpcFailure } from '../exchange.js';
import type { LingeringClose } from './http-connections.js';
import { HTTP_LIMITS } from './http-limits.js';

/** Alternating names and values. */
export type HeaderList = readonly string[];

export interface Refusal {
  readonly status: number;
  readonly failure: RpcFailure;
  readonly headers: HeaderList;
  /** Id of the refused message, if it could be read. */
  readonly idText?: string | undefined;
}

const refusal = (status: number, code: number, message: string, headers: HeaderList = []): Refusal => ({
  status,
  failure: { code, message },
  headers,
});

export const failureOf = ({ status, failure }: Refusal): RpcFailure => ({ ...failure, httpStatus: status });

/** Replaces `toLocaleString`, whose first call costs a tenth of the start time of Hostler. */
const grouped = (count: number): string => String(count).replace(/\B(?=(?:\d{3})+$)/g, ',');
const invalid = RPC.invalidRequest;
const closing: HeaderList = ['Connection', 'close'];

export const REFUSALS = {
  origin: refusal(
    403,
    ERRORS.denied.rpc,
    'this Host or Origin is not allowed; use localhost, or add the name to listen.allowedHosts or listen.allowedOrigins',
  ),
  path: refusal(404, ERRORS.server_not_found.rpc, 'this path does not exist; use /mcp, /mcp/<server> or /mcp/@<group>'),
  endpoint: refusal(404, ERRORS.server_not_found.rpc, 'there is no such server or group for this key'),
  key: refusal(401, ERRORS.unauthenticated.rpc, 'a valid key is required; send Authorization: Bearer <key>', [
    'WWW-Authenticate',
    'Bearer',
  ]),
  role: refusal(
    403,
    ERRORS.denied.rpc,
    'this page shows all servers; use the operator’s key, or a key that has no role and may call at least one server',
  ),
  method: refusal(405, invalid, 'use POST, or GET and DELETE with the session of a legacy client', [
    'Allow',
    'POST, GET, DELETE',
  ]),
  postOnly: refusal(405, invalid, 'this protocol version has only POST', ['Allow', 'POST']),
  routeMethod: refusal(405, invalid, 'this path has only GET and HEAD', ['Allow', 'GET, HEAD']),
  client: refusal(
    400,
    invalid,
    'Hostler-Client must be 1 to 128 letters, digits, dots, dashes, tildes and underscores',
  ),
  contentType: refusal(415, invalid, 'send Content-Type: application/json'),
  accept: refusal(406, invalid, 'send Accept: application/json, text/event-stream'),
  acceptStream: refusal(406, invalid, 'send Accept: text/event-stream'),
  body: refusal(413, invalid, 'the body is larger than allowed; send less in one request'),
  header: refusal(431, invalid, 'the headers are larger than allowed; send fewer or shorter ones', closing),
  slow: refusal(408, invalid, 'the request did not arrive in time; send it again', closing),
  http: refusal(400, invalid, 'the request is not valid HTTP/1.1', closing),
  parse: refusal(400, RPC.parseError, 'the body is not JSON; send one JSON-RPC message'),
  values: refusal(413, invalid, `the body holds more than ${grouped(LIMITS.values)} values; send less in one request`),
  depth: refusal(400, RPC.parseError, 'the body nests too deep; send a flatter message'),
  rpc: refusal(400, invalid, 'the body is not one JSON-RPC 2.0 message'),
  ambiguous: refusal(400, invalid, 'the body is ambiguous; send each member of JSON-RPC once, in lower case'),
  id: refusal(400, invalid, 'the id must be a string or an integer'),
  noBatches: refusal(400, invalid, 'there are no batches in this protocol version; send one message at a time'),
  batch: refusal(
    400,
    invalid,
    `a batch needs a session of protocol 2025-03-26, and has 1 to ${grouped(HTTP_LIMITS.batch)} messages, none of them initialize`,
  ),
  noAnswers: refusal(400, invalid, 'this protocol version has no requests to clients; send requests or notifications'),
  sessionMissing: refusal(
    400,
    invalid,
    'send the Mcp-Session-Id from the answer to initialize; without a session, send initialize first',
  ),
  sessionUnknown: refusal(404, invalid, 'this session does not exist; open a new one with initialize'),
  sessionOpen: refusal(400, invalid, 'this session is open already; leave Mcp-Session-Id out to open another'),
  version: refusal(400, invalid, 'MCP-Protocol-Version differs from the version of this session'),
  stream: refusal(409, invalid, 'this session has an open stream; close it first'),
  lastEvent: refusal(400, invalid, 'Last-Event-ID is not an event of this session'),
  busy: refusal(503, ERRORS.overloaded.rpc, 'too many requests are open; try again shortly', ['Retry-After', '1']),
  sessionsFull: refusal(503, ERRORS.overloaded.rpc, 'too many sessions are open or being opened; try again shortly', [
    'Retry-After',
    '1',
  ]),
  busyBodies: refusal(503, ERRORS.overloaded.rpc, 'too many bodies are being received; try again shortly', [
    ...['Retry-After', '1'],
    ...closing,
  ]),
  connections: refusal(
    503,
    ERRORS.overloaded.rpc,
    'no connection is free and this key has a large share of them; close some, or try again shortly',
    [...['Retry-After', '1'], ...closing],
  ),
  internal: refusal(500, RPC.internalError, 'hostler failed on this request; see its log'),
  starting: refusal(503, ERRORS.overloaded.rpc, 'hostler is starting; try again shortly', ['Retry-After', '1']),
  stopping: refusal(503, ERRORS.overloaded.rpc, 'hostler is stopping; try again when it is back', [
    ...['Retry-After', '5'],
    ...closing,
  ]),
} as const satisfies Record<string, Refusal>;

/** Failure of an open exchange when the gateway stops. */
export const stopping = failureOf(REFUSALS.stopping);
/** Failure of `initialize` when the session table is full. */
export const sessionsFull = failureOf(REFUSALS.sessionsFull);
/** Failure of an open exchange when its key is revoked. */
export const keyRevoked: RpcFailure = {
  code: ERRORS.unauthenticated.rpc,
  message: 'the key of this request was revoked; send a valid key',
  httpStatus: 401,
};

/**
 * Header values by lower-case name. The server joins duplicate headers with a comma (`joinDuplicateHeaders`), so a duplicate
 * Host, key or method never equals an allowed value. Taking the first or the last of two headers would accept one of them.
 */
export type RequestHeaders = Readonly<Record<string, string | undefined>>;

const jsonType = /^application\/json[ \t]*(;.*)?$/i;
const acceptsJson = /(^|[\s,])(\*\/\*|application\/(json|\*))/i;
const acceptsEvents = /(^|[\s,])(\*\/\*|text\/(event-stream|\*))/i;
/** The exact values that MCP clients send, compared before the slower patterns. */
const usualType = 'application/json';
const usualAccept = 'application/json, text/event-stream';
const clientName = /^[A-Za-z0-9._~-]{1,128}$/;
const lengthText = /^[0-9]{1,15}$/;
/** Largest refused body that is read and dropped in order to reuse the connection. */
const drainedBytesMax = 16 * 1024 * 1024;

/** Checks a POST before its body is read. */
export function checkPost(headers: RequestHeaders, bodyBytesMax: number): Refusal | undefined {
  const { 'content-type': type, 'content-length': length, accept } = headers;
  // A page of another site can send forms or plain text without a preflight, but not JSON.
  if (type !== usualType && (type === undefined || !jsonType.test(type))) return REFUSALS.contentType;
  if (accept !== undefined && accept !== usualAccept && !(acceptsJson.test(accept) && acceptsEvents.test(accept)))
    return REFUSALS.accept;
  return length !== undefined && !(Number(length) <= bodyBytesMax) ? REFUSALS.body : undefined;
}

export const isClientName = (value: string): boolean => clientName.test(value);

export const acceptsStream = ({ accept }: RequestHeaders): boolean =>
  accept === undefined || acceptsEvents.test(accept);

/** Whether the body of a refused request is too long to drain, or of unknown length. */
export function isTooMuchToDrain(headers: RequestHeaders): boolean {
  const length = headers['content-length'];
  if (length === undefined) return headers['transfer-encoding'] !== undefined;
  return !lengthText.test(length) || Number(length) > drainedBytesMax;
}

/** Up to this size, joining the parts is cheaper than one write per part. */
const joinedBytesMax = 64 * 1024;

/** One Latin-1 character per byte: Node sends a string together with the head, but a buffer in a second write. */
function joinedLatin1(parts: readonly JsonText[]): string {
  let text = '';
  for (const part of parts) text += typeof part === 'string' ? latin1(part) : bytesOf(part).toString('latin1');
  return text;
}

const bytesOf = (bytes: Uint8Array): Buffer =>
  bytes instanceof Buffer ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

export function writeJson(
  response: ServerResponse,
  status: number,
  parts: readonly JsonText[],
  stallMs: number,
  headers: HeaderList = [],
): void {
  if (response.destroyed || response.headersSent) return;
  let atLeast = 0;
  for (const part of parts) atLeast += part.length;
  if (atLeast <= joinedBytesMax) {
    const text = joinedLatin1(parts);
    writeHead(response, status, text.length, headers);
    response.end(text, 'latin1');
  } else {
    writeHead(response, status, partsBytes(parts), headers);
    response.cork();
    for (const part of parts) response.write(part);
    response.uncork();
    response.end();
  }
  cutWhenStalled(response, stallMs);
}

function writeHead(response: ServerResponse, status: number, bytes: number, headers: HeaderList): void {
  const head = ['Content-Type', 'application/json', 'Content-Length', String(bytes)];
  response.writeHead(status, headers.length === 0 ? head : [...head, ...headers]);
}

/** Disconnects a client that stops reading. The socket timer restarts with each progress, so a slow reader is not cut off. */
export function cutWhenStalled(response: ServerResponse, stallMs: number): void {
  if (response.socket?.writableNeedDrain) response.socket.setTimeout(stallMs);
}

function refuse(response: ServerResponse, { status, failure, idText }: Refusal, headers: HeaderList): void {
  if (response.destroyed || response.headersSent) return;
  const parts = failureText(idText, failure);
  const bytes = partsBytes(parts);
  writeHead(response, status, bytes, headers);
  response.end(joinedParts(parts, bytes));
}

/** Refuses a request, and closes its connection if too much of the body is still to be read. */
export function refuseRequest(
  lingering: LingeringClose,
  refusal: Refusal,
  request: IncomingMessage,
  received: RequestHeaders,
  response: ServerResponse,
): void {
  const { headers } = refusal;
  const closes = headers.includes('Connection');
  const mustClose = !request.complete && (closes || isTooMuchToDrain(received));
  if (mustClose) lingering.insteadOfCut(request);
  refuse(response, refusal, mustClose && !closes ? [...headers, 'Connection', 'close'] : headers);
}

export function failRequest(
  { onProblem }: { readonly onProblem: (error: unknown) => void },
  response: ServerResponse,
  error: unknown,
): void {
  onProblem(error);
  refuse(response, REFUSALS.internal, REFUSALS.internal.headers);
}

/** Closes a connection after a parse error or timeout, with an answer if no bytes were sent before. */
export function refuseSocket(code: string | undefined, socket: Duplex, lingering: LingeringClose): void {
  if (!(socket instanceof Socket)) {
    socket.destroy();
    return;
  }
  // The connection already has its answer.
  if (lingering.has(socket)) return;
  // After the first bytes of another answer, the client would read these bytes as its continuation.
  const isReadable = socket.writable && socket.bytesWritten === 0;
  if (!isReadable || code === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  const { status, failure } = SOCKET_REFUSALS[code ?? ''] ?? REFUSALS.http;
  const parts = failureText(undefined, failure);
  const bytes = partsBytes(parts);
  const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nContent-Type: application/json\r\nContent-Length: ${bytes}\r\nConnection: close\r\n\r\n`;
  lingering.end(socket, joinedParts([head, ...parts], head.length + bytes));
}

const SOCKET_REFUSALS: Readonly<Record<string, Refusal>> = {
  HPE_HEADER_OVERFLOW: REFUSALS.header,
  ERR_HTTP_REQUEST_TIMEOUT: REFUSALS.slow,
};

/** Counts answers in `counts` by the first digit of their status. */
export function countedResponse(counts: Record<number, number>): typeof ServerResponse {
  class CountedResponse extends ServerResponse {
    override writeHead(status: number, ...rest: unknown[]): this {
      const digit = Math.trunc(status / 100);
      counts[digit] = (counts[digit] ?? 0) + 1;
      return super.writeHead(status, ...(rest as [string[]]));
    }
  }
  return CountedResponse as typeof ServerResponse;
}
